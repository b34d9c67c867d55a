"""`classifier history reconcile` as a process, and what model calls of agents leave in histories."""

from __future__ import annotations

import asyncio
import uuid
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, cast

import pytest
from temporalio.api.history.v1 import HistoryEvent
from temporalio.client import Client, WorkflowHandle
from temporalio.converter import DataConverter

from activities.chat_messages import CHAT, PUBLISH, ChatResult
from activities.chat_publish import Publisher
from classifier.audit.history import History
from classifier.audit.memory import MemoryStore
from classifier.audit.query import DecisionQuery
from classifier.decision_json import decision_to_json
from classifier.temporal.reconcile import left_in
from commands.reconciling import CARRIERS
from tests.classifier.audit.examples import KEY, decision
from tests.classifier.temporal.letters import Interrupted, activities, always, app, asked, start, until
from tests.classifier.temporal.project.worker import worker
from tests.classifier.temporal.project.workflows import Decide
from tests.processes import environment, run


@pytest.mark.slow
async def test_a_terminated_run_is_recovered_once_by_the_command(
    temporal_address: str, database_url: str, tmp_path: Path
) -> None:
    client, queue = await Client.connect(temporal_address), f"queue-{uuid.uuid4()}"
    store = Interrupted(MemoryStore())
    store.away = True
    async with worker(client, app(always()), store, queue):
        handle = await start(client, queue, Decide.run, asked("it crashes"))
        await until(lambda: is_recording(handle))
        await handle.terminate()
    ended = (await handle.describe()).close_time
    assert ended is not None
    query = f"WorkflowId = '{handle.id}' AND ExecutionStatus = 'Terminated'"
    await until(lambda: is_listed(client, query))
    environ = environment(
        tmp_path,
        TEMPORAL_ADDRESS=temporal_address,
        DATABASE_URL=database_url.replace("+asyncpg", ""),
        CLASSIFIER_HASH_KEY=KEY.decode(),
    )
    base = ("history", "reconcile", "--since", ended.isoformat())
    later = (datetime.now(UTC) + timedelta(hours=1)).isoformat()
    looked, nothing = await asyncio.gather(
        run(*base, "--dry-run", "--json", environ=environ),
        run("history", "reconcile", "--since", later, environ=environ),
    )
    assert (looked.code, looked.json["recovered"]) == (0, 1)
    assert (nothing.code, nothing.output) == (
        0,
        "0 runs that ended early held 0 decisions; 0 were missing and are stored now\n",
    )
    done = await run(*base, environ=environ)
    again = await run(*base, "--json", environ=environ)
    assert done.code == 0
    assert "1 runs that ended early held 1 decisions; 1 were missing and are stored now" in done.output
    assert handle.id in done.output
    assert (again.json["found"], again.json["recovered"], again.json["decisions"]) == (1, 0, [])
    async with History(database_url) as history:
        [row] = (await history.page(DecisionQuery(tenant="default"))).decisions
    assert looked.json["decisions"] == [
        {
            "decision_id": str(row.decision_id),
            "workflow_id": handle.id,
            "run_id": row.coordinates.run_id,
        }
    ]


async def is_recording(handle: WorkflowHandle[Any, Any]) -> bool:
    return "classifier.record" in await activities(handle)


async def is_listed(client: Client, query: str) -> bool:
    return (await client.count_workflows(query)).count == 1


class Thread:
    """A thread that keeps what it is signalled."""

    def __init__(self) -> None:
        self.batches: list[Any] = []

    async def signal(self, name: str, given: Any) -> None:
        assert name == PUBLISH
        self.batches.append(given)


async def test_what_a_model_call_published_or_gave_back_is_found() -> None:
    converter = DataConverter.default
    published, given_back = decision("published"), decision("given back")
    thread = Thread()
    publisher = Publisher(
        cast("Any", thread), converter.payload_converter, "call", lambda: [decision_to_json(published)]
    )
    publisher.add({"type": "text", "text": "hello"})
    await publisher.flush()
    events = [await signalled(converter, batch) for batch in thread.batches]
    result = ChatResult("finished", pending=[decision_to_json(given_back)])
    events += await called(converter, result)
    left = await left_in(events, converter, CARRIERS)
    assert left.decisions == (published, given_back)


async def signalled(converter: DataConverter, batch: Any) -> HistoryEvent:
    event = HistoryEvent(event_id=1)
    signal = event.workflow_execution_signaled_event_attributes
    signal.signal_name = PUBLISH
    signal.input.payloads.extend(await converter.encode([batch]))
    return event


async def called(converter: DataConverter, result: Any) -> list[HistoryEvent]:
    scheduled, completed = HistoryEvent(event_id=2), HistoryEvent(event_id=3)
    scheduled.activity_task_scheduled_event_attributes.activity_type.name = CHAT
    completed.activity_task_completed_event_attributes.scheduled_event_id = 2
    completed.activity_task_completed_event_attributes.result.payloads.extend(
        await converter.encode([result])
    )
    return [scheduled, completed]
