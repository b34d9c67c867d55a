"""Stops, shutdowns and terminations of guarded runs, row by row of the table of the design."""

from __future__ import annotations

import asyncio
import statistics
import time
from datetime import timedelta
from typing import Any

import pytest
from temporalio.client import Client, WorkflowExecutionStatus, WorkflowFailureError, WorkflowHandle
from temporalio.exceptions import CancelledError

from classifier.audit.memory import MemoryStore
from classifier.models.systemone import SystemOne
from classifier.policy import PolicyContext
from tests.classifier.temporal.chats import (
    asked_times,
    both,
    given,
    guarded,
    guarding,
    judged,
    over_http,
    scripted,
)
from tests.classifier.temporal.letters import Interrupted, activities, start, until
from tests.classifier.temporal.project.worker import worker
from tests.classifier.temporal.project.workflows import GuardInTime, GuardOneByOne, Letter
from tests.servers import Answer, Call, Hang, Server


class Held:
    """A server that answers once it may."""

    def __init__(self) -> None:
        self.may = asyncio.Event()

    async def __call__(self, call: Call) -> Answer:
        await self.may.wait()
        return judged(call)


async def cancelled(handle: WorkflowHandle[Any, Any]) -> None:
    with pytest.raises(WorkflowFailureError) as ended:
        await handle.result()
    assert isinstance(ended.value.cause, CancelledError)
    assert (await handle.describe()).status is WorkflowExecutionStatus.CANCELED


async def test_a_stop_while_the_model_is_asked_closes_the_request_and_leaves_no_record(
    client: Client, queue: str
) -> None:
    """The message before keeps its own; nothing is asked or done any more."""
    store = MemoryStore()

    def reply(call: Call) -> Answer | Hang:
        return Hang() if call.json["state"] == "two" else judged(call)

    async with Server(reply) as server, worker(client, over_http(server), store, queue):
        handle = await guarding(client, queue, given("one", "two", "three", acts=True))
        await asked_times(server, 2)
        began = time.monotonic()
        await handle.cancel()
        await asyncio.wait_for(server.left.wait(), 5)
        assert time.monotonic() - began < 2
        await cancelled(handle)
        assert len(server.calls) == 2
    assert [each.state for each in store.decisions.values()] == ["one"]
    assert await activities(handle) == ["classifier.decide"]


@pytest.mark.slow
async def test_twenty_stops_close_twenty_requests_within_two_seconds(client: Client, queue: str) -> None:
    seconds: list[float] = []
    async with Server(lambda call: Hang()) as server, worker(client, over_http(server), MemoryStore(), queue):
        for number in range(20):
            handle = await guarding(client, queue, given("hello"))
            await asked_times(server, number + 1)
            server.left.clear()
            began = time.monotonic()
            await handle.cancel()
            await asyncio.wait_for(server.left.wait(), 5)
            seconds.append(time.monotonic() - began)
            await cancelled(handle)
    print(f"median {statistics.median(seconds):.2f} s, longest {max(seconds):.2f} s")
    assert max(seconds) < 2


async def test_a_stop_after_the_answer_lets_the_record_be_written_and_then_stops(
    client: Client, queue: str
) -> None:
    memory = MemoryStore()
    store = Interrupted(memory)
    store.open.clear()
    async with worker(client, guarded(scripted()), store, queue):
        handle = await guarding(client, queue, given("one", "two", acts=True))
        await store.tried.wait()
        await handle.cancel()
        await asyncio.sleep(1)  # longer than two heartbeats, so that the activity has heard of it
        assert not memory.decisions
        store.open.set()
        await cancelled(handle)
    assert [each.state for each in memory.decisions.values()] == ["one"]
    assert await activities(handle) == ["classifier.decide"]


async def test_a_stop_while_policy_thinks_lets_it_decide_and_is_recorded(client: Client, queue: str) -> None:
    memory = MemoryStore()
    thinking, may = asyncio.Event(), asyncio.Event()

    async def policy(answers: Letter, context: PolicyContext[Letter]) -> None:
        thinking.set()
        await may.wait()
        context.abort("after all")

    async with worker(client, guarded(scripted(), on_result=policy), memory, queue):
        handle = await guarding(client, queue, given("one"))
        await thinking.wait()
        await handle.cancel()
        await asyncio.sleep(1)
        may.set()
        await cancelled(handle)
    assert [each.outcome for each in memory.decisions.values()] == ["aborted"]


async def test_a_stop_that_the_answer_overtakes_still_stops_the_run(client: Client, queue: str) -> None:
    store = MemoryStore()
    held = Held()
    async with Server(held) as server, worker(client, over_http(server), store, queue):
        handle = await guarding(client, queue, given("hello", acts=True))
        await server.asked.wait()
        await handle.cancel()
        held.may.set()
        await cancelled(handle)
    assert "file_away" not in await activities(handle)


async def test_a_stop_during_a_write_that_fails_is_still_on_the_record(client: Client, queue: str) -> None:
    memory = MemoryStore()
    store = Interrupted(memory)
    store.open.clear()
    async with worker(client, guarded(scripted()), store, queue):
        handle = await guarding(client, queue, given("hello", acts=True))
        await store.tried.wait()
        await handle.cancel()
        await asyncio.sleep(1)
        store.away = True
        store.open.set()

        async def recording() -> bool:
            return "classifier.record" in await activities(handle)

        await until(recording)
        store.away = False
        await cancelled(handle)
    assert len(memory.decisions) == 1
    assert await activities(handle) == ["classifier.decide", "classifier.record"]


@pytest.mark.parametrize("stops", [1, 3])
@pytest.mark.parametrize("local", [False, True])
async def test_on_stop_finish_decides_to_the_end_and_then_stops(
    client: Client, queue: str, local: bool, stops: int
) -> None:
    store = MemoryStore()
    held = Held()
    async with Server(held) as server, worker(client, over_http(server), store, queue):
        wanted = given("one", "two", finish=True, acts=not local, local=local)
        handle = await guarding(client, queue, wanted)
        await server.asked.wait()
        for _ in range(stops):
            await handle.cancel()
            await asyncio.sleep(0.2)  # each a stop of its own for the workflow
        held.may.set()
        await cancelled(handle)
        assert len(server.calls) == 2
    assert [each.state for each in store.decisions.values()] == ["one", "two"]
    if not local:
        assert "file_away" not in await activities(handle)


@pytest.mark.slow
async def test_a_stop_of_a_local_decision_takes_effect_after_the_call(client: Client, queue: str) -> None:
    store = MemoryStore()
    held = Held()
    async with Server(held) as server, worker(client, over_http(server), store, queue):
        handle = await start(client, queue, GuardOneByOne.run, given(*"abcdefghij", local=True))
        await server.asked.wait()
        await handle.cancel()
        await asyncio.sleep(0.5)
        assert server.at_once == 1
        held.may.set()
        await cancelled(handle)
        assert len(store.decisions) == len(server.calls) >= 1


@pytest.mark.parametrize("finish", [False, True])
async def test_a_timeout_in_the_workflow_gives_the_verdict_up_and_the_run_goes_on(
    client: Client, queue: str, finish: bool
) -> None:
    """With "finish" the verdict is waited for, and the time is over all the same."""
    store = MemoryStore()
    may = asyncio.Event()

    async def reply(call: Call) -> Answer | Hang:
        if len(server.calls) > 1:
            return judged(call)
        if not finish:
            return Hang()
        await may.wait()
        return judged(call)

    async with Server(reply) as server, worker(client, over_http(server), store, queue):
        handle = await start(
            client, queue, GuardInTime.run, given("hello", finish=finish, attempt_seconds=0.5)
        )
        await server.asked.wait()
        if finish:
            await asyncio.sleep(1)
            may.set()
        assert await handle.result() == ["hello", "late 1"]
        assert len(server.calls) == 2
    assert len(store.decisions) == (2 if finish else 1)


async def test_a_shutdown_hands_over_and_leaves_one_decision_per_message(client: Client, queue: str) -> None:
    """CAN-O04: what the first worker recorded is not asked about again."""
    store = MemoryStore()

    def reply(call: Call) -> Answer | Hang:
        return Hang() if len(server.calls) == 2 else judged(call)

    async with Server(reply) as server:
        async with worker(client, over_http(server), store, queue):
            handle = await guarding(client, queue, given("one", "two"))
            await asked_times(server, 2)
        async with worker(client, over_http(server), store, queue):
            assert (await handle.result()).texts == ["one", "two"]
        assert [call.json["state"] for call in server.calls] == ["one", "two", "two"]
    assert [each.attempts for each in store.decisions.values()] == [1, 1]


@pytest.mark.slow
async def test_a_shutdown_of_local_decisions_hands_over_and_leaves_one_each(
    client: Client, queue: str
) -> None:
    store = MemoryStore()

    def reply(call: Call) -> Answer | Hang:
        return Hang() if len(server.calls) == 2 else judged(call)

    async with Server(reply) as server:
        async with worker(client, over_http(server), store, queue):
            handle = await guarding(client, queue, given("one", "two", local=True))
            await asked_times(server, 2)
        async with worker(client, over_http(server), store, queue):
            assert (await handle.result()).texts == ["one", "two"]
        assert [call.json["state"] for call in server.calls].count("one") == 1
    assert sorted(str(each.state) for each in store.decisions.values()) == ["one", "two"]


async def test_calls_in_flight_end_within_the_grace_period(client: Client, queue: str) -> None:
    store = MemoryStore()
    held = Held()
    grace = timedelta(seconds=20)
    async with Server(held) as server:
        running = worker(client, over_http(server), store, queue, graceful_shutdown_timeout=grace)
        async with running:
            handles = [await guarding(client, queue, given(f"message {n}")) for n in range(5)]
            await asked_times(server, 5)
            stopping = asyncio.create_task(running.shutdown())
            await asyncio.sleep(0.2)
            held.may.set()
            await stopping
        async with worker(client, over_http(server), store, queue):
            await asyncio.gather(*(handle.result() for handle in handles))
        assert len(server.calls) == 5
    assert len(store.decisions) == 5


async def test_a_terminated_run_closes_the_request(client: Client, queue: str) -> None:
    store = MemoryStore()
    async with Server([Hang()]) as server, worker(client, over_http(server), store, queue):
        handle = await guarding(client, queue, given("hello"))
        await server.asked.wait()
        await handle.terminate()
        await asyncio.wait_for(server.left.wait(), 5)
    assert not store.decisions


async def test_an_attempt_that_times_out_is_closed_and_cannot_overwrite(client: Client, queue: str) -> None:
    """CAN-O05, for two processors that share the request."""
    store = MemoryStore()

    def reply(call: Call) -> Answer | Hang:
        return Hang() if len(server.calls) == 1 else judged(call)

    async with Server(reply) as server:
        project = both(SystemOne("m", base_url=server.url))
        async with worker(client, project, store, queue):
            wanted = given("hello", processors=("letters", "tone"), attempt_seconds=1)
            assert (await (await guarding(client, queue, wanted)).result()).texts == ["hello"]
            await asyncio.wait_for(server.left.wait(), 5)
        assert len(server.calls) == 2
    assert len(store.decisions) == 2


async def test_after_a_stop_nobody_is_asked_any_more(client: Client, queue: str) -> None:
    """CAN-O03."""
    store = MemoryStore()
    third = asyncio.Event()

    def reply(call: Call) -> Answer | Hang:
        if len(server.calls) < 3:
            return judged(call)
        third.set()
        return Hang()

    async with Server(reply) as server, worker(client, over_http(server), store, queue):
        handle = await start(client, queue, GuardOneByOne.run, given(*(f"message {n}" for n in range(50))))
        await third.wait()
        await handle.cancel()
        await cancelled(handle)
        assert len(server.calls) == 3
    assert len(store.decisions) == 2
