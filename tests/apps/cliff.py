"""Where a process kills itself: a store and an interceptor at which decisions wait until enough have come."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Iterable, Sequence
from typing import Any, Literal, TypeAlias

from temporalio import activity
from temporalio.client import Interceptor
from temporalio.worker import ActivityInboundInterceptor, ExecuteActivityInput
from temporalio.worker import Interceptor as WorkerInterceptor

from classifier.audit.store import AuditStore
from classifier.decision import Decision
from classifier.temporal.messages import DECIDE
from tests.apps.through import Through

Point: TypeAlias = Literal["before the insert", "after the commit", "before the completion"]


class Cliff:
    """Where a process ends once enough of its decisions stand at it; attempts at the same one count once."""

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


class CliffStore(Through):
    """The store of the worker, with a cliff before and behind its writes of decisions."""

    def __init__(self, store: AuditStore, cliff: Cliff) -> None:
        super().__init__(store)
        self._cliff = cliff

    async def record(self, decisions: Sequence[Decision]) -> Sequence[Decision]:
        ids = [decision.decision_id for decision in decisions]
        await self._cliff.reached("before the insert", ids)
        stored = await self._store.record(decisions)
        await self._cliff.reached("after the commit", ids)
        return stored


class CliffInterceptor(Interceptor, WorkerInterceptor):
    """A cliff between the end of the activity and its report to Temporal."""

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
