"""The service called from another project, as docs/calling.md says: by name and JSON, and from Python."""

from __future__ import annotations

import contextlib
import json
import uuid
from collections.abc import AsyncGenerator
from typing import Any

import pytest
from temporalio.client import Client
from temporalio.worker import Worker

from classifier.audit.history import History
from classifier.audit.query import DecisionQuery
from classifier.decision import Decision
from classifier.temporal.plugin import CallerPlugin
from tests.apps.foreign import CallByName
from tests.classifier.temporal.project.workflows import Guarded, GuardMessages, Passed
from tests.markdown import Document
from tests.postgres import PostgresServer
from tests.processes import environment, started, state_folder
from tests.tree import ROOT

REQUEST, RESULT, LOST = (
    json.loads(block.code) for block in Document(ROOT / "docs" / "calling.md").blocks("json")
)
SERVICE = f"service-{uuid.uuid4()}"


@pytest.fixture(scope="module")
async def module_database_url(postgres_server: PostgresServer) -> AsyncGenerator[str]:
    async with postgres_server.database() as url:
        yield url


@pytest.fixture(scope="module")
async def service(temporal_address: str, module_database_url: str) -> AsyncGenerator[str]:
    """A worker of ours as a process of its own; its task queue."""
    with state_folder() as home:
        environ = environment(
            home,
            TEMPORAL_ADDRESS=temporal_address,
            DATABASE_URL=module_database_url,
            CLASSIFIER_HASH_KEY="a key for tests, thirty-two bytes",
            CLASSIFIER_TASK_QUEUE=SERVICE,
            CLASSIFIER_APP="tests.apps.called:app",
        )
        async with started("worker", environ=environ) as running:
            await running.said("worker polls")
            yield SERVICE
            assert (await running.terminated()).code == 0


@contextlib.asynccontextmanager
async def caller(address: str, **options: Any) -> AsyncGenerator[tuple[Client, str]]:
    """A worker of another project, with workflows and nothing else."""
    client = await Client.connect(address)
    queue = f"caller-{uuid.uuid4()}"
    async with Worker(client, task_queue=queue, workflows=[CallByName, GuardMessages], **options):
        yield client, queue


async def rows(url: str, run: str) -> tuple[Decision, ...]:
    async with History(url) as history:
        return (await history.page(DecisionQuery(tenant="acme", workflow=run))).decisions


async def by_name(address: str, service: str, name: str, request: object) -> tuple[str, dict[str, Any]]:
    async with caller(address) as (client, queue):
        run = f"by-name-{uuid.uuid4()}"
        answer: dict[str, Any] = await client.execute_workflow(
            CallByName.run, args=[service, name, request], id=run, task_queue=queue
        )
        return run, answer


async def test_the_request_of_the_documents_gives_the_result_of_the_documents(
    temporal_address: str, service: str, module_database_url: str
) -> None:
    run, answer = await by_name(temporal_address, service, "classifier.decide", REQUEST)
    (decision,) = await rows(module_database_url, run)
    expected = json.loads(json.dumps(RESULT))
    expected["decisions"][0]["decision_id"] = str(decision.decision_id)
    assert answer == expected
    assert (decision.outcome, decision.ids.thread, decision.state) == ("filtered", "t-7", "Buy now!")


async def test_a_lost_activity_is_recorded_by_name(
    temporal_address: str, service: str, module_database_url: str
) -> None:
    lost = {**LOST, "lost": {**LOST["lost"], "context": REQUEST["context"]}}
    run, answer = await by_name(temporal_address, service, "classifier.record", lost)
    (decision,) = await rows(module_database_url, run)
    assert decision.failure is not None
    assert (decision.outcome, decision.failure.code) == ("aborted", "TIMEOUT")
    assert answer["decisions"][0]["tripwire"]["metadata"]["code"] == "CLASSIFIER_FAILED"


async def test_a_python_project_without_our_activities_gets_typed_verdicts(
    temporal_address: str, service: str, module_database_url: str
) -> None:
    async with caller(temporal_address, plugins=[CallerPlugin()]) as (client, queue):
        given = Guarded(
            processors=["letters"],
            messages=[{"content": "Buy!"}, {"content": "Hello"}],
            context={"tenant_id": "acme"},
            task_queue=service,
        )
        run = f"typed-{uuid.uuid4()}"
        passed: Passed = await client.execute_workflow(GuardMessages.run, given, id=run, task_queue=queue)
    assert (passed.texts, passed.outcome, passed.spam) == (["Hello"], "filtered", [0.97, 0.02])
    assert {str(row.decision_id) for row in await rows(module_database_url, run)} == set(passed.decision_ids)
