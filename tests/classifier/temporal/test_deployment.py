"""Worker versions: the new one becomes current, an old one that starts again does not take over."""

from __future__ import annotations

import asyncio
import uuid

import pytest
from temporalio.client import Client
from temporalio.common import WorkerDeploymentVersion
from temporalio.worker import Worker

from classifier.audit.memory import MemoryStore
from classifier.temporal.deployment import promoted, versioned
from tests.classifier.temporal.letters import always, app, start
from tests.classifier.temporal.project.worker import worker
from tests.classifier.temporal.project.workflows import SortLetter


@pytest.fixture
def deployment() -> str:
    return f"letters-{uuid.uuid4()}"


def of(client: Client, queue: str, deployment: str, build: str, store: MemoryStore) -> Worker:
    version = WorkerDeploymentVersion(deployment, build)
    return worker(client, app(always()), store, queue, deployment_config=versioned(version))


async def current(client: Client, deployment: str, build: str, *, again: bool = False) -> bool:
    version = WorkerDeploymentVersion(deployment, build)
    return await asyncio.wait_for(promoted(client, version, again=again), 30)


async def build_of(client: Client, queue: str) -> str:
    """The build that a new run was handed to."""
    handle = await start(client, queue, SortLetter.run, "it crashes")
    await handle.result()
    info = (await handle.describe()).raw_description.workflow_execution_info.versioning_info
    return info.deployment_version.build_id


async def test_a_version_is_given_work_once_it_is_promoted(
    client: Client, queue: str, deployment: str
) -> None:
    store = MemoryStore()
    async with of(client, queue, deployment, "1", store):
        handle = await start(client, queue, SortLetter.run, "it crashes")
        assert await current(client, deployment, "1")
        filed, _ = await handle.result()
    assert filed == "filed in bug"
    assert len(store.decisions) == 1


@pytest.mark.slow
async def test_a_new_version_takes_over_and_the_old_one_only_when_told(
    client: Client, queue: str, deployment: str
) -> None:
    store = MemoryStore()
    async with of(client, queue, deployment, "1", store):
        assert await current(client, deployment, "1")
        async with of(client, queue, deployment, "2", store):
            assert await current(client, deployment, "2")
            assert await build_of(client, queue) == "2"
            assert not await current(client, deployment, "1")
            assert await build_of(client, queue) == "2"
            assert await current(client, deployment, "1", again=True)
            assert await build_of(client, queue) == "1"


@pytest.mark.slow
async def test_a_run_in_progress_moves_on_to_the_new_version(
    client: Client, queue: str, deployment: str
) -> None:
    """It began on the old one, which is gone before it ends."""
    store = MemoryStore()
    async with of(client, queue, deployment, "1", store):
        assert await current(client, deployment, "1")
    handle = await start(client, queue, SortLetter.run, "it crashes")
    async with of(client, queue, deployment, "2", store):
        assert await current(client, deployment, "2")
        filed, _ = await handle.result()
    assert filed == "filed in bug"


@pytest.mark.slow
async def test_a_version_waits_until_it_polls_every_queue_of_the_current_one(
    client: Client, queue: str, deployment: str
) -> None:
    store = MemoryStore()
    other = f"{queue}-limited"
    async with of(client, queue, deployment, "1", store), of(client, other, deployment, "1", store):
        assert await current(client, deployment, "1")
        backlog = [await start(client, name, SortLetter.run, "it crashes") for name in (queue, other)]
        async with of(client, queue, deployment, "2", store):
            promoting = asyncio.create_task(promoted(client, WorkerDeploymentVersion(deployment, "2")))
            for handle in backlog:
                await handle.result()
            assert not promoting.done()
            async with of(client, other, deployment, "2", store):
                assert await asyncio.wait_for(promoting, 30)
