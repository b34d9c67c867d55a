"""What `classifier triage` says of runs that do not move."""

from __future__ import annotations

import asyncio
import json

import pytest
from temporalio.client import Client

from classifier.audit.history import History
from classifier.audit.postgres import PostgresStore
from commands.triage import TriageRun
from tests.workflows.test_subjects import NoProgress
from tests.workflows.tickets import always, app, says
from workflows.events import by_type
from workflows.intake import Intake
from workflows.messages import triage_workflow_id


def event(source: str) -> bytes:
    body = {"specversion": "1.0", "id": "1", "source": source, "type": "test", "data": {"text": "hello"}}
    return json.dumps(body).encode()


async def test_events_that_nobody_works_on_are_said_to_be_under_way_and_are_waited_for(
    client: Client, queue: str, database_url: str
) -> None:
    told: asyncio.Queue[str] = asyncio.Queue()
    store = PostgresStore(database_url, hash_key=b"only for tests")
    async with History(database_url) as history:
        run = TriageRun(
            intakes={"tickets": Intake(client, store, task_queue=queue, playbook="tickets")},
            history=history,
            client=client,
            tenant="acme",
            choose=by_type(app(always(says("billing"))).playbooks),
            progress=NoProgress(),
            tell=told.put_nowait,
            patience=0.3,
        )
        running = asyncio.create_task(run.run([event(queue)]))
        async with asyncio.timeout(30):
            line = await told.get()
        assert not running.done()
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
    await store.aclose()
    run_id = triage_workflow_id("acme", queue, "1")
    assert line.startswith("1 events are under way and nothing has moved for")
    assert f"the first is {run_id} on task queue {queue!r};" in line
