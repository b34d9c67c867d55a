"""What a terminated run had decided while the store was away is brought back from its history, once."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from datetime import timedelta
from typing import Any

import pytest
from temporalio.client import Client, WorkflowExecutionStatus, WorkflowHandle

from classifier.app import App
from classifier.audit.history import History
from classifier.audit.memory import MemoryStore
from classifier.audit.postgres import PostgresStore
from classifier.audit.query import DecisionQuery
from classifier.decision import Decision
from classifier.decision_json import decision_to_json
from classifier.errors import StoreUnavailable
from classifier.messages import Message, message_to_json
from classifier.processor import ClassifierProcessor
from classifier.temporal.codec import CodecKeys, encrypted
from classifier.temporal.reconcile import Carriers, Reconciled, Reconciler, left_in, pending_of
from tests.classifier.audit.examples import KEY
from tests.classifier.temporal.letters import Interrupted, activities, always, app, asked, start, until
from tests.classifier.temporal.project.worker import worker
from tests.classifier.temporal.project.workflows import Asked, Decide, Guarded, GuardMessages, Letter

CONTEXT = {"tenant_id": "acme", "plan": "free"}
Handle = WorkflowHandle[Any, Any]


@pytest.fixture
async def postgres(database_url: str) -> AsyncGenerator[PostgresStore]:
    store = PostgresStore(database_url, hash_key=KEY)
    yield store
    await store.aclose()


def letters() -> App:
    made = app(always())
    guard = ClassifierProcessor[Letter](id="guard", classifier="letters", on_result=lambda _, context: None)
    return App(classifiers=[each for _, each in made.classifiers], processors=[guard])


async def rows(database_url: str) -> Sequence[Decision]:
    async with History(database_url) as history:
        return (await history.page(DecisionQuery(tenant="acme"))).decisions


def given(*states: str) -> Asked:
    request = asked(*states)
    request.request.context.update(CONTEXT)
    return request


async def terminated(client: Client, queue: str, store: Any, workflow: Any, argument: Any) -> Handle:
    """A run that decided while the store was away, and was terminated before it came back."""
    away = Interrupted(store)
    away.away = True
    async with worker(client, letters(), away, queue):
        handle = await start(client, queue, workflow, argument)
        await until(lambda: is_recording(handle))
        await handle.terminate()
    return handle


async def is_recording(handle: Handle) -> bool:
    return "classifier.record" in await activities(handle)


async def reconciled(reconciler: Reconciler, handle: Handle) -> Reconciled:
    run_id = (await handle.describe()).run_id
    assert run_id
    return await reconciler.reconcile(handle.id, run_id)


async def test_the_decisions_of_a_terminated_run_are_stored_once_and_found_no_more(
    client: Client, queue: str, postgres: PostgresStore, database_url: str
) -> None:
    handle = await terminated(client, queue, postgres, Decide.run, given("it crashes", "it is fine"))
    assert await rows(database_url) == ()
    looking = await reconciled(Reconciler(client, postgres, dry_run=True), handle)
    assert await rows(database_url) == ()
    first = await reconciled(Reconciler(client, postgres), handle)
    found = await rows(database_url)
    assert {row.decision_id for row in found} == set(first.missing) == set(looking.missing)
    assert (first.found, len(first.missing), first.lost, first.problem) == (2, 2, 0, None)
    assert sorted(str(row.state) for row in found) == ["it crashes", "it is fine"]
    assert {row.coordinates.workflow_id for row in found} == {handle.id}
    assert [row.request_context for row in found] == [CONTEXT, CONTEXT]
    again = await reconciled(Reconciler(client, postgres), handle)
    assert (again.found, again.missing) == (2, ())
    assert await rows(database_url) == found


async def test_processors_and_local_activities_leave_theirs_too(
    client: Client, queue: str, postgres: PostgresStore, database_url: str
) -> None:
    messages = [message_to_json(Message("it crashes", id="m-1"))]
    for local in (False, True):
        guarded = Guarded(["guard"], messages, context=CONTEXT, local=local)
        handle = await terminated(client, queue, postgres, GuardMessages.run, guarded)
        await reconciled(Reconciler(client, postgres), handle)
    found = await rows(database_url)
    assert [(row.processor_id, row.state, row.ids.message) for row in found] == [
        ("guard", "it crashes", "m-1")
    ] * 2
    assert [row.request_context for row in found] == [CONTEXT] * 2


async def test_a_result_that_no_workflow_task_has_seen_is_enough(
    client: Client, queue: str, postgres: PostgresStore, database_url: str
) -> None:
    handle = await terminated(client, queue, postgres, Decide.run, given("it crashes"))
    events = list((await handle.fetch_history()).events)
    [seen] = [
        index
        for index, event in enumerate(events)
        if event.HasField("activity_task_completed_event_attributes")
    ]
    left = await left_in(events[: seen + 1], client.data_converter)
    whole = await left_in(events, client.data_converter)
    assert left.decisions == whole.decisions
    assert left.decisions[0].state == "it crashes"
    assert left.decisions[0].request_context == CONTEXT


async def test_what_was_recorded_in_the_end_is_not_brought_back_after_it_was_forgotten(
    client: Client, queue: str
) -> None:
    store = Interrupted(MemoryStore())
    store.away = True
    async with worker(client, letters(), store, queue):
        handle = await start(client, queue, Decide.run, given("it crashes"))
        await until(lambda: is_recording(handle))
        store.away = False
        await handle.result()
    empty = MemoryStore()
    one = await reconciled(Reconciler(client, empty), handle)
    assert (one.found, one.missing) == (0, ())
    assert empty.decisions == {}


async def test_an_encrypted_history_is_read_with_its_key_and_named_without_it(
    client: Client, queue: str, postgres: PostgresStore, database_url: str
) -> None:
    keys = CodecKeys({"k": b"k" * 32})

    def with_keys(keys: CodecKeys) -> Client:
        config = client.config()
        config["data_converter"] = encrypted(keys=keys)
        return Client(**config)

    handle = await terminated(with_keys(keys), queue, postgres, Decide.run, given("it crashes"))
    stranger = await reconciled(Reconciler(with_keys(CodecKeys({"x": b"x" * 32})), postgres), handle)
    unread = await reconciled(Reconciler(client, postgres), handle)
    assert (stranger.problem, unread.problem) == ("CODEC_KEY_MISSING", "UNREADABLE")
    assert await rows(database_url) == ()
    assert (await reconciled(Reconciler(with_keys(keys), postgres), handle)).problem is None
    assert [row.state for row in await rows(database_url)] == ["it crashes"]


async def test_a_failure_that_was_not_recorded_is_counted(client: Client, queue: str) -> None:
    store = Interrupted(MemoryStore())
    store.away = True
    request = Asked(given("it crashes").request, attempt_seconds=1, overall_seconds=1)
    async with worker(client, app(always(latency=20)), store, queue):
        handle = await start(client, queue, Decide.run, request)
        await until(lambda: is_recording(handle))
        await handle.terminate()
    one = await reconciled(Reconciler(client, MemoryStore()), handle)
    assert (one.found, one.lost) == (0, 1)


async def test_a_store_that_is_still_away_is_an_error_and_not_a_loss(
    client: Client, queue: str, postgres: PostgresStore
) -> None:
    handle = await terminated(client, queue, postgres, Decide.run, given("it crashes"))
    away = Interrupted(postgres)
    away.away = True
    with pytest.raises(StoreUnavailable):
        await reconciled(Reconciler(client, away), handle)


async def test_runs_that_ended_early_are_listed_by_when(client: Client, queue: str) -> None:
    store = MemoryStore()
    async with worker(client, letters(), store, queue):
        fine = await start(client, queue, Decide.run, given("it is fine"))
        await fine.result()
    handle = await terminated(client, queue, store, Decide.run, given("it crashes"))
    reconciler = Reconciler(client, store)

    async def listed(since: Any) -> set[str]:
        return {run.id async for run in reconciler.runs(since)}

    description = await handle.describe()
    assert description.status is WorkflowExecutionStatus.TERMINATED
    assert description.close_time
    await until(lambda: has(listed(description.close_time), handle.id))
    assert fine.id not in await listed(None)
    assert handle.id not in await listed(description.close_time + timedelta(seconds=1))
    assert await reconciler.count(description.close_time) >= 1


async def has(listing: Any, workflow_id: str) -> bool:
    return workflow_id in await listing


async def test_results_of_others_are_read_where_they_are_named(client: Client, queue: str) -> None:
    """An activity that hands whole decisions to its workflow, as model calls of agents do."""
    handle = await terminated(client, queue, MemoryStore(), Decide.run, given("it crashes"))
    events = list((await handle.fetch_history()).events)
    [decision] = (await left_in(events, client.data_converter)).decisions
    [payload] = await client.data_converter.encode([{"pending": [decision_to_json(decision)]}])
    for event in events:
        if event.HasField("activity_task_scheduled_event_attributes"):
            event.activity_task_scheduled_event_attributes.activity_type.name = "other"
        if event.HasField("activity_task_completed_event_attributes"):
            event.activity_task_completed_event_attributes.result.payloads[0].CopyFrom(payload)
    assert (await left_in(events, client.data_converter)).decisions == ()
    found = await left_in(events, client.data_converter, Carriers(results={"other": pending_of}))
    assert found.decisions == (decision,)
