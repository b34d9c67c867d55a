"""Housekeeping as a workflow on a real Temporal, over a real history, and the schedule that starts it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from temporalio.client import Client, ScheduleActionExecutionStartWorkflow, WorkflowFailureError
from temporalio.exceptions import ApplicationError
from temporalio.worker import Worker

from activities.chores import HOUSEKEEPING
from activities.housekeeping import HousekeepingActivities, Seal
from classifier.audit.history import History
from classifier.audit.partitions import ensure_partitions
from classifier.audit.postgres import PostgresStore
from classifier.audit.sealing import seal
from classifier.audit.signing import PublicKeys, SealKey, new_key
from classifier.audit.upkeep import Upkeep
from classifier.audit.verifying import verify
from classifier.temporal.plugin import with_passthrough
from commands.housekeeping import ensure_schedule
from tests.classifier.audit.examples import KEY, NOW, decision
from tests.classifier.audit.test_erasure import TEXT, about
from tests.classifier.audit.whole import hits
from worker import WORKFLOW_MODULES
from workflows.housekeeping import HousekeepingWorkflow

LONG_AGO = datetime(2024, 1, 15, tzinfo=UTC)
UPKEEP = Upkeep(retention=timedelta(days=400), content_ages={"acme": timedelta(days=30)})


@pytest.fixture
async def store(database_url: str) -> AsyncGenerator[PostgresStore]:
    store = PostgresStore(database_url, hash_key=KEY)
    yield store
    await store.aclose()


@asynccontextmanager
async def working(client: Client, queue: str, activities: HousekeepingActivities) -> AsyncGenerator[None]:
    async with Worker(
        client,
        task_queue=queue,
        workflows=[HousekeepingWorkflow],
        activities=[activities.do],
        workflow_runner=with_passthrough(WORKFLOW_MODULES)(None),
    ):
        yield


def keys() -> Seal:
    key = SealKey.of(new_key())
    return Seal(key, PublicKeys.of([key.public]), KEY)


async def done(client: Client, queue: str) -> dict[str, Any]:
    chores: list[dict[str, Any]] = await client.execute_workflow(
        HOUSEKEEPING, id=queue, task_queue=queue, result_type=list
    )
    return {chore["name"]: chore["facts"] for chore in chores}


async def test_partitions_are_made_what_is_there_is_sealed_and_what_is_old_goes(
    client: Client, queue: str, store: PostgresStore, database_url: str
) -> None:
    await store.record([decision("old", decided_at=LONG_AGO), about("month", decided_at=NOW)])
    await ensure_partitions(database_url)
    sealing = keys()
    in_two_months = HousekeepingActivities(
        database_url, UPKEEP, sealing, clock=lambda: NOW + timedelta(days=62)
    )
    async with working(client, queue, in_two_months):
        facts = await done(client, queue)
    assert len(facts["partitions"]["created"]) == 2
    assert facts["seal"] == {"rows": 2, "problems": []}
    assert facts["contents"] == {"acme": 2}
    assert facts["months"] == {"months": ["2024_01"], "held": {}, "stubs": 1}
    assert await hits(database_url, TEXT) == {}
    assert [result.breaches async for result in verify(database_url, sealing.keys, hash_key=KEY)] == [()]
    async with History(database_url) as history:
        assert {event.actor for event in await history.events("acme", "")} == {"housekeeping"}


async def test_with_nothing_configured_only_partitions_are_made(
    client: Client, queue: str, store: PostgresStore, database_url: str
) -> None:
    await store.record([about("old", decided_at=LONG_AGO)])
    async with working(client, queue, HousekeepingActivities(database_url, Upkeep())):
        facts = await done(client, queue)
    assert facts["partitions"]["moved"] == 1
    assert (facts["seal"], facts["contents"], facts["months"]) == ({}, {}, {})
    assert await hits(database_url, TEXT) == {"decision_contents": 1}


async def test_a_chore_that_cannot_be_done_is_named_and_holds_up_no_other(
    client: Client, queue: str, store: PostgresStore, database_url: str
) -> None:
    await store.record([about("a")])
    earlier, sealing = keys(), keys()
    await seal(database_url, earlier.key, keys=earlier.keys, hash_key=KEY)
    await store.record([about("old", decided_at=LONG_AGO)])
    async with working(client, queue, HousekeepingActivities(database_url, UPKEEP, sealing)):
        with pytest.raises(WorkflowFailureError) as failure:
            await done(client, queue)
    cause = failure.value.cause
    assert isinstance(cause, ApplicationError)
    assert cause.type == "HOUSEKEEPING"
    assert "months: " in cause.message
    assert "partitions: " not in cause.message
    assert await hits(database_url, TEXT) == {"decision_contents": 1}, "the old month's contents were emptied"


async def test_the_schedule_runs_at_once_and_is_made_only_once(
    client: Client, queue: str, database_url: str
) -> None:
    await ensure_schedule(client, queue)
    schedule = client.get_schedule_handle(queue)
    await schedule.pause(note="by an operator")
    async with working(client, queue, HousekeepingActivities(database_url, Upkeep())):
        async with asyncio.timeout(60):
            while not (actions := (await schedule.describe()).info.recent_actions):
                await asyncio.sleep(0.05)  # Temporal tells of its schedules only when asked
        action = actions[0].action
        assert isinstance(action, ScheduleActionExecutionStartWorkflow)
        await client.get_workflow_handle(action.workflow_id).result()
    await ensure_schedule(client, queue)
    described = await schedule.describe()
    assert described.schedule.state.paused, "it stays as the operator left it"
    assert len(described.info.recent_actions) == 1
    await schedule.delete()
