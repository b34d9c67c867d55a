"""`classifier worker` as a process: stopped once and twice, encrypted, measured, versioned, and capped."""

from __future__ import annotations

import asyncio
import base64
import os
import signal
import uuid
from collections.abc import AsyncGenerator
from datetime import timedelta
from typing import Any

import httpx
import pytest
from temporalio import workflow
from temporalio.client import WorkflowHandle
from temporalio.common import RetryPolicy
from temporalio.worker import UnsandboxedWorkflowRunner, Worker

from classifier.temporal.leaving import WORKER_LEFT
from classifier.temporal.messages import DECIDE, DecideRequest, DecideResult
from tests.classifier.temporal.test_metrics import free_port
from tests.processes import run, started
from tests.servers import Call, Hang, Reply, Server
from tests.test_durability import CountingModel, House, events, lines, running_house

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
async def house() -> AsyncGenerator[House]:
    async with running_house() as running:
        yield running


async def last_failure(handle: WorkflowHandle[Any, Any]) -> str:
    """The type of the last failure of the activity that a run waits for."""
    (pending,) = (await handle.describe()).raw_description.pending_activities
    return pending.last_failure.application_failure_info.type


async def test_a_worker_that_is_told_twice_gives_back_what_is_in_flight(house: House) -> None:
    queue = "twice"
    model = CountingModel()
    hanging = True

    async def reply(call: Call) -> Reply:
        return Hang() if hanging else await model(call)

    async with Server(reply) as server:
        environ = house.environ(server, queue)
        async with house.worker(environ) as first:
            (run,) = await house.accept(events(queue, 1), queue)
            await server.asked.wait()
            os.kill(first.pid, signal.SIGTERM)
            await first.said("being told again cuts them off")
            assert server.at_once == 1
            os.kill(first.pid, signal.SIGINT)
            stopped = await first.finished()
        assert (stopped.code, stopped.output) == (0, "")
        assert "Traceback" not in stopped.errors
        handle = house.client.get_workflow_handle(run.workflow_id)
        assert await last_failure(handle) == WORKER_LEFT
        hanging = False
        async with house.worker(environ):
            await house.results([run])
    (row,) = await house.rows(queue)
    assert (row.failure, row.attempts, model.requests) == (None, 1, 1)


async def test_a_worker_that_is_told_while_it_starts_does_not_start(house: House) -> None:
    called = asyncio.Event()

    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        called.set()
        await reader.read()
        writer.close()

    async with await asyncio.start_server(silent, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        environ = house.environ(queue="starting") | {"TEMPORAL_ADDRESS": f"127.0.0.1:{port}"}
        async with started("worker", environ=environ) as worker:
            await asyncio.wait_for(called.wait(), 60)
            stopped = await worker.terminated()
    assert (stopped.code, stopped.output, stopped.errors) == (0, "", "")


async def test_with_keys_temporal_holds_no_text_of_an_event(house: House) -> None:
    queue = "sealed"
    keys = f"k1:{base64.b64encode(b'k' * 32).decode()}"
    async with Server(CountingModel()) as server:
        environ = house.environ(server, queue) | {"CLASSIFIER_CODEC_KEYS": keys}
        async with house.worker(environ) as worker:
            given = b"\n".join(lines("4111-1111", 2))
            triaged = await run("triage", "-", "--json", "--tenant", queue, environ=environ, given=given)
            assert triaged.code == 0, triaged.errors
            stopped = await worker.terminated()
    assert triaged.json["decisions"] == 2
    rows = await house.rows(queue)
    assert sorted(str(row.state) for row in rows) == ["4111-1111 0", "4111-1111 1"]
    histories = b""
    for row in rows:
        handle = house.client.get_workflow_handle(row.coordinates.workflow_id)
        histories += (await handle.describe()).raw_description.SerializeToString()
        for event in (await handle.fetch_history()).events:
            histories += event.SerializeToString()
    assert b"classifier.decide" in histories
    assert b"4111-1111" not in histories
    assert "4111-1111" not in stopped.errors


async def test_metrics_are_scraped_from_the_worker_and_other_commands_leave_its_port_alone(
    house: House,
) -> None:
    address = f"127.0.0.1:{free_port()}"
    async with Server(CountingModel()) as server:
        environ = house.environ(server, "measured") | {"CLASSIFIER_METRICS_PROMETHEUS": address}
        async with house.worker(environ):
            triaged = await run("triage", "-", "--json", environ=environ, given=lines("measured", 1)[0])
            assert triaged.code == 0, triaged.errors
            async with httpx.AsyncClient() as web:
                scraped = (await web.get(f"http://{address}/metrics")).text
            second = await run("worker", environ=environ)
    assert 'activity_type="classifier.decide"' in scraped
    assert second.code == 1
    assert f"metrics, Prometheus at {address}" in second.sentence


async def test_a_versioned_worker_makes_its_version_current_and_is_given_work(house: House) -> None:
    queue = "versioned"
    async with Server(CountingModel()) as server:
        environ = house.environ(server, queue) | {
            "CLASSIFIER_DEPLOYMENT": f"triage-{uuid.uuid4()}",
            "CLASSIFIER_BUILD_ID": "7",
        }
        async with house.worker(environ):
            runs = await house.accept(events(queue, 1), queue)
            await house.results(runs)
    info = await house.client.get_workflow_handle(runs[0].workflow_id).describe()
    versioning = info.raw_description.workflow_execution_info.versioning_info
    assert versioning.deployment_version.build_id == "7"
    assert len(await house.rows(queue)) == 1


RATE, CALLS = 10, 30


@workflow.defn
class Burst:
    """Asks about many texts at once, on a queue of the model's own."""

    @workflow.run
    async def run(self, queue: str) -> int:
        """How many answers there were."""
        asking = [
            workflow.execute_activity(
                DECIDE,
                DecideRequest(
                    [f"text {number}"], classifier="shelves", decided_at=workflow.now().isoformat()
                ),
                result_type=DecideResult,
                task_queue=queue,
                start_to_close_timeout=timedelta(seconds=10),
                heartbeat_timeout=timedelta(seconds=5),
                retry_policy=RetryPolicy(maximum_attempts=1),
            )
            for number in range(CALLS)
        ]
        results = await asyncio.gather(*asking)
        return sum(result.decisions[0].answers is not None for result in results)


async def test_a_burst_on_a_queue_with_a_rate_waits_and_fails_nowhere(house: House) -> None:
    """Two workers share the rate of their queue; Temporal keeps what is over."""
    queue = "capped"
    options = ("--task-queue", queue, "--activities-only", "--rate", str(RATE))
    model = CountingModel()
    async with Server(model) as server:
        environ = house.environ(server, "capped-home")
        async with (
            started("worker", *options, environ=environ) as one,
            started("worker", *options, environ=environ) as other,
            Worker(
                house.client,
                task_queue="bursts",
                workflows=[Burst],
                workflow_runner=UnsandboxedWorkflowRunner(),
            ),
        ):
            await asyncio.gather(one.said("worker polls"), other.said("worker polls"))
            handle = await house.client.start_workflow(Burst.run, queue, id="burst", task_queue="bursts")
            assert await handle.result() == CALLS
    begun = [
        event.event_time.ToDatetime()
        for event in (await handle.fetch_history()).events
        if event.HasField("activity_task_started_event_attributes")
    ]
    assert model.requests == len(begun) == CALLS
    assert max(begun) - min(begun) > timedelta(seconds=(CALLS - 2 * RATE) / RATE), (
        "a second's burst is let out"
    )
