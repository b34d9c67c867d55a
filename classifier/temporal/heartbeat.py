"""Background heartbeats of an activity, so that a cancel reaches it while it waits."""

from __future__ import annotations

import asyncio
import contextlib
import uuid
from collections.abc import AsyncGenerator
from dataclasses import dataclass, field
from datetime import UTC, datetime

from temporalio import activity

from classifier.verdict import Earlier

INTERVAL = 0.4
"""Seconds between beats, and before the first; a cancel arrives with the answer to one."""


KEPT = 1000
"""Local activities between two attempts; more are forgotten, oldest first, and ask once too often."""


@dataclass(frozen=True, slots=True)
class Failed:
    """Failed calls for one decision.

    Attributes:
        calls: How many.
        since: When the first of them began.
    """

    calls: int
    since: datetime


@dataclass(slots=True)
class Progress:
    """What the attempts of one activity tell each other through heartbeat details.

    Attributes:
        started: When the first attempt began.
        failed: Model calls that failed so far, by decision; restarts and crashes are not among them.
        lost: Failures that no heartbeat carried, of each decision: attempts of a local activity before.
    """

    started: datetime
    failed: dict[uuid.UUID, Failed] = field(default_factory=dict[uuid.UUID, Failed])
    lost: int = 0

    def beat(self) -> None:
        """Sends it to the server."""
        failed = [[str(each), known.calls, known.since.isoformat()] for each, known in self.failed.items()]
        activity.heartbeat(self.started.isoformat(), failed)

    def fail(self, decision_id: uuid.UUID, since: datetime) -> None:
        """Counts a failed call that began at `since`."""
        before = self.failed.get(decision_id, Failed(self.lost, since))
        self.failed[decision_id] = Failed(before.calls + 1, before.since)

    def attempt(self, decision_id: uuid.UUID) -> int:
        """Which asking this is, from 1; askings that a restart cut off do not count."""
        known = self.failed.get(decision_id)
        return (self.lost if known is None else known.calls) + 1

    @property
    def milliseconds(self) -> float:
        """Since the first attempt began."""
        return _milliseconds(self.started)

    @property
    def earlier(self) -> dict[uuid.UUID, Earlier]:
        """What earlier attempts spent, by decision."""
        return {
            decision_id: Earlier(known.calls, _milliseconds(known.since))
            for decision_id, known in self.failed.items()
        }


class Attempts:
    """What the attempts of an activity know of each other: heartbeat details, or, of a local one, this."""

    def __init__(self) -> None:
        self._local: dict[tuple[str | None, str], Progress] = {}

    def earlier(self) -> Progress:
        """Where the last attempt left off."""
        info = activity.info()
        known = self._local.pop((info.workflow_run_id, info.activity_id), None)
        return earlier_progress() if known is None else known

    def leave(self, progress: Progress) -> None:
        """Keeps it for the next attempt, which a worker that died takes along only if it is not local."""
        info = activity.info()
        if not info.is_local:
            progress.beat()
            return
        if len(self._local) >= KEPT:
            self._local.pop(next(iter(self._local)))
        self._local[info.workflow_run_id, info.activity_id] = progress


def earlier_progress() -> Progress:
    """Where the last attempt left off, as far as Temporal knows."""
    info = activity.info()
    if info.heartbeat_details:
        started, failed = info.heartbeat_details
        known = {
            uuid.UUID(each): Failed(calls, datetime.fromisoformat(since)) for each, calls, since in failed
        }
        return Progress(datetime.fromisoformat(started), known)
    started = info.started_time if info.attempt == 1 else info.scheduled_time
    return Progress(started, lost=info.attempt - 1 if info.is_local else 0)


@contextlib.asynccontextmanager
async def heartbeating(progress: Progress) -> AsyncGenerator[None]:
    """Beats until the block ends; a local activity has no server to tell."""
    if activity.info().is_local:
        yield
        return
    beats = asyncio.create_task(_beat(progress))
    try:
        yield
    finally:
        beats.cancel()


async def _beat(progress: Progress) -> None:
    while True:
        await asyncio.sleep(INTERVAL)
        progress.beat()


def _milliseconds(since: datetime) -> float:
    return (datetime.now(UTC) - since).total_seconds() * 1000
