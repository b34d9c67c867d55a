"""Stops, shutdowns and terminations, row by row of the table of the design."""

from __future__ import annotations

import asyncio
import time
from datetime import timedelta

import pytest
from temporalio.client import Client, WorkflowExecutionStatus, WorkflowFailureError
from temporalio.exceptions import CancelledError

from classifier.audit.memory import MemoryStore
from tests.classifier.temporal.letters import (
    Interrupted,
    activities,
    always,
    answer,
    app,
    asked,
    over_http,
    start,
    until,
)
from tests.classifier.temporal.project.worker import worker
from tests.classifier.temporal.project.workflows import Decide, SortLetter, SortMany
from tests.servers import Answer, Call, Hang, Server


async def test_a_stop_while_the_model_is_asked_closes_the_request_within_two_seconds(
    client: Client, queue: str
) -> None:
    store = MemoryStore()
    async with Server([Hang()]) as server, worker(client, over_http(server), store, queue):
        handle = await start(client, queue, SortLetter.run, "it crashes")
        await server.asked.wait()
        began = time.monotonic()
        await handle.cancel()
        await asyncio.wait_for(server.left.wait(), 5)
        assert time.monotonic() - began < 2
        with pytest.raises(WorkflowFailureError) as ended:
            await handle.result()
        assert isinstance(ended.value.cause, CancelledError)
        assert (await handle.describe()).status is WorkflowExecutionStatus.CANCELED
        assert len(server.calls) == 1
    assert store.decisions == {}
    assert await activities(handle) == ["classifier.decide"]


async def test_a_stop_while_the_answer_is_written_lets_the_write_end_and_then_stops(
    client: Client, queue: str
) -> None:
    memory = MemoryStore()
    store = Interrupted(memory)
    store.open.clear()
    async with worker(client, app(always()), store, queue):
        handle = await start(client, queue, SortLetter.run, "it crashes")
        await store.tried.wait()
        await handle.cancel()
        await asyncio.sleep(1)  # longer than two heartbeats, so that the activity has heard of it
        assert memory.decisions == {}
        store.open.set()
        with pytest.raises(WorkflowFailureError) as ended:
            await handle.result()
    assert isinstance(ended.value.cause, CancelledError)
    assert len(memory.decisions) == 1
    assert await activities(handle) == ["classifier.decide"]


async def test_a_stop_that_the_answer_overtakes_still_stops_the_run(client: Client, queue: str) -> None:
    """The activity ends before a heartbeat tells it of the stop."""
    store = MemoryStore()
    release = asyncio.Event()

    async def reply(call: Call) -> Answer:
        await release.wait()
        return answer()

    async with Server(reply) as server, worker(client, over_http(server), store, queue):
        handle = await start(client, queue, SortLetter.run, "it crashes")
        await server.asked.wait()
        await handle.cancel()
        release.set()
        with pytest.raises(WorkflowFailureError) as ended:
            await handle.result()
    assert isinstance(ended.value.cause, CancelledError)
    assert "file_away" not in await activities(handle)


async def test_a_stop_during_a_write_that_fails_is_still_on_the_record(client: Client, queue: str) -> None:
    memory = MemoryStore()
    store = Interrupted(memory)
    store.open.clear()
    async with worker(client, app(always()), store, queue):
        handle = await start(client, queue, SortLetter.run, "it crashes")
        await store.tried.wait()
        await handle.cancel()
        await asyncio.sleep(1)
        store.away = True
        store.open.set()

        async def recording() -> bool:
            return "classifier.record" in await activities(handle)

        await until(recording)
        store.away = False
        with pytest.raises(WorkflowFailureError) as ended:
            await handle.result()
    assert isinstance(ended.value.cause, CancelledError)
    assert len(memory.decisions) == 1
    assert await activities(handle) == ["classifier.decide", "classifier.record"]


async def test_a_shutdown_in_the_middle_hands_over_and_leaves_one_decision(
    client: Client, queue: str
) -> None:
    store = MemoryStore()
    async with Server([Hang(), answer()]) as server:
        async with worker(client, over_http(server), store, queue):
            handle = await start(client, queue, SortLetter.run, "it crashes")
            await server.asked.wait()
        async with worker(client, over_http(server), store, queue):
            filed, _ = await handle.result()
        assert len(server.calls) == 2
    (decision,) = store.decisions.values()
    assert filed == "filed in bug"
    assert (decision.outcome, decision.failure, decision.attempts) == ("allowed", None, 1)


async def test_calls_in_flight_end_within_the_grace_period(client: Client, queue: str) -> None:
    store = MemoryStore()
    release = asyncio.Event()

    async def reply(call: Call) -> Answer:
        await release.wait()
        return answer()

    grace = timedelta(seconds=20)
    async with Server(reply) as server:
        running = worker(client, over_http(server), store, queue, graceful_shutdown_timeout=grace)
        async with running:
            handles = [await start(client, queue, SortLetter.run, f"letter {n}") for n in range(10)]
            while len(server.calls) < 10:
                await asyncio.sleep(0.02)
            stopping = asyncio.create_task(running.shutdown())
            await asyncio.sleep(0.2)
            release.set()
            await stopping
        async with worker(client, over_http(server), store, queue):
            await asyncio.gather(*(handle.result() for handle in handles))
        assert len(server.calls) == 10
    assert len(store.decisions) == 10


async def test_a_terminated_run_closes_the_request(client: Client, queue: str) -> None:
    store = MemoryStore()
    async with Server([Hang()]) as server, worker(client, over_http(server), store, queue):
        handle = await start(client, queue, Decide.run, asked("it crashes"))
        await server.asked.wait()
        await handle.terminate()
        await asyncio.wait_for(server.left.wait(), 5)
    assert store.decisions == {}


async def test_after_a_stop_nobody_is_asked_any_more(client: Client, queue: str) -> None:
    store = MemoryStore()
    third = asyncio.Event()

    def reply(call: Call) -> Answer | Hang:
        if len(server.calls) < 3:
            return answer()
        third.set()
        return Hang()

    async with Server(reply) as server, worker(client, over_http(server), store, queue):
        handle = await start(client, queue, SortMany.run, 100)
        await third.wait()
        await handle.cancel()
        with pytest.raises(WorkflowFailureError):
            await handle.result()
        assert len(server.calls) == 3
    assert len(store.decisions) == 2


async def test_a_stop_of_many_states_closes_all_requests(client: Client, queue: str) -> None:
    store = MemoryStore()
    async with Server(lambda call: Hang()) as server, worker(client, over_http(server), store, queue):
        handle = await start(client, queue, Decide.run, asked(*(f"letter {n}" for n in range(40))))
        while server.at_once < 32:
            await asyncio.sleep(0.02)
        await handle.cancel()
        with pytest.raises(WorkflowFailureError):
            await handle.result()
        while server.at_once:
            await asyncio.sleep(0.02)
        assert len(server.calls) == 32
    assert store.decisions == {}
