"""A workflow that puts a marked text everywhere Temporal stores something."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from datetime import timedelta

from temporalio import activity, workflow
from temporalio.common import RetryPolicy
from temporalio.exceptions import ActivityError, ApplicationError

MARK = "4111-1111-1111"
_ONCE = RetryPolicy(maximum_attempts=2, initial_interval=timedelta(milliseconds=10))
_SECONDS = timedelta(seconds=30)


@dataclass(frozen=True)
class Note:
    """What is carried along.

    Attributes:
        text: The marked text.
        again: Whether the run continues as a new one before it fails.
    """

    text: str
    again: bool = True


@activity.defn
async def carry(text: str) -> str:
    """Heartbeats with the text, fails with it once, then returns it."""
    activity.heartbeat(text)
    if activity.info().attempt == 1:
        raise ApplicationError(f"cannot carry {text}", {"text": text}, type="Dropped")
    return f"carried {text}"


@activity.defn
async def drop(text: str) -> str:
    """Fails for good, because of something else that has the text too."""
    raise RuntimeError(f"dropped {text}") from ValueError(f"inner {text}")


@workflow.defn
class Marked:
    """Carries a note through activities, messages, memo and failures."""

    def __init__(self) -> None:
        self.heard: list[str] = []

    @workflow.run
    async def run(self, note: Note) -> str:
        """Continues as new once, then fails with the text."""
        workflow.upsert_memo({"note": note.text})
        await workflow.wait_condition(lambda: len(self.heard) == 2 or not note.again)
        carried = await workflow.execute_activity(
            carry, note.text, start_to_close_timeout=_SECONDS, retry_policy=_ONCE, summary=note.text
        )
        local = await workflow.execute_local_activity(
            carry, note.text, start_to_close_timeout=_SECONDS, retry_policy=_ONCE
        )
        assert carried == local
        if note.again:
            workflow.continue_as_new(Note(note.text, again=False))
        try:
            await workflow.execute_activity(
                drop,
                note.text,
                start_to_close_timeout=_SECONDS,
                retry_policy=RetryPolicy(maximum_attempts=1),
            )
        except ActivityError as error:
            raise ApplicationError(f"gave up on {note.text}", note.text) from error
        return await asyncio.sleep(0, result=note.text)

    @workflow.signal
    def hear(self, text: str) -> None:
        """One of two things to hear."""
        self.heard.append(text)

    @workflow.update
    def tell(self, text: str) -> str:
        """The other."""
        self.heard.append(text)
        return f"told {text}"
