"""The stream processors over one attempt of a model call: where decisions belong, how models are asked."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

from temporalio import activity

from activities.chat_messages import ChatRequest
from classifier.agent import Agent
from classifier.audit.store import DecisionStore
from classifier.context import tenant_of
from classifier.decision import Coordinates, Decision, Ids, ordinal_of
from classifier.decision_json import decision_to_json
from classifier.errors import ModelError
from classifier.messages import TextDelta
from classifier.ports import Call, Ports
from classifier.processor import ClassifierProcessor
from classifier.result import ClassifierResult
from classifier.stream import StreamGuard, guard
from classifier.temporal.metrics import count_decisions
from classifier.temporal.recorder import Recorder
from classifier.tracing import current_span
from classifier.verdict import Earlier, Run

PAGE = 512
"""Positions of a stream that are looked up at a time."""

_FIRST_WAIT = 0.5
_LONGEST_WAIT = 30.0


@dataclass(frozen=True, slots=True)
class Before(TextDelta):
    """Text that was released earlier in the turn: seen by processors again, and not released again."""


@dataclass(frozen=True, slots=True)
class ChatGuard:
    """Guards one attempt.

    Attributes:
        processors: In list order.
        run: Where the decisions of this attempt belong.
        recorder: Where they go.
        store: Where those of earlier attempts are.
        activity_id: The activity that attempts share.
        attempt: Which attempt this is.
        failures_allowed: How many failed calls of a decision model are one too many, for each decision.
    """

    processors: Sequence[ClassifierProcessor[Any]]
    run: Run
    recorder: Recorder
    store: DecisionStore
    activity_id: str
    attempt: int
    failures_allowed: int
    _sent: set[uuid.UUID] = field(default_factory=set[uuid.UUID])

    def over(self, source: AsyncIterable[object]) -> StreamGuard[object]:
        """The guarded stream.

        Raises:
            ConfigurationError: What is declared cannot work.
        """
        earlier: dict[uuid.UUID, Earlier] = {}
        ports = Ports(self.recorder.record, _Patient(earlier, self.failures_allowed).evaluate)
        return guard(source, self.processors, run=replace(self.run, earlier=earlier), ports=ports)

    def travelling(self) -> list[dict[str, Any]]:
        """Decisions that could not be stored and were not handed out yet."""
        fresh = {key: each for key, each in self.recorder.pending.items() if key not in self._sent}
        self._sent.update(fresh)
        return [decision_to_json(each) for each in fresh.values()]

    async def earlier_abort(self, deltas: int) -> Decision | None:
        """The abort that an earlier attempt recorded.

        Args:
            deltas: How far the last attempt had come when it last said so.

        Raises:
            StoreUnavailable: It cannot be known, so nothing may be released.
        """
        for attempt in range(1, self.attempt):
            coordinates = _of_attempt(self.run.coordinates, self.activity_id, attempt)
            start, found = 0, True
            while found or start <= deltas:
                aborted, found = await self._page(coordinates, start)
                if aborted is not None:
                    return aborted
                start += PAGE
        return None

    async def _page(self, coordinates: Coordinates, start: int) -> tuple[Decision | None, bool]:
        ids = [
            coordinates.decision_id(ordinal_of(position, place))
            for position in range(start, start + PAGE)
            for place in range(len(self.processors))
        ]
        if not ids:
            return None, False
        found: Mapping[uuid.UUID, Decision] = await self.store.find(
            coordinates.tenant, self.run.decided_at, ids
        )
        aborts = (each for each in found.values() if each.outcome == "aborted" and each.mode == "enforce")
        return next(aborts, None), bool(found)


class _Patient:
    """Asks again where that can help: one slow or failing judgement must not start the whole reply anew."""

    def __init__(self, earlier: dict[uuid.UUID, Earlier], failures_allowed: int) -> None:
        self._earlier = earlier
        self._allowed = failures_allowed

    async def evaluate(self, call: Call) -> ClassifierResult[Any]:
        failures = 0
        while True:
            try:
                return await call.evaluate()
            except ModelError as error:
                failures += 1
                if not error.retryable or failures >= self._allowed:
                    raise
                wait = error.retry_after or min(_FIRST_WAIT * 2 ** (failures - 1), _LONGEST_WAIT)
            self._earlier |= dict.fromkeys((call.decision_id, *call.others), Earlier(failures))
            await asyncio.sleep(min(wait, _LONGEST_WAIT))


def guard_of(
    agent: Agent,
    processors: Sequence[ClassifierProcessor[Any]],
    request: ChatRequest,
    store: DecisionStore,
) -> ChatGuard:
    """The guard of this attempt of the running activity."""
    info = activity.info()
    tenant = tenant_of(request.context)
    decided_at = datetime.fromisoformat(request.decided_at)
    trace, span = current_span() or (None, None)
    place = Coordinates(tenant, info.namespace, info.workflow_id or "", info.workflow_run_id or "")
    run = Run(
        coordinates=_of_attempt(place, info.activity_id, info.attempt),
        decided_at=decided_at,
        context=request.context,
        ids=Ids(request.thread, request.resource, None, trace, span),
    )
    recorder = Recorder(
        store,
        tenant,
        [decided_at],
        look_first=False,
        may_travel=agent.audit == "deferred",
        count=lambda made: count_decisions(made, activity.metric_meter()),
    )
    return ChatGuard(processors, run, recorder, store, info.activity_id, info.attempt, agent.failures_allowed)


def _of_attempt(place: Coordinates, activity_id: str, attempt: int) -> Coordinates:
    """Where the decisions of an attempt belong; another attempt judges other text."""
    return replace(place, activity_id=f"{activity_id}/{attempt}")
