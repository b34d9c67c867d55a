"""A worker that leaves at once gives back what it was handed; another one finishes it."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest
from temporalio.client import Client, WorkflowFailureError
from temporalio.exceptions import CancelledError

from classifier.audit.memory import MemoryStore
from classifier.temporal.leaving import WORKER_LEFT, Leaving
from commands.serve import _Stop
from tests.classifier.temporal.letters import always, answer, app, over_http, start, until
from tests.classifier.temporal.project.worker import worker
from tests.classifier.temporal.project.workflows import SortLetter
from tests.servers import Hang, Server


async def test_what_runs_is_cut_off_and_asked_again_elsewhere_as_the_first_attempt(
    client: Client, queue: str
) -> None:
    store, leaving = MemoryStore(), Leaving()
    async with Server([Hang(), answer()]) as server:
        async with worker(client, over_http(server), store, queue, interceptors=[leaving]):
            handle = await start(client, queue, SortLetter.run, "it crashes")
            await server.asked.wait()
            leaving.leave()
            await server.left.wait()
        assert store.decisions == {}
        async with worker(client, over_http(server), store, queue):
            await handle.result()
    (decision,) = store.decisions.values()
    assert (decision.failure, decision.attempts) == (None, 1)


async def test_what_comes_after_it_has_left_is_given_back_unasked(client: Client, queue: str) -> None:
    store, leaving, model = MemoryStore(), Leaving(), always()
    leaving.leave()
    async with worker(client, app(model), store, queue, interceptors=[leaving]):
        handle = await start(client, queue, SortLetter.run, "it crashes")

        async def given_back() -> bool:
            pending = (await handle.describe()).raw_description.pending_activities
            return [each.last_failure.application_failure_info.type for each in pending] == [WORKER_LEFT]

        await until(given_back)
    assert (model.requests, store.decisions) == ([], {})
    async with worker(client, app(model), store, queue):
        await handle.result()
    assert len(store.decisions) == 1


async def test_a_stop_of_the_run_stays_a_stop(client: Client, queue: str) -> None:
    leaving = Leaving()
    async with (
        Server([Hang()]) as server,
        worker(client, over_http(server), MemoryStore(), queue, interceptors=[leaving]),
    ):
        handle = await start(client, queue, SortLetter.run, "it crashes")
        await server.asked.wait()
        await handle.cancel()
        with pytest.raises(WorkflowFailureError) as ended:
            await handle.result()
    assert isinstance(ended.value.cause, CancelledError)


async def test_a_command_that_is_told_once_leaves_after_the_grace_by_itself() -> None:
    async def watching() -> None:
        await asyncio.get_running_loop().create_future()

    stop = _Stop(grace=timedelta(seconds=0.05))
    asyncio.get_running_loop().call_soon(stop.signalled)
    await stop.asked_for(watching())
    assert not stop.leaving._left
    async with asyncio.timeout(5):
        while not stop.leaving._left:
            await asyncio.sleep(0.01)


async def test_a_worker_that_does_not_end_is_left_behind_and_the_rest_is_closed() -> None:
    closed = False

    async def command() -> None:
        nonlocal closed
        stop = _Stop(grace=timedelta(seconds=0.05), last=timedelta(seconds=0.05))
        stop.signalled()
        try:
            await asyncio.get_running_loop().create_future()
        except asyncio.CancelledError:  # the signal, while it started
            try:
                await asyncio.get_running_loop().create_future()
            finally:
                closed = stop.leaving._left

    task = asyncio.create_task(command())
    await asyncio.wait({task}, timeout=10)
    assert task.cancelled()
    assert closed
