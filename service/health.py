"""Whether Temporal and the database answer, and how much waits for workers; looked at now and then."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncGenerator
from datetime import timedelta

from temporalio.api.enums.v1 import TaskQueueType
from temporalio.api.taskqueue.v1 import TaskQueue
from temporalio.api.workflowservice.v1 import DescribeNamespaceRequest, DescribeTaskQueueRequest
from temporalio.client import Client
from temporalio.service import RPCError

from classifier.audit.store import EventStore
from classifier.errors import StoreError
from service.problems import too_many

FRESH = 1.0
EVERY = 2.0
WITHIN = timedelta(seconds=3)
_KINDS = (TaskQueueType.TASK_QUEUE_TYPE_WORKFLOW, TaskQueueType.TASK_QUEUE_TYPE_ACTIVITY)


class Health:
    """Asks the parts that the service needs.

    Args:
        client: Temporal.
        store: The database.
        task_queue: The queue the workers poll.
        backlog: How many tasks may wait in it.
    """

    def __init__(self, client: Client, store: EventStore, *, task_queue: str, backlog: int) -> None:
        self._client = client
        self._store = store
        self._task_queue = task_queue
        self._limit = backlog
        self._waiting = 0
        self._looked = float("-inf")
        self._found: dict[str, bool] = {}
        self._looking = asyncio.Lock()

    async def parts(self) -> dict[str, bool]:
        """Whether each part answers, as of a second ago at most, however many ask."""
        async with self._looking:
            if time.monotonic() - self._looked > FRESH:
                temporal, database = await asyncio.gather(self._temporal(), self._database())
                self._found = {"temporal": temporal, "database": database}
                self._looked = time.monotonic()
        return self._found

    def check_backlog(self) -> None:
        """Refuses more while too much waits for workers.

        Raises:
            Problem: 429.
        """
        if self._waiting >= self._limit:
            raise too_many("BACKLOG", "too many events wait for workers", 10)

    @contextlib.asynccontextmanager
    async def watching(self) -> AsyncGenerator[None]:
        """Looks at the backlog again and again meanwhile."""
        watch = asyncio.create_task(self._watch())
        try:
            yield
        finally:
            watch.cancel()
            await asyncio.gather(watch, return_exceptions=True)

    async def _watch(self) -> None:
        while True:
            with contextlib.suppress(RPCError):  # unknown; what is known stays, and readiness says the rest
                self._waiting = sum([await self._backlog(kind) for kind in _KINDS])
            await asyncio.sleep(EVERY)

    async def _backlog(self, kind: TaskQueueType.ValueType) -> int:
        described = await self._client.workflow_service.describe_task_queue(
            DescribeTaskQueueRequest(
                namespace=self._client.namespace,
                task_queue=TaskQueue(name=self._task_queue),
                task_queue_type=kind,
                report_stats=True,
            ),
            timeout=WITHIN,
        )
        return described.stats.approximate_backlog_count

    async def _temporal(self) -> bool:
        request = DescribeNamespaceRequest(namespace=self._client.namespace)
        try:
            await self._client.workflow_service.describe_namespace(request, timeout=WITHIN)
        except RPCError:
            return False
        return True

    async def _database(self) -> bool:
        try:
            async with asyncio.timeout(WITHIN.total_seconds()):
                await self._store.accepted([])
        except (StoreError, TimeoutError):
            return False
        return True
