"""A foreign project's worker that may kill itself: `python -m tests.apps.guarded QUEUE [POINT COUNT]`.

It guards messages by asking the server at COUNTED_MODEL_URL. Without a point it is an ordinary worker. With
one, decisions that come to it wait there until COUNT different ones have come, all in flight at the same
time; then the process gets SIGKILL from itself.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import uuid
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, cast

from temporalio import activity
from temporalio.client import Client
from temporalio.worker import ActivityInboundInterceptor, ExecuteActivityInput, Interceptor

from classifier.app import App
from classifier.audit.postgres import PostgresStore
from classifier.audit.store import DecisionStore
from classifier.decision import Decision
from classifier.models.systemone import SystemOne
from classifier.temporal.messages import DECIDE
from tests.apps.doomed import Point
from tests.classifier.temporal.chats import processor
from tests.classifier.temporal.project.worker import worker


class Cliff:
    """Where the process ends; attempts at the same decision count once."""

    def __init__(self, point: Point | None, count: int) -> None:
        self._point = point
        self._count = count
        self._arrived: set[object] = set()

    async def reached(self, point: Point, arrived: Iterable[object]) -> None:
        """Goes on elsewhere; at the chosen point nobody goes on."""
        if point != self._point:
            return
        self._arrived.update(arrived)
        if len(self._arrived) >= self._count:
            os.kill(os.getpid(), signal.SIGKILL)
        await asyncio.get_running_loop().create_future()


class CliffStore:
    """The store, with a cliff before and behind its writes."""

    def __init__(self, store: DecisionStore, cliff: Cliff) -> None:
        self._store = store
        self._cliff = cliff

    async def find(
        self, tenant: str, decided_at: datetime, decision_ids: Sequence[uuid.UUID]
    ) -> Mapping[uuid.UUID, Decision]:
        return await self._store.find(tenant, decided_at, decision_ids)

    async def record(self, decisions: Sequence[Decision]) -> Sequence[Decision]:
        ids = [decision.decision_id for decision in decisions]
        await self._cliff.reached("before the insert", ids)
        stored = await self._store.record(decisions)
        await self._cliff.reached("after the commit", ids)
        return stored


class CliffInterceptor(Interceptor):
    """A cliff between the end of an activity and its report."""

    def __init__(self, cliff: Cliff) -> None:
        self._cliff = cliff

    def intercept_activity(self, next: ActivityInboundInterceptor) -> ActivityInboundInterceptor:  # noqa: A002 - the SDK's name
        return _BeforeCompletion(next, self._cliff)


class _BeforeCompletion(ActivityInboundInterceptor):
    def __init__(self, following: ActivityInboundInterceptor, cliff: Cliff) -> None:
        super().__init__(following)
        self._cliff = cliff

    async def execute_activity(self, input: ExecuteActivityInput) -> Any:  # noqa: A002 - the SDK's name
        result = await super().execute_activity(input)
        if activity.info().activity_type == DECIDE:
            await self._cliff.reached("before the completion", [activity.info().workflow_id])
        return result


async def main(queue: str, point: Point | None = None, count: int = 0) -> None:
    store = PostgresStore(
        os.environ["DATABASE_URL"], hash_key=os.environ["CLASSIFIER_HASH_KEY"].encode(), pool_size=10
    )
    client = await Client.connect(os.environ["TEMPORAL_ADDRESS"])
    cliff = Cliff(point, count)
    app = App(processors=[processor(SystemOne("m", base_url=os.environ["COUNTED_MODEL_URL"]))])
    async with worker(client, app, CliffStore(store, cliff), queue, interceptors=[CliffInterceptor(cliff)]):
        print("guarding", file=sys.stderr, flush=True)
        await asyncio.get_running_loop().create_future()


if __name__ == "__main__":
    given = sys.argv[1:]
    asyncio.run(main(given[0], cast("Point", given[1]), int(given[2])) if given[1:] else main(given[0]))
