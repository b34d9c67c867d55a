"""Judging for agents that run in plain asyncio: no workflow, no second try, on the record all the same."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from classifier.adapters.judge import Side
from classifier.app import ResolvedApp
from classifier.asking import ports_for
from classifier.audit.store import DecisionStore
from classifier.engine import run_messages
from classifier.messages import Message
from classifier.values import JSON
from classifier.verdict import Run, Verdict


class Plain:
    """Judges where there is no workflow to do it durably. A run that is repeated is recorded again.

    Args:
        app: A resolved app, whose processors are named.
        store: Where decisions are kept.
    """

    def __init__(self, app: ResolvedApp, store: DecisionStore) -> None:
        self._app = app
        self._store = store

    async def judge(
        self,
        names: Sequence[str],
        phase: Side,
        messages: Sequence[Message],
        context: Mapping[str, JSON] | None,
    ) -> Verdict:
        """What the processors make of messages; errors as for `run_messages`."""
        run = Run.here(context=context)
        processors = [self._app.processors[name] for name in names]
        ports = ports_for(self._store, run)
        return await run_messages(processors, messages, phase=phase, run=run, ports=ports)
