"""Daily housekeeping beside a worker: a queue of its own, and the Temporal schedule that fills it."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import AsyncGenerator
from datetime import timedelta

from temporalio.client import (
    Client,
    Schedule,
    ScheduleActionStartWorkflow,
    ScheduleAlreadyRunningError,
    ScheduleIntervalSpec,
    ScheduleOverlapPolicy,
    SchedulePolicy,
    ScheduleSpec,
)
from temporalio.service import RPCError
from temporalio.worker import Interceptor, Worker

from activities.chores import HOUSEKEEPING
from activities.housekeeping import HousekeepingActivities, Seal
from classifier.temporal.plugin import with_passthrough
from commands.seal_keys import public_keys, seal_key
from worker import GRACE, WORKFLOW_MODULES, Service, Settings, hash_key
from workflows.housekeeping import HousekeepingWorkflow

log = logging.getLogger("classifier")

_EVERY = timedelta(days=1)
_SPREAD = timedelta(minutes=30)
_MISSED = timedelta(hours=6)
"""After an outage it is done at once if it was due within this time, else on the next day."""


def queue_of(settings: Settings) -> str:
    """The task queue of housekeeping, which no burst of events can fill."""
    return f"{settings.task_queue}-housekeeping"


@contextlib.asynccontextmanager
async def housekeeping(service: Service, *leaving: Interceptor) -> AsyncGenerator[None]:
    """Does what is due until the block ends, and sees to it that it becomes due, unless that is off.

    Args:
        service: Temporal and the history.
        leaving: What ends a chore early when the process is told to leave at once.
    """
    settings = service.settings
    if not settings.upkeep.scheduled or settings.activities_only:
        yield
        return
    activities = HousekeepingActivities(service.database_url, settings.upkeep, _seal(settings))
    worker = Worker(
        service.client,
        task_queue=queue_of(settings),
        workflows=[HousekeepingWorkflow],
        activities=[activities.do],
        workflow_runner=with_passthrough(WORKFLOW_MODULES)(None),
        graceful_shutdown_timeout=GRACE,
        max_concurrent_activities=1,
        interceptors=leaving,
    )
    async with worker:
        await ensure_schedule(service.client, queue_of(settings))
        yield


async def ensure_schedule(client: Client, queue: str) -> None:
    """Makes the schedule where there is none, and has the first run at once.

    One that is there stays as it is, so it can be paused or given other times with Temporal's own tools.
    """
    try:
        await client.create_schedule(queue, _schedule(queue), trigger_immediately=True)
    except ScheduleAlreadyRunningError:
        return
    except RPCError as error:
        log.warning("housekeeping is not scheduled: Temporal does not let us (%s)", error.status.name)


def _schedule(queue: str) -> Schedule:
    return Schedule(
        action=ScheduleActionStartWorkflow(HOUSEKEEPING, id=queue, task_queue=queue),
        spec=ScheduleSpec(intervals=[ScheduleIntervalSpec(every=_EVERY)], jitter=_SPREAD),
        policy=SchedulePolicy(overlap=ScheduleOverlapPolicy.SKIP, catchup_window=_MISSED),
    )


def _seal(settings: Settings) -> Seal | None:
    """With what is sealed: a given key, or the one that an embedded database's state folder has."""
    if settings.seal_key is None and not settings.embeds_database:
        return None
    return Seal(seal_key(settings), public_keys(settings), hash_key(settings))
