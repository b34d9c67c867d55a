"""An event gets one run: at the same time, again, and when Temporal has forgotten the run."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from pathlib import Path

import pytest
from temporalio.client import Client
from temporalio.service import RPCError, RPCStatusCode

from classifier.audit.memory import MemoryStore
from classifier.audit.postgres import PostgresStore
from classifier.audit.records import SourceEvent
from embedded.stack import Stack
from tests.processes import state_folder
from tests.workflows.tickets import always, app, event, outbox, says, triaging
from workflows.events import Incoming
from workflows.intake import Intake

KEY = b"a key for tests, thirty-two bytes"


def incoming(queue: str, number: str, text: str = "my card") -> Incoming:
    """The queue makes the source unique to the test."""
    given = {**event(number, text), "source": queue}
    return Incoming(1, given, SourceEvent("acme", queue, number))


async def test_two_that_accept_the_same_events_at_the_same_time_start_one_run_each(
    client: Client, queue: str, tmp_path: Path, database_url: str
) -> None:
    stores = [PostgresStore(database_url, hash_key=KEY) for _ in range(2)]
    intakes = [Intake(client, store, task_queue=queue, playbook="tickets") for store in stores]
    batch = [incoming(queue, str(number)) for number in range(20)]
    first, second = await asyncio.gather(*(intake.accept(batch) for intake in intakes))
    for one, other in zip(first, second, strict=True):
        assert sorted((one.kind, other.kind)) == ["new", "repeat"]
        assert one.workflow_id == other.workflow_id
    async with triaging(client, app(always(says("billing"))), stores[0], queue, tmp_path):
        await asyncio.gather(*(client.get_workflow_handle(one.workflow_id).result() for one in first))
    for store in stores:
        await store.aclose()
    assert sorted(line["event"]["id"] for line in outbox(tmp_path)) == sorted(map(str, range(20)))


async def test_a_repeat_in_one_batch_is_told_and_the_first_line_counts(
    client: Client, queue: str, tmp_path: Path
) -> None:
    store = MemoryStore()
    intake = Intake(client, store, task_queue=queue, playbook="tickets")
    batch = [incoming(queue, "1", "the first"), incoming(queue, "2"), incoming(queue, "1", "the second")]
    started = await intake.accept(batch)
    assert [each.kind for each in started] == ["new", "new", "repeat"]
    async with triaging(client, app(always(says("billing"))), store, queue, tmp_path):
        await asyncio.gather(*(client.get_workflow_handle(one.workflow_id).result() for one in started))
    texts = {line["event"]["id"]: line["event"]["data"]["text"] for line in outbox(tmp_path)}
    assert texts == {"1": "the first", "2": "my card"}


async def test_the_same_id_of_another_source_or_tenant_is_another_event(client: Client, queue: str) -> None:
    store = MemoryStore()
    intake = Intake(client, store, task_queue=queue, playbook="tickets")
    events = [
        Incoming(1, event("1"), SourceEvent(tenant, source, "1"))
        for tenant in ("acme", "other")
        for source in (queue, f"{queue}-2")
    ]
    started = await intake.accept(events)
    assert [each.kind for each in started] == ["new"] * 4
    for each in started:
        await client.get_workflow_handle(each.workflow_id).terminate()


async def is_known(client: Client, workflow_id: str) -> bool:
    try:
        await client.get_workflow_handle(workflow_id).describe()
    except RPCError as error:
        if error.status is not RPCStatusCode.NOT_FOUND:
            raise
        return False
    return True


@pytest.fixture
async def forgetful() -> AsyncGenerator[Client]:
    """A Temporal that remembers nothing, as after its retention; to delete a run takes it half a minute."""
    with state_folder() as home:
        async with Stack(home, database=False) as stack:
            assert stack.addresses.temporal_address
            yield await Client.connect(stack.addresses.temporal_address)


async def test_an_event_stays_a_repeat_when_temporal_has_forgotten_its_run(
    client: Client, forgetful: Client, queue: str, tmp_path: Path, database_url: str
) -> None:
    """Also where the one who started it died before it could remember; the run remembers by itself."""
    store = PostgresStore(database_url, hash_key=KEY)
    dying = Intake(client, MemoryStore(), task_queue=queue, playbook="tickets")
    (started,) = await dying.accept([incoming(queue, "1")])
    async with triaging(client, app(always(says("billing"))), store, queue, tmp_path):
        await client.get_workflow_handle(started.workflow_id).result()
    intake = Intake(forgetful, store, task_queue=queue, playbook="tickets")
    (again,) = await intake.accept([incoming(queue, "1")])
    await store.aclose()
    assert (again.kind, again.workflow_id) == ("repeat", started.workflow_id)
    assert not await is_known(forgetful, started.workflow_id)
