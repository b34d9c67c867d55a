"""What a run still has to record before it may close. Workflow side: deterministic, sandbox-safe."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

from temporalio import workflow
from temporalio.common import RetryPolicy

from classifier.temporal.messages import (
    RECORD,
    DecideResult,
    RecordRequest,
    record_to_json,
    result_from_json,
)

_PENDING = "_classifier_pending_records"
_RETRY = RetryPolicy(
    initial_interval=timedelta(seconds=1), backoff_coefficient=2, maximum_interval=timedelta(minutes=1)
)


def recording(request: RecordRequest, task_queue: str | None = None) -> asyncio.Task[DecideResult]:
    """Starts to record; the run does not close before it is done, and a stop does not reach it."""
    task = asyncio.create_task(_record(request, task_queue))
    _pending().append(task)
    return task


async def recorded(task: asyncio.Task[DecideResult]) -> DecideResult:
    """What is stored, once it is."""
    try:
        return await asyncio.shield(task)
    finally:
        if task.done():
            _pending().remove(task)


async def records_are_in() -> None:
    """Waits until everything this run decided is in the history; the plugin calls it before a run closes.

    Raises:
        asyncio.CancelledError: The run was cancelled meanwhile; the records are in all the same.
    """
    pending = _pending()
    stopped: asyncio.CancelledError | None = None
    while pending:
        try:
            await asyncio.shield(pending[0])
        except asyncio.CancelledError as error:
            if pending[0].cancelled():  # the run leaves the cache
                raise
            stopped = error
        else:
            pending.pop(0)
    if stopped is not None:
        raise stopped


async def _record(request: RecordRequest, task_queue: str | None) -> DecideResult:
    stored: Any = await workflow.execute_activity(
        RECORD,
        record_to_json(request),
        task_queue=task_queue,
        start_to_close_timeout=timedelta(seconds=30),
        retry_policy=_RETRY,
    )
    return result_from_json(stored)


def _pending() -> list[asyncio.Task[DecideResult]]:
    instance: Any = workflow.instance()
    if not hasattr(instance, _PENDING):
        setattr(instance, _PENDING, [])
    pending: list[asyncio.Task[DecideResult]] = getattr(instance, _PENDING)
    return pending
