"""Makes sure that somebody works on what a command hands to Temporal."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Coroutine
from typing import Any, TypeVar

from temporalio.api.enums.v1 import TaskQueueType
from temporalio.api.taskqueue.v1 import TaskQueue
from temporalio.api.workflowservice.v1 import DescribeTaskQueueRequest

from classifier.app import App
from classifier.errors import ConfigurationError
from worker import Service, working

T = TypeVar("T")


@contextlib.asynccontextmanager
async def a_worker(service: Service, app: App) -> AsyncGenerator[None]:
    """A worker of our own, unless somebody else's is there or is to be expected.

    Raises:
        ConfigurationError: Temporal is somebody else's, and no worker polls the queue.
    """
    if service.settings.embeds_temporal and not service.attached:
        async with working(service, app):
            yield
        return
    if not await _is_polled(service):
        raise ConfigurationError(
            f"no worker polls the queue {service.settings.task_queue!r}; start one with `classifier worker`"
        )
    yield


async def while_the_stack_runs(service: Service, work: Coroutine[Any, Any, T]) -> T:
    """The result of `work`, which ends early when a part of our own stack dies.

    Raises:
        EmbeddedError: The sentence that names the part.
    """
    working_on_it = asyncio.ensure_future(work)
    watching = asyncio.ensure_future(service.watch())
    try:
        await asyncio.wait({working_on_it, watching}, return_when=asyncio.FIRST_COMPLETED)
        if not working_on_it.done():
            await watching
        return await working_on_it
    finally:
        working_on_it.cancel()
        watching.cancel()
        await asyncio.gather(working_on_it, watching, return_exceptions=True)


async def _is_polled(service: Service) -> bool:
    queue = await service.client.workflow_service.describe_task_queue(
        DescribeTaskQueueRequest(
            namespace=service.client.namespace,
            task_queue=TaskQueue(name=service.settings.task_queue),
            task_queue_type=TaskQueueType.TASK_QUEUE_TYPE_WORKFLOW,
        )
    )
    return len(queue.pollers) > 0
