"""Metrics: real activities count decisions, and a scrape or a collector sees them."""

from __future__ import annotations

import asyncio
import gc
import socket
import uuid
from collections.abc import Generator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import httpx
import pytest
from temporalio import activity, workflow
from temporalio.client import Client
from temporalio.common import RetryPolicy
from temporalio.worker import UnsandboxedWorkflowRunner, Worker

from classifier.decision import Coordinates, Decision, DecisionFailure
from classifier.errors import ConfigurationError
from classifier.temporal.metrics import count_decisions
from classifier.temporal.telemetry import Metrics, runtime

ALLOWED = Decision(
    decision_id=uuid.uuid4(),
    decided_at=datetime(2026, 1, 2, tzinfo=UTC),
    coordinates=Coordinates("tenant-4111"),
    ordinal=0,
    processor_id="safety",
    classifier_id="moderation",
    phase="input",
    outcome="allowed",
    state="text 4111",
    answers=None,
    question_set="",
    duration_ms=30.0,
    attempts=1,
)
LET_THROUGH = replace(
    ALLOWED, failure=DecisionFailure("MODEL_UNAVAILABLE", ""), attempts=3, duration_ms=7000.0
)
STOPPED = replace(LET_THROUGH, outcome="aborted")
LOST = replace(STOPPED, attempts=0, duration_ms=0.0)
STEP = replace(LET_THROUGH, processor_id=None, playbook_id="tickets", phase="step")


@activity.defn
async def counting(kinds: list[str]) -> None:
    known = {
        "allowed": ALLOWED,
        "let through": LET_THROUGH,
        "stopped": STOPPED,
        "lost": LOST,
        "step": STEP,
    }
    count_decisions([known[kind] for kind in kinds], activity.metric_meter())


@workflow.defn
class Counting:
    """Has decisions counted."""

    @workflow.run
    async def run(self, kinds: list[str]) -> None:
        """Once."""
        await workflow.execute_activity(
            counting,
            kinds,
            start_to_close_timeout=timedelta(seconds=10),
            retry_policy=RetryPolicy(maximum_attempts=1),
        )


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port: int = found.getsockname()[1]
        return port


async def counted(address: str, queue: str, metrics: Metrics, *kinds: str) -> None:
    client = await Client.connect(address, runtime=runtime(metrics))
    async with Worker(
        client,
        task_queue=queue,
        workflows=[Counting],
        activities=[counting],
        workflow_runner=UnsandboxedWorkflowRunner(),
    ):
        given: Any = list(kinds)
        await client.execute_workflow(Counting.run, given, id=f"count-{uuid.uuid4()}", task_queue=queue)


@pytest.fixture(autouse=True, scope="module")
def runtimes() -> Generator[None]:
    """Ends them: one whose collector has gone says so on standard error for ever."""
    yield
    runtime.cache_clear()
    gc.collect()


class Scrape:
    """What a Prometheus endpoint says of a classifier."""

    def __init__(self, text: str) -> None:
        self.lines = [line for line in text.splitlines() if line.startswith("classifier_")]

    def value(self, name: str, **labels: str) -> float:
        """The sum of the series that have these labels."""
        wanted = [f'{label}="{text}"' for label, text in labels.items()]
        matching = [
            line for line in self.lines if line.startswith(name + "{") and all(w in line for w in wanted)
        ]
        return sum(float(line.rpartition(" ")[2]) for line in matching)


async def test_a_scrape_shows_decisions_failures_calls_and_latency(temporal_address: str, queue: str) -> None:
    metrics = Metrics(prometheus=f"127.0.0.1:{free_port()}")
    kinds = ("allowed", "allowed", "let through", "stopped", "lost", "step")
    await counted(temporal_address, queue, metrics, *kinds)
    async with httpx.AsyncClient() as web:
        found = Scrape((await web.get(f"http://{metrics.prometheus}/metrics")).text)
    safety = {"classifier": "moderation", "processor": "safety", "phase": "input", "mode": "enforce"}
    assert found.value("classifier_decisions_total", **safety, outcome="allowed") == 3
    assert found.value("classifier_decisions_total", **safety, outcome="aborted") == 2
    assert found.value("classifier_decisions_total", playbook="tickets", processor="", phase="step") == 1
    assert found.value("classifier_failures_total", code="MODEL_UNAVAILABLE") == 4
    assert found.value("classifier_failures_allowed_total") == 1
    assert found.value("classifier_failures_allowed_total", **safety, code="MODEL_UNAVAILABLE") == 1
    assert found.value("classifier_calls_total", **safety) == 2 + 3 + 3
    assert found.value("classifier_decision_duration_seconds_bucket", **safety, le="0.05") == 2
    assert found.value("classifier_decision_duration_seconds_count", **safety) == 4  # not of what was lost
    assert found.value("classifier_decision_duration_seconds_sum", **safety) == pytest.approx(14.06)
    assert not [line for line in found.lines if "4111" in line]


async def test_a_collector_is_sent_them_over_http(temporal_address: str, queue: str) -> None:
    told = asyncio.Event()
    seen = bytearray()

    async def collect(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while not told.is_set() and (data := await reader.read(65_536)):
            seen.extend(data)
            if b"classifier_decisions" in seen:
                told.set()
        writer.close()

    async with await asyncio.start_server(collect, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        await counted(temporal_address, queue, Metrics(otlp=f"http://127.0.0.1:{port}/v1/metrics"), "allowed")
        await asyncio.wait_for(told.wait(), 30)
    assert seen.startswith(b"POST /v1/metrics")


def test_a_process_has_one_runtime_per_destination() -> None:
    metrics = Metrics(prometheus=f"127.0.0.1:{free_port()}")
    assert runtime(metrics) is runtime(replace(metrics))
    assert runtime(None) is not runtime(metrics)


@pytest.mark.parametrize("address", ["localhost:9464", "9464", "127.0.0.1:99999"])
def test_an_address_that_cannot_be_listened_at_is_named(address: str) -> None:
    with pytest.raises(ConfigurationError, match=f"Prometheus at {address}"):
        runtime(Metrics(prometheus=address))


def test_metrics_go_one_way_and_its_password_is_not_shown() -> None:
    with pytest.raises(ConfigurationError, match="not to both"):
        Metrics("127.0.0.1:1", "http://127.0.0.1:2")
    with pytest.raises(ConfigurationError, match="OTLP to ://"):
        runtime(Metrics(otlp="nonsense"))
    assert str(Metrics(otlp="http://me:secret@host:4317")) == "OTLP to http://host:4317"
