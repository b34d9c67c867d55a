"""A run that was stopped waits for nobody: cancelled it says so itself, terminated `reconcile` says it."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncGenerator
from pathlib import Path

import pytest
from temporalio.client import Client, WorkflowExecutionStatus, WorkflowFailureError

from classifier.audit.history import History
from classifier.audit.postgres import PostgresStore
from classifier.temporal.reconcile import Reconciled, Reconciler
from commands.reconciling import CARRIERS
from tests.classifier.temporal.letters import Interrupted, until
from tests.workflows.test_triage import KEY, waiting
from tests.workflows.tickets import Handle, always, app, claim, event, outbox, says, start, triaging
from workflows.messages import DECIDED, TriageStatus

UNSURE = always(says("billing", 0.6))


@pytest.fixture
async def store(database_url: str) -> AsyncGenerator[PostgresStore]:
    store = PostgresStore(database_url, hash_key=KEY)
    yield store
    await store.aclose()


@pytest.fixture
async def history(database_url: str) -> AsyncGenerator[History]:
    async with History(database_url) as history:
        yield history


async def queue_of(history: History) -> list[uuid.UUID]:
    return [one.decision.decision_id for one in await history.open_reviews("acme")]


async def test_a_run_that_is_cancelled_leaves_the_queue(
    client: Client, queue: str, tmp_path: Path, store: PostgresStore, history: History
) -> None:
    async with triaging(client, app(UNSURE), store, queue, tmp_path):
        handle = await start(client, queue, event("1"))
        await waiting(handle)
        await claim(handle, "kim")
        assert len(await queue_of(history)) == 1
        await handle.cancel()
        with pytest.raises(WorkflowFailureError):
            await handle.result()
    assert await queue_of(history) == []
    settled = (await history.settled("acme", [handle.id]))[handle.id]
    assert (settled.waiting, settled.reviewed, settled.delivered) == (False, False, False)
    assert (await handle.describe()).status == WorkflowExecutionStatus.CANCELED
    assert outbox(tmp_path) == []


async def test_a_run_that_is_cancelled_while_its_decision_is_written_never_enters_the_queue(
    client: Client, queue: str, tmp_path: Path, store: PostgresStore, history: History
) -> None:
    decisions = Interrupted(store)
    decisions.open.clear()
    async with triaging(client, app(UNSURE), store, queue, tmp_path, decisions=decisions):
        handle = await start(client, queue, event("1"))
        await decisions.tried.wait()
        await handle.cancel()
        decisions.open.set()
        with pytest.raises(WorkflowFailureError):
            await handle.result()
    assert await queue_of(history) == []
    assert "stop" in [each.kind for each in await history.events("acme", handle.id)]


async def test_who_waits_for_a_decision_hears_that_the_run_was_stopped(
    client: Client, queue: str, tmp_path: Path, store: PostgresStore
) -> None:
    """The Update is answered, and the run closes when it is."""
    decisions = Interrupted(store)
    decisions.open.clear()
    async with triaging(client, app(UNSURE), store, queue, tmp_path, decisions=decisions):
        handle = await start(client, queue, event("1"))
        await decisions.tried.wait()
        asking = asyncio.create_task(decided(handle))
        await until(lambda: is_asked(handle))
        await handle.cancel()
        decisions.open.set()
        assert (await asking).state == "stopped"


async def decided(handle: Handle) -> TriageStatus:
    status: TriageStatus = await handle.execute_update(DECIDED, result_type=TriageStatus)  # pyright: ignore[reportUnknownMemberType] - an overload of the SDK is untyped
    return status


async def is_asked(handle: Handle) -> bool:
    events = (await handle.fetch_history()).events
    return any(each.HasField("workflow_execution_update_accepted_event_attributes") for each in events)


async def test_a_terminated_run_leaves_the_queue_when_it_is_reconciled(
    client: Client, queue: str, tmp_path: Path, store: PostgresStore, history: History
) -> None:
    async with triaging(client, app(UNSURE), store, queue, tmp_path):
        ended, running = [await start(client, queue, event(number)) for number in ("1", "2")]
        for handle in (ended, running):
            await waiting(handle)
        await ended.terminate()
        assert len(await queue_of(history)) == 2
        looked = await reconciled(Reconciler(client, store, CARRIERS, events=store, dry_run=True), ended)
        assert looked.stopped
        assert len(await queue_of(history)) == 2
        reconciler = Reconciler(client, store, CARRIERS, events=store)
        assert (await reconciled(reconciler, ended)).stopped
        assert not (await reconciled(reconciler, ended)).stopped
        (left,) = await history.open_reviews("acme")
        assert left.decision.coordinates.workflow_id == running.id
        (stop,) = await history.events("acme", ended.id)
        closed = (await ended.describe()).close_time
        assert (stop.kind, stop.at, stop.actor) == ("stop", closed, None)
        assert stop.body == {"state": "terminated", "run": ended.result_run_id}
        await running.terminate()


async def reconciled(reconciler: Reconciler, handle: Handle) -> Reconciled:
    run_id = handle.result_run_id
    assert run_id is not None
    return await reconciler.reconcile(handle.id, run_id)
