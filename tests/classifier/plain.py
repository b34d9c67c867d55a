"""Runs conformance cases in plain asyncio, as messages or as a stream."""

from __future__ import annotations

import io
import json
import logging
from collections.abc import AsyncIterator, Generator
from contextlib import contextmanager
from typing import Literal, TypeAlias

from classifier.audit.memory import MemoryStore
from classifier.decision import Decision, Tripwire
from classifier.engine import run_messages
from classifier.errors import ClassifierError
from classifier.messages import TextDelta
from classifier.stream import End, StreamGuard, guard
from classifier.testing import memory_ports
from classifier.verdict import Run
from tests.classifier.conformance import Form, Observed, Setup

Came: TypeAlias = tuple[str, tuple[object, ...], Tripwire | None]


async def run_plain(setup: Setup, form: Form) -> Observed:
    """The runner of plain asyncio."""
    run = Run.here(context=setup.context, ids=setup.ids)
    store = MemoryStore()
    with logged() as written:
        if form == "stream":
            outcome, passed, tripwire = await _stream(setup, run, store)
        else:
            outcome, passed, tripwire = await _messages(setup, run, store, form)
    return Observed(outcome, passed, tripwire, _decisions(store), written.getvalue())


async def _messages(setup: Setup, run: Run, store: MemoryStore, form: Literal["input", "output"]) -> Came:
    try:
        verdict = await run_messages(
            setup.processors, setup.messages, phase=form, run=run, ports=memory_ports(store, run)
        )
    except ClassifierError as error:
        return error.code, (), None
    if verdict.outcome == "aborted":
        return "aborted", (), verdict.tripwire
    setup.seen.extend(("out", message.text) for message in verdict.messages)
    return "allowed", tuple(message.text for message in verdict.messages), verdict.tripwire


async def _stream(setup: Setup, run: Run, store: MemoryStore) -> Came:
    stream: StreamGuard[object] = guard(
        _parts(setup), setup.processors, run=run, ports=memory_ports(store, run)
    )
    passed: list[object] = []
    async for part in stream:
        if isinstance(part, End):
            break
        passed.append(part.text if isinstance(part, TextDelta) else part)
        setup.seen.append(("out", passed[-1]))
    end = stream.end
    assert end is not None
    if end.outcome == "failed":
        return end.code or "", (), None
    return "allowed" if end.outcome == "finished" else end.outcome, tuple(passed), end.tripwire


async def _parts(setup: Setup) -> AsyncIterator[object]:
    for part in setup.stream:
        yield TextDelta(part) if isinstance(part, str) else part


def _decisions(store: MemoryStore) -> tuple[Decision, ...]:
    return tuple(store.decisions.values())


@contextmanager
def logged() -> Generator[io.StringIO]:
    """Everything the library logs meanwhile, with all extra fields."""
    written = io.StringIO()
    handler = logging.StreamHandler(written)
    handler.setFormatter(_Everything())
    logger = logging.getLogger("classifier")
    before = logger.level
    logger.addHandler(handler)
    logger.setLevel(logging.DEBUG)
    try:
        yield written
    finally:
        logger.removeHandler(handler)
        logger.setLevel(before)


class _Everything(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        return super().format(record) + json.dumps(vars(record), default=str)
