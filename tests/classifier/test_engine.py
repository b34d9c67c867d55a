"""Processors over messages: order, outcomes, records, retries, cancellation."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from classifier.audit.memory import MemoryStore
from classifier.decision import Decision
from classifier.engine import run_messages
from classifier.errors import (
    ConfigurationError,
    ModelError,
    RateLimited,
    StoreError,
    StoreUnavailable,
)
from classifier.messages import Message
from classifier.models.scripted import ScriptedModel
from classifier.policy import PolicyContext
from classifier.ports import AskAgain, Call, Ports
from classifier.processor import ClassifierProcessor
from classifier.result import ClassifierResult
from classifier.testing import memory_ports, try_messages
from classifier.verdict import Earlier, Run
from tests.classifier.conformance import (
    SafetyQuestions,
    answering,
    broken,
    filter_unsafe,
)
from tests.classifier.guarding import guarding, silent
from tests.classifier.plain import logged

AT = datetime(2026, 1, 2, tzinfo=UTC)


# chains


async def test_a_processor_behind_an_abort_gets_no_decision() -> None:
    model = ScriptedModel(answering)
    tried = await try_messages([guarding(model, id="a"), guarding(model, id="b")], ["hello", "bad"])
    assert [judgement.processor_id for judgement in tried.verdict.judgements] == ["a", "a"]
    assert len(tried.decisions) == 2


async def test_a_filter_feeds_the_next_which_sees_another_last_message() -> None:
    chain = [guarding(id="a", policy=filter_unsafe), guarding(id="b", last_message_only=True)]
    tried = await try_messages(chain, ["hello", "bad"])
    assert tried.verdict.outcome == "filtered"
    assert tried.verdict.kept == (0,)
    assert [(j.processor_id, j.position) for j in tried.verdict.judgements] == [("a", 0), ("a", 1), ("b", 0)]


async def test_without_processors_everything_passes() -> None:
    tried = await try_messages([], ["hello"])
    assert tried.verdict.outcome == "allowed"
    assert [message.text for message in tried.verdict.messages] == ["hello"]


async def test_answers_are_typed_by_processor() -> None:
    processor: ClassifierProcessor[SafetyQuestions] = guarding()
    tried = await try_messages([processor], ["hello", "you"])
    assert [answers.unsafe.probability_or(1.0) for answers in tried.verdict.answers(processor)] == [0.1, 0.1]


async def test_monitor_records_what_would_have_happened_and_changes_nothing() -> None:
    tried = await try_messages([guarding(mode="monitor")], ["bad", "hello"])
    assert tried.verdict.outcome == "allowed"
    assert [message.text for message in tried.verdict.messages] == ["bad", "hello"]
    assert [decision.outcome for decision in tried.decisions] == ["aborted", "allowed"]
    assert {decision.mode for decision in tried.decisions} == {"monitor"}


async def test_a_monitored_policy_that_raises_changes_nothing_and_is_logged() -> None:
    with logged() as written:
        tried = await try_messages([guarding(mode="monitor", policy=broken)], ["hello"])
    assert tried.verdict.outcome == "allowed"
    assert not tried.decisions
    assert "monitored policy raised" in written.getvalue()
    assert "jane" not in written.getvalue()


# records


async def test_a_decision_is_recorded_before_on_decision_and_both_before_the_next_message() -> None:
    order: list[str] = []

    async def record(decisions: Sequence[Decision]) -> Sequence[Decision]:
        order.extend(f"row {decision.state}" for decision in decisions)
        return decisions

    async def tell(decision: Decision) -> None:
        order.append(f"told {decision.state}")

    def rule(answers: Any, context: PolicyContext[Any]) -> None:
        order.append("policy")

    await run_messages(
        [guarding(policy=rule, on_decision=tell)],
        [Message("one"), Message("two")],
        phase="input",
        run=Run.here(),
        ports=Ports(record),
    )
    assert order == ["policy", "row one", "told one", "policy", "row two", "told two"]


async def test_the_first_recorded_decision_is_the_one_acted_on() -> None:
    store, run = MemoryStore(), Run.here("key", at=AT)
    chain = [guarding()]
    first = await try_messages(chain, ["bad"], store=store, run=run)
    late = Ports(store.record)  # an attempt that did not look first
    lenient = [guarding(policy=silent)]
    again = await run_messages(lenient, [Message("bad")], phase="input", run=run, ports=late)
    assert again.outcome == "aborted"
    assert again.tripwire == first.verdict.tripwire
    assert again.decision_ids == first.verdict.decision_ids
    assert len(store.decisions) == 1


async def test_a_repeated_run_takes_what_is_on_record_tells_it_again_and_asks_only_for_the_rest() -> None:
    model, store, run = ScriptedModel(answering), MemoryStore(), Run.here("key", at=AT)
    told: list[uuid.UUID] = []

    def tell(decision: Decision) -> None:
        told.append(decision.decision_id)

    chain = [guarding(model, id=name, on_decision=tell) for name in ("a", "b")]
    first = await try_messages(chain[:1], ["hello", "you"], store=store, run=run)
    assert len(model.requests) == 2
    again = await try_messages(chain, ["hello", "you"], store=store, run=run)
    assert len(model.requests) == 4
    assert again.verdict.decision_ids[:2] == first.verdict.decision_ids
    assert told == [*first.verdict.decision_ids, *again.verdict.decision_ids]
    once_more = await try_messages(chain, ["hello", "you"], store=store, run=run)
    assert len(model.requests) == 4
    assert once_more.verdict.judgements == again.verdict.judgements


async def test_an_attempt_that_gives_up_decides_nothing_and_the_next_one_does() -> None:
    store, run = MemoryStore(), Run.here("key", at=AT)
    failures: list[Exception] = [RateLimited("slow down")]

    async def evaluate(call: Call) -> ClassifierResult[Any]:
        try:
            return await call.evaluate()
        except ModelError as error:
            raise AskAgain(error) from error

    model = ScriptedModel(lambda request: failures.pop() if failures else answering(request))
    ports = memory_ports(store, run, evaluate)
    with pytest.raises(AskAgain):
        await run_messages([guarding(model)], [Message("hello")], phase="input", run=run, ports=ports)
    assert not store.decisions
    spent = {run.coordinates.decision_id(0): Earlier(attempts=1, milliseconds=1500.0)}
    later = replace(run, earlier=spent)
    await run_messages([guarding(model)], [Message("hello")], phase="input", run=later, ports=ports)
    (decision,) = store.decisions.values()
    assert decision.attempts == 2
    assert decision.duration_ms >= 1500.0


async def test_an_id_does_not_depend_on_how_many_messages_or_processors_there_are() -> None:
    run = Run.here("key", at=AT)
    one = await try_messages([guarding(id="a")], ["hello", "you"], run=run)
    two = await try_messages([guarding(id="a"), guarding(id="b")], ["hello", "you", "there"], run=run)
    ids = {(d.processor_id, d.state): d.decision_id for d in two.decisions}
    assert len(set(ids.values())) == 6
    assert {(d.processor_id, d.state): d.decision_id for d in one.decisions}.items() <= ids.items()


async def test_what_cannot_be_recorded_does_not_move() -> None:
    async def away(decisions: Sequence[Decision]) -> Sequence[Decision]:
        raise StoreUnavailable("the store did not answer")

    with pytest.raises(StoreUnavailable):
        await run_messages([guarding()], [Message("x")], phase="input", run=Run.here(), ports=Ports(away))


async def test_a_recorder_that_gives_back_something_else_is_found() -> None:
    async def losing(decisions: Sequence[Decision]) -> Sequence[Decision]:
        return ()

    with pytest.raises(StoreError, match="gave back other decisions"):
        await run_messages([guarding()], [Message("x")], phase="input", run=Run.here(), ports=Ports(losing))


async def test_a_context_over_the_limit_is_refused_before_any_call() -> None:
    model = ScriptedModel(answering)
    with pytest.raises(ConfigurationError, match="request context"):
        await try_messages([guarding(model)], ["hello"], context={"x": "y" * 70_000})
    assert not model.requests


# stops


class Blocking:
    """An evaluation that waits until it is let go, or cancelled."""

    def __init__(self) -> None:
        self.asked = asyncio.Event()
        self.cancelled = False

    async def __call__(self, call: Call) -> ClassifierResult[Any]:
        self.asked.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            self.cancelled = True
            raise
        raise AssertionError("nobody sets the event")


async def test_p35_a_stop_during_the_call_cancels_it_and_leaves_no_decision() -> None:
    store, run, evaluate, told = MemoryStore(), Run.here(), Blocking(), list[Decision]()
    running = asyncio.create_task(
        run_messages(
            [guarding(on_decision=told.append)],
            [Message("hello")],
            phase="input",
            run=run,
            ports=memory_ports(store, run, evaluate),
        )
    )
    await evaluate.asked.wait()
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert evaluate.cancelled
    assert not store.decisions
    assert not told


async def test_a_stop_after_the_answer_is_recorded_and_told_and_then_goes_on() -> None:
    store, recording, go_on, told = MemoryStore(), asyncio.Event(), asyncio.Event(), list[Decision]()

    async def slowly(decisions: Sequence[Decision]) -> Sequence[Decision]:
        recording.set()
        await go_on.wait()
        return await store.record(decisions)

    running = asyncio.create_task(
        run_messages(
            [guarding(on_decision=told.append)],
            [Message("hello"), Message("you")],
            phase="input",
            run=Run.here(),
            ports=Ports(slowly),
        )
    )
    await recording.wait()
    running.cancel()
    go_on.set()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert [decision.state for decision in told] == ["hello"]
    assert len(store.decisions) == 1


async def test_the_text_before_normalising_is_kept_with_what_was_judged() -> None:
    tried = await try_messages(
        [guarding(normalise=True, max_input_length=4)], ["\uff47ood\u200b stuff", "plain"]
    )
    changed, plain = tried.decisions
    assert (changed.state, changed.original) == ("good", "\uff47ood\u200b stuff")
    assert changed.normalised
    assert (plain.state, plain.original, plain.normalised) == ("plai", None, ())
