"""Decisions without a workflow: durable and on the record under the caller's key."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from temporalio.api.workflowservice.v1 import DeleteActivityExecutionRequest
from temporalio.client import Client
from temporalio.exceptions import ApplicationError, CancelledError

from classifier.audit.memory import MemoryStore
from classifier.decision import Coordinates, Decision
from classifier.errors import ConfigurationError
from classifier.policy import PolicyContext
from classifier.temporal.client import Guards, decide, evaluate
from classifier.temporal.workflow import DecideOptions
from classifier.verdict import Tripped
from tests.classifier.temporal.chats import (
    SECRET,
    asked_times,
    guarded,
    judged,
    over_http,
    scripted,
)
from tests.classifier.temporal.letters import Interrupted, always, app, asked, failed, until
from tests.classifier.temporal.letters import over_http as letters_over_http
from tests.classifier.temporal.project.worker import worker
from tests.classifier.temporal.project.workflows import Letter
from tests.servers import Answer, Call, Hang, Server

AT = datetime(2026, 11, 30, 8, tzinfo=UTC)


def guards(client: Client, queue: str, **options: object) -> Guards:
    chosen = replace(DecideOptions(), **options)  # type: ignore[arg-type]
    return Guards(client, "letters", task_queue=queue, options=chosen)


def only(store: MemoryStore) -> Decision:
    (decision,) = store.decisions.values()
    return decision


async def test_a_decision_needs_no_workflow_and_is_on_record_under_its_key(
    client: Client, queue: str
) -> None:
    store = MemoryStore()
    async with worker(client, app(always()), store, queue):
        found = await evaluate(client, "letters", "it crashes", Letter, key=f"{queue}-1", task_queue=queue)
    assert found.answers.kind.choice_or("refused") == "bug"
    decision = only(store)
    assert decision.coordinates == Coordinates("default", "default", activity_id=f"{queue}-1")
    assert found.decision_id == str(decision.decision_id) == str(decision.coordinates.decision_id(0))


async def test_guards_give_the_verdict_that_processors_give(client: Client, queue: str) -> None:
    store = MemoryStore()
    async with worker(client, guarded(scripted()), store, queue):
        passed = await guards(client, queue).input(["hello", "a dull day"], key=f"{queue}-1")
        said = await guards(client, queue).output(["hello"], key=f"{queue}-2")
        aborted = await guards(client, queue).input([SECRET], key=f"{queue}-3")
    assert [each.text for each in passed.messages] == ["hello"]
    assert [(each.role, each.text) for each in said.messages] == [("assistant", "hello")]
    assert aborted.outcome == "aborted"
    with pytest.raises(Tripped):
        _ = aborted.messages
    assert [each.phase for each in store.decisions.values()] == ["input", "input", "output", "input"]


async def test_the_same_key_gives_the_same_decision_while_it_runs_and_afterwards(
    client: Client, queue: str
) -> None:
    store = MemoryStore()
    may = asyncio.Event()

    async def reply(call: Call) -> Answer:
        await may.wait()
        return judged(call)

    async with Server(reply) as server, worker(client, over_http(server), store, queue):
        asking = [
            asyncio.create_task(guards(client, queue).input(["hello"], key=f"{queue}-1")) for _ in range(3)
        ]
        await server.asked.wait()
        may.set()
        verdicts = [await each for each in asking]
        verdicts.append(await guards(client, queue).input(["hello"], key=f"{queue}-1"))
        assert len(server.calls) == 1
    assert {each.decision_ids for each in verdicts} == {(only(store).decision_id,)}


async def test_a_key_and_a_time_find_the_row_when_temporal_has_forgotten(client: Client, queue: str) -> None:
    store = MemoryStore()
    model = scripted()
    key = f"{queue}-1"
    async with worker(client, guarded(model), store, queue):
        first = await guards(client, queue).input(["hello"], key=key, at=AT)
        await forget(client, key)
        second = await guards(client, queue).input(["hello"], key=key, at=AT)
    assert first.decision_ids == second.decision_ids
    assert len(model.requests) == 1
    assert only(store).decided_at == AT


async def forget(client: Client, key: str) -> None:
    """What the namespace's retention does."""
    await client.workflow_service.delete_activity_execution(
        DeleteActivityExecutionRequest(namespace=client.namespace, activity_id=key)
    )


async def test_faults_are_retried_and_a_spent_budget_is_a_decision(client: Client, queue: str) -> None:
    store = MemoryStore()
    async with Server([failed(503)] * 3) as server:
        async with worker(client, over_http(server, error_strategy="warn"), store, queue):
            verdict = await guards(client, queue).input(["hello"], key=f"{queue}-1")
        assert len(server.calls) == 3
    assert verdict.outcome == "allowed"
    assert verdict.judgements[0].failure is not None
    assert only(store).attempts == 3


@pytest.mark.parametrize(("strategy", "outcome"), [("strict", "aborted"), ("warn", "allowed")])
async def test_a_lost_activity_is_recorded_and_decided_by_the_error_strategy(
    client: Client, queue: str, strategy: str, outcome: str
) -> None:
    store = MemoryStore()

    def reply(call: Call) -> Answer | Hang:
        return Hang() if call.json["state"] == "two" else judged(call)

    async with Server(reply) as server:
        project = over_http(server, error_strategy=strategy)
        short = guards(client, queue, attempt=timedelta(seconds=1), overall=timedelta(seconds=1.5))
        async with worker(client, project, store, queue):
            verdict = await short.input(["one", "two"], key=f"{queue}-1")
            again = await short.input(["one", "two"], key=f"{queue}-1")
    assert verdict.outcome == again.outcome == outcome
    assert verdict.decision_ids == again.decision_ids
    one, two = store.decisions.values()
    assert one.failure is None
    assert two.failure is not None
    assert (two.failure.code, two.attempts, two.duration_ms) == ("TIMEOUT", 0, 0.0)
    assert one.decided_at == two.decided_at


async def test_an_outage_makes_the_activity_wait_and_changes_nothing(client: Client, queue: str) -> None:
    memory = MemoryStore()
    store = Interrupted(memory)
    store.away = True
    async with worker(client, guarded(scripted()), store, queue):
        asking = asyncio.create_task(guards(client, queue).input([SECRET], key=f"{queue}-1"))
        handle = client.get_activity_handle(f"{queue}-1")

        async def tried_again() -> bool:
            return (await handle.describe()).attempt > 1

        await store.tried.wait()
        await until(tried_again)
        assert not asking.done()
        store.away = False
        assert (await asking).outcome == "aborted"
    assert only(memory).outcome == "aborted"


async def test_what_no_rule_decides_is_raised_once_and_again_for_the_same_key(
    client: Client, queue: str
) -> None:
    def policy(answers: Letter, context: PolicyContext[Letter]) -> None:
        raise KeyError("what its author did not think of")

    model = scripted()
    store = MemoryStore()
    async with worker(client, guarded(model, on_result=policy), store, queue):
        for _ in range(2):
            with pytest.raises(ApplicationError) as raised:
                await guards(client, queue).input(["hello"], key=f"{queue}-1")
            assert raised.value.type == "POLICY_ERROR"
        with pytest.raises(ApplicationError, match="letters") as raised:
            await Guards(client, "leters", task_queue=queue).input(["hello"], key=f"{queue}-2")
        assert raised.value.type == "CONFIGURATION"
    assert len(model.requests) == 1
    assert not store.decisions


async def test_a_caller_that_is_cancelled_closes_the_request_and_may_ask_again(
    client: Client, queue: str
) -> None:
    store = MemoryStore()

    def reply(call: Call) -> Answer | Hang:
        return Hang() if len(server.calls) == 2 else judged(call)

    async with Server(reply) as server, worker(client, over_http(server), store, queue):
        asking = asyncio.create_task(guards(client, queue).input(["one", "two"], key=f"{queue}-1"))
        await asked_times(server, 2)
        asking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asking
        await asyncio.wait_for(server.left.wait(), 5)
        verdict = await guards(client, queue).input(["one", "two"], key=f"{queue}-1")
        assert [call.json["state"] for call in server.calls] == ["one", "two", "two"]
    assert verdict.outcome == "allowed"
    assert len(store.decisions) == 2
    assert len({each.decided_at for each in store.decisions.values()}) == 1


async def test_who_waits_for_the_same_key_hears_of_the_stop(client: Client, queue: str) -> None:
    async with Server([Hang()]) as server, worker(client, over_http(server), MemoryStore(), queue):
        asking = [
            asyncio.create_task(guards(client, queue).input(["one"], key=f"{queue}-1")) for _ in range(2)
        ]
        await server.asked.wait()
        await asyncio.sleep(0.5)  # until both are waiting
        asking[0].cancel()
        with pytest.raises(CancelledError):
            await asking[1]


async def test_on_stop_finish_leaves_it_running_for_who_asks_next(client: Client, queue: str) -> None:
    store = MemoryStore()
    may = asyncio.Event()

    async def reply(call: Call) -> Answer:
        await may.wait()
        return judged(call)

    async with Server(reply) as server, worker(client, over_http(server), store, queue):
        patient = guards(client, queue, on_stop="finish")
        asking = asyncio.create_task(patient.input(["hello"], key=f"{queue}-1"))
        await server.asked.wait()
        asking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asking
        may.set()
        assert (await patient.input(["hello"], key=f"{queue}-1")).outcome == "allowed"
        assert len(server.calls) == 1
    assert len(store.decisions) == 1


async def test_a_shutdown_hands_over(client: Client, queue: str) -> None:
    store = MemoryStore()

    def reply(call: Call) -> Answer | Hang:
        return Hang() if len(server.calls) == 1 else judged(call)

    async with Server(reply) as server:
        async with worker(client, over_http(server), store, queue):
            asking = asyncio.create_task(guards(client, queue).input(["hello"], key=f"{queue}-1"))
            await server.asked.wait()
        async with worker(client, over_http(server), store, queue):
            assert (await asking).outcome == "allowed"
    assert only(store).attempts == 1


async def test_many_states_are_one_activity(client: Client, queue: str) -> None:
    store = MemoryStore()
    async with Server(judged) as server, worker(client, letters_over_http(server), store, queue):
        request = asked(*(f"letter {number}" for number in range(40))).request
        result = await decide(client, request, key=f"{queue}-1", task_queue=queue)
    assert len(result.decisions) == len(store.decisions) == 40


@pytest.mark.parametrize(("text", "key"), [("hello", " "), ("x" * 2_000_000, "large")])
async def test_what_cannot_work_is_refused_before_anything_is_asked(
    client: Client, queue: str, text: str, key: str
) -> None:
    with pytest.raises((ConfigurationError, ApplicationError)):
        await guards(client, queue).input([text], key=key)


async def test_there_is_no_local_mode(client: Client, queue: str) -> None:
    with pytest.raises(ConfigurationError, match="local"):
        await guards(client, queue, local=True).input(["hello"], key="k")
    with pytest.raises(ConfigurationError, match="name"):
        Guards(client, task_queue=queue)
