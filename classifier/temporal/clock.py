"""When a decision is made, so that every execution of workflow code agrees. Deterministic, sandbox-safe.

A workflow task that fails is executed again at a later `workflow.now()`. What it had scheduled is not known
to anyone, so the time may change, unless it was a local activity: that one has run already, and its row is
keyed by the time it was given.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from temporalio import workflow

LAG = timedelta(minutes=1)
"""How far a local decision's time may lie behind the clock."""

_KNOWN = "_classifier_known_time"


@dataclass(frozen=True, slots=True)
class Moment:
    """When something is decided.

    Attributes:
        at: The time its row carries.
        before: The time that an execution which left no trace may have given to the same row.
    """

    at: datetime
    before: datetime | None = None


async def moment(number: int, *, local: bool) -> Moment:
    """The time of the decisions of call `number` of a run.

    A local one takes the last time that is in the history for good: the start of the run, or, once that is
    too long ago, the time before a timer of no length.
    """
    now = workflow.now()
    if not local:
        return Moment(now)
    instance: Any = workflow.instance()
    known: datetime = getattr(instance, _KNOWN, workflow.info().workflow_start_time)
    candidate = known + timedelta(microseconds=number)
    if now - known <= LAG:
        return Moment(candidate)
    await workflow.sleep(timedelta(milliseconds=1))  # which ends the task that `now` is the time of
    setattr(instance, _KNOWN, now)
    return Moment(now, candidate)
