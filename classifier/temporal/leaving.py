"""Ends a worker sooner than its grace period: what is in flight is given back to Temporal at once."""

from __future__ import annotations

import asyncio
from typing import Any

from temporalio import activity
from temporalio.exceptions import ApplicationError, ApplicationErrorCategory
from temporalio.worker import ActivityInboundInterceptor, ExecuteActivityInput, Interceptor

WORKER_LEFT = "WORKER_LEFT"


class Leaving(Interceptor):
    """Knows the async activities of a worker; give it to the worker as an interceptor."""

    def __init__(self) -> None:
        self._running: set[asyncio.Task[Any]] = set()
        self._left = False

    def leave(self) -> None:
        """Cuts off what runs; Temporal hands it to another worker, since it fails as retryable."""
        self._left = True
        for task in self._running:
            task.cancel()

    def intercept_activity(self, next: ActivityInboundInterceptor) -> ActivityInboundInterceptor:  # noqa: A002 - the SDK's name
        """Every activity of the worker."""
        return _Known(next, self)

    async def watched(self, following: ActivityInboundInterceptor, given: ExecuteActivityInput) -> Any:
        """What the activity comes to, unless the worker leaves meanwhile.

        Raises:
            ApplicationError: The worker left; retryable.
        """
        if self._left:
            raise _given_back()
        task = asyncio.current_task()
        assert task is not None
        self._running.add(task)
        try:
            return await following.execute_activity(given)
        except asyncio.CancelledError:
            details = activity.cancellation_details()
            if self._left and details is None:
                raise _given_back() from None
            raise
        finally:
            self._running.discard(task)


class _Known(ActivityInboundInterceptor):
    def __init__(self, following: ActivityInboundInterceptor, leaving: Leaving) -> None:
        super().__init__(following)
        self._leaving = leaving

    async def execute_activity(self, input: ExecuteActivityInput) -> Any:  # noqa: A002 - the SDK's name
        return await self._leaving.watched(self.next, input)


def _given_back() -> ApplicationError:
    return ApplicationError(
        "the worker was told to end at once",
        type=WORKER_LEFT,
        category=ApplicationErrorCategory.BENIGN,
    )
