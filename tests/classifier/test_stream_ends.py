"""How a guarded stream ends: exactly one terminal event, whatever happens."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from typing import Any

import pytest

from classifier.audit.memory import MemoryStore
from classifier.decision import Decision
from classifier.errors import ConfigurationError, PolicyError, StoreUnavailable
from classifier.messages import TextDelta
from classifier.policy import PolicyContext
from classifier.ports import Call, Ports
from classifier.processor import ClassifierProcessor
from classifier.result import ClassifierResult
from classifier.stream import End, StreamCut, guard
from classifier.testing import TriedStream, memory_ports, try_stream
from classifier.verdict import Run
from tests.classifier.conformance import SafetyQuestions, abort_unsafe
from tests.classifier.streaming import (
    deltas,
    finding,
    guarding,
    read,
    texts_of,
)

# concurrency


class Slow:
    """Evaluates after a time that depends on the state; counts how many run at once."""

    def __init__(self, seconds: Mapping[str, float]) -> None:
        self._seconds = seconds
        self.running = 0
        self.most = 0
        self.answered: list[str] = []

    async def __call__(self, call: Call) -> ClassifierResult[Any]:
        self.running += 1
        self.most = max(self.most, self.running)
        await asyncio.sleep(self._seconds.get(call.state, 0.01))
        self.running -= 1
        self.answered.append(call.state)
        return await call.evaluate()


async def test_a_slow_judgement_holds_the_release_but_not_the_judging_of_what_follows() -> None:
    evaluate, run, store = Slow({"a": 0.3}), Run.here(), MemoryStore()
    letters = "abcdefghijklmnopqrst"
    ports = memory_ports(store, run, evaluate)
    parts = await texts_of(guard(deltas(letters), [guarding(max_in_flight=4)], run=run, ports=ports))
    assert parts[:-1] == list(letters)
    assert evaluate.most == 4
    assert evaluate.answered[-1] == "a"
    assert [decision.state for decision in store.decisions.values()] == list(letters)


async def test_no_more_than_max_in_flight_are_judged_at_once() -> None:
    evaluate, run = Slow({}), Run.here()
    ports = memory_ports(MemoryStore(), run, evaluate)
    await texts_of(guard(deltas("abcdefgh"), [guarding(max_in_flight=1)], run=run, ports=ports))
    assert evaluate.most == 1


async def test_decisions_that_are_ready_together_are_recorded_together() -> None:
    evaluate, batches = Slow({"a": 0.1}), list[int]()

    async def record(decisions: Sequence[Decision]) -> Sequence[Decision]:
        batches.append(len(decisions))
        return decisions

    await texts_of(guard(deltas("abcd"), [guarding()], run=Run.here(), ports=Ports(record, evaluate)))
    assert batches == [4]


async def test_a_source_faster_than_its_reader_is_not_read_without_end() -> None:
    produced = 0

    async def endless() -> AsyncIterator[TextDelta]:
        nonlocal produced
        while True:
            produced += 1
            yield TextDelta("x")

    run = Run.here()
    async with guard(endless(), [guarding()], run=run, ports=memory_ports(MemoryStore(), run)) as stream:
        assert await anext(stream) == TextDelta("x")
        await asyncio.sleep(0.05)
        assert produced < 2000


# ends


async def failing(parts: Iterable[str], error: BaseException) -> AsyncIterator[TextDelta]:
    for part in parts:
        yield TextDelta(part)
    raise error


async def test_a_source_that_breaks_ends_as_failed_after_what_came_before() -> None:
    run = Run.here()
    ports = memory_ports(MemoryStore(), run)
    stream = guard(failing(["one ", "two"], OSError("cut")), [guarding(hold_back=20)], run=run, ports=ports)
    text, end = await read(stream)
    assert text == "one two"
    assert (end.outcome, end.code) == ("failed", "STREAM_FAILED")
    with pytest.raises(OSError, match="cut"):
        _ = stream.text


async def test_a_source_that_is_cancelled_ends_as_cancelled_and_does_not_cancel_its_reader() -> None:
    run = Run.here()
    ports = memory_ports(MemoryStore(), run)
    text, end = await read(
        guard(failing(["one"], asyncio.CancelledError()), [guarding()], run=run, ports=ports)
    )
    assert (text, end.outcome) == ("one", "cancelled")


async def test_p34_a_broken_policy_fails_closed_mid_stream() -> None:
    def breaks_at_b(answers: Any, context: PolicyContext[Any]) -> None:
        if context.result.usage.input_tokens == 2:
            raise ValueError("no")

    tried = await try_stream([guarding(policy=breaks_at_b)], ["a", "bb", "c"])
    assert (tried.text, tried.end.outcome, tried.end.code) == ("a", "failed", "POLICY_ERROR")
    assert isinstance(tried.end.error, PolicyError)
    assert [decision.state for decision in tried.decisions] == ["a"]


async def test_what_cannot_be_recorded_is_not_released() -> None:
    async def away(decisions: Sequence[Decision]) -> Sequence[Decision]:
        raise StoreUnavailable("the store did not answer")

    text, end = await read(guard(deltas("ab"), [guarding()], run=Run.here(), ports=Ports(away)))
    assert (text, end.outcome, end.code) == ("", "failed", "STORE_UNAVAILABLE")


async def test_a_model_that_cancels_its_own_call_fails_the_stream_instead_of_hanging_it() -> None:
    async def cancels(call: Call) -> ClassifierResult[Any]:
        raise asyncio.CancelledError

    run = Run.here()
    text, end = await read(
        guard(deltas("ab"), [guarding()], run=run, ports=memory_ports(MemoryStore(), run, cancels))
    )
    assert (text, end.outcome, end.code) == ("", "failed", "MODEL_UNAVAILABLE")


async def test_a_processor_that_is_not_ready_is_refused_before_anything_is_read() -> None:
    named = ClassifierProcessor[SafetyQuestions](classifier="safety", on_result=abort_unsafe)
    run = Run.here()
    with pytest.raises(ConfigurationError, match="only an App can look it up"):
        guard(deltas("a"), [named], run=run, ports=memory_ports(MemoryStore(), run))


class Blocking:
    """An evaluation that waits until it is cancelled."""

    def __init__(self) -> None:
        self.asked = asyncio.Event()
        self.cancelled = 0

    async def __call__(self, call: Call) -> ClassifierResult[Any]:
        self.asked.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        raise AssertionError("nobody sets the event")


async def test_p35_a_stop_during_the_call_cancels_it_tells_nobody_and_ends_the_stream() -> None:
    evaluate, store, run, told, closed = Blocking(), MemoryStore(), Run.here(), list[Decision](), list[str]()
    processor = guarding(on_decision=told.append)
    ports = memory_ports(store, run, evaluate)
    stream = guard(deltas("ab", closed), [processor], run=run, ports=ports)
    reading = asyncio.create_task(read(stream))
    await evaluate.asked.wait()
    stream.stop()
    text, end = await asyncio.wait_for(reading, 2)
    assert (text, end.outcome) == ("", "cancelled")
    assert evaluate.cancelled >= 1
    assert (store.decisions, told, closed) == ({}, [], ["closed"])
    with pytest.raises(StreamCut):
        _ = stream.text


async def test_p35_a_cancelled_reader_closes_everything_and_can_still_read_the_end() -> None:
    evaluate, run, closed = Blocking(), Run.here(), list[str]()
    ports = memory_ports(MemoryStore(), run, evaluate)
    stream = guard(deltas("ab", closed), [guarding()], run=run, ports=ports)
    reading = asyncio.create_task(read(stream))
    await evaluate.asked.wait()
    reading.cancel()
    with pytest.raises(asyncio.CancelledError):
        await reading
    assert evaluate.cancelled >= 1
    assert closed == ["closed"]
    assert [part async for part in stream] == [End("cancelled")]


async def test_a_stop_during_the_record_is_recorded_and_told_and_not_released() -> None:
    recording, go_on, told = asyncio.Event(), asyncio.Event(), list[Decision]()

    async def slowly(decisions: Sequence[Decision]) -> Sequence[Decision]:
        recording.set()
        await go_on.wait()
        return decisions

    stream = guard(deltas("a"), [guarding(on_decision=told.append)], run=Run.here(), ports=Ports(slowly))
    reading = asyncio.create_task(read(stream))
    await recording.wait()
    stream.stop()
    go_on.set()
    text, end = await reading
    assert (text, end.outcome) == ("", "cancelled")
    assert [decision.state for decision in told] == ["a"]
    assert len(end.judgements) == 1


async def test_leaving_early_closes_the_source_and_all_chained_stages() -> None:
    closed: list[str] = []
    run = Run.here()
    chain = [guarding(finding(), id="a"), guarding(finding(), id="b")]
    source = deltas(["one", "two", "three"], closed)
    async with guard(source, chain, run=run, ports=memory_ports(MemoryStore(), run)) as stream:
        async for _ in stream:
            break
    assert closed == ["closed"]
    assert stream.end is not None
    assert stream.end.outcome == "cancelled"
    assert not [task for task in asyncio.all_tasks() if "Stage" in repr(task.get_coro())]


async def test_the_whole_text_is_read_only_from_a_finished_stream() -> None:
    run = Run.here()
    stream = guard(deltas(["a", "b"]), [guarding()], run=run, ports=memory_ports(MemoryStore(), run))
    with pytest.raises(StreamCut, match="goes on"):
        _ = stream.text
    await read(stream)
    assert stream.text == "ab"


async def test_decision_ids_of_a_repeated_stream_are_the_same() -> None:
    tried: list[TriedStream] = [
        await try_stream([guarding()], ["a", "b"], run=Run.here("stream-1")) for _ in range(2)
    ]
    assert tried[0].end.judgements == tried[1].end.judgements
