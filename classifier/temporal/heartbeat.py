"""Background heartbeats of an activity, so that a cancel reaches it while it waits."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator
from dataclasses import dataclass
from datetime import UTC, datetime

from temporalio import activity

INTERVAL = 0.4
"""Seconds between beats, and before the first; a cancel arrives with the answer to one."""


@dataclass(slots=True)
class Progress:
    """What the attempts of one activity tell each other through heartbeat details.

    Attributes:
        failures: Model calls that failed so far; restarts and crashes are not among them.
        started: When the first attempt began.
    """

    failures: int
    started: datetime

    def beat(self) -> None:
        """Sends it to the server."""
        activity.heartbeat(self.failures, self.started.isoformat())

    @property
    def attempt(self) -> int:
        """Which asking this is, from 1; askings that a restart cut off do not count."""
        return self.failures + 1

    @property
    def milliseconds(self) -> float:
        """Since the first attempt began."""
        return (datetime.now(UTC) - self.started).total_seconds() * 1000


def earlier_progress() -> Progress:
    """Where the last attempt left off."""
    info = activity.info()
    if info.heartbeat_details:
        failures, started = info.heartbeat_details
        return Progress(failures, datetime.fromisoformat(started))
    return Progress(0, info.started_time if info.attempt == 1 else info.scheduled_time)


@contextlib.asynccontextmanager
async def heartbeating(progress: Progress) -> AsyncGenerator[None]:
    """Beats until the block ends."""
    beats = asyncio.create_task(_beat(progress))
    try:
        yield
    finally:
        beats.cancel()


async def _beat(progress: Progress) -> None:
    while True:
        await asyncio.sleep(INTERVAL)
        progress.beat()
