"""A thread's events for readers: a workflow stream that stale readers cannot clog. Sandbox-safe.

`temporalio.contrib.workflow_streams` keeps the log and its protocol. Added here: attempts that were replaced
are ignored, decisions that travel with a batch are handed over, and waiting polls are bounded, since Temporal
lets ten updates of a workflow wait, and then refuses `send` and `stop` too.
"""

from __future__ import annotations

from base64 import b64decode
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from temporalio import workflow
from temporalio.api.common.v1 import Payload
from temporalio.contrib.workflow_streams import (
    PollInput,
    PollResult,
    PublishEntry,
    PublishInput,
    WorkflowStream,
    WorkflowStreamState,
)
from temporalio.exceptions import ApplicationError

from activities.chat_messages import POLL, PUBLISH, RECORDS, TOPIC, Event, attempt_of

OFFSET = "__temporal_workflow_stream_offset"
TRY_AGAIN = "StreamDraining"
"""Clients of workflow streams ask again after an error of this type."""

MAX_WAITING = 4
"""Polls that wait at a time; a thread needs the rest of Temporal's ten for itself."""
MAX_POLLS = 400
"""Polls that a run takes; after that readers query, which leaves nothing in its history."""
YOUNG = timedelta(seconds=5)
"""A waiting poll is not sent away for another one before it is this old."""

KEPT_BYTES = 300_000
KEPT_EVENTS = 1_000
"""What of the log stays for readers who come back; a next run has to read it, so it cannot be much."""


@dataclass(eq=False)
class _Poll:
    reader: str
    since: datetime
    released: bool = False


class ThreadStream:
    """The stream of one thread. Make it in the workflow's own `__init__`.

    Args:
        events: The newest events of the run before.
        base: Where the first of them stands.
        on_event: Gets every event that was accepted from the current attempt of a model call.
        on_records: Gets decisions that have to be recorded.
    """

    def __init__(
        self,
        events: list[str],
        base: int,
        *,
        on_event: Callable[[Event], None],
        on_records: Callable[[list[dict[str, Any]]], None],
    ) -> None:
        log: Any = [PublishEntry(TOPIC, data) for data in events]
        self._stream = WorkflowStream(WorkflowStreamState(log=log, base_offset=base))
        self._on_event = on_event
        self._on_records = on_records
        sdk: Any = workflow  # which leaves handlers untyped
        self._published: Callable[[PublishInput], None] = sdk.get_signal_handler(PUBLISH)
        self._polled: Callable[[PollInput], Awaitable[PollResult]] = sdk.get_update_handler(POLL)
        self._ends: Callable[[], int] = sdk.get_query_handler(OFFSET)
        sdk.set_signal_handler(PUBLISH, self._publish)
        sdk.set_update_handler(POLL, self._poll, validator=self._check_poll)
        self._run_id = workflow.info().run_id
        self._polls: list[_Poll] = []
        self._taken = 0
        self._leaving = False
        self._call: str | None = None
        self._attempt = 0
        self._sizes: deque[int] = deque(map(len, events))
        self._base = base

    @property
    def offset(self) -> int:
        """Where the log ends."""
        return self._ends()

    @property
    def polls(self) -> int:
        """Polls this run has taken."""
        return self._taken

    def publish(self, event: Event) -> None:
        """An event of the thread's own."""
        self._stream.topic(TOPIC).publish(event)
        self._sizes.append(len(str(event)))

    def accept(self, activity_id: str | None) -> None:
        """From now on only this model call may publish."""
        self._call = None if activity_id is None else f"{self._run_id}/{activity_id}"
        self._attempt = 0

    def trim(self) -> None:
        """Lets go of the oldest events beyond what is kept."""
        self._sizes.extend([200] * (self.offset - self._base - len(self._sizes)))
        total = sum(self._sizes)
        while self._sizes and (total > KEPT_BYTES or len(self._sizes) > KEPT_EVENTS):
            total -= self._sizes.popleft()
            self._base += 1
        self._stream.truncate(self._base)

    def leave(self) -> None:
        """Lets waiting readers go; they come back to the next run."""
        self._leaving = True
        self._stream.detach_pollers()

    def kept(self) -> tuple[list[str], int]:
        """The newest events for the next run, and where the first of them stands."""
        self.trim()
        return [item.data for item in self._stream.get_state().log], self._base

    def _publish(self, given: PublishInput) -> None:
        """A batch of an activity: decisions are always taken, events only of the newest attempt."""
        for entry in given.items:
            if entry.topic == RECORDS:
                self._on_records(_value(entry))
        if not self._is_current(given.publisher_id):
            return
        entries = [entry for entry in given.items if entry.topic == TOPIC]
        before = self.offset
        self._published(PublishInput(entries, given.publisher_id, given.sequence))
        if self.offset == before:  # a repeat
            return
        for entry in entries:
            self._sizes.append(len(entry.data))
            self._on_event(_value(entry))

    def _is_current(self, publisher: str) -> bool:
        known = attempt_of(publisher)
        if known is None or known[0] != self._call or known[1] < self._attempt:
            return False
        self._attempt = known[1]
        return True

    async def _poll(self, given: PollInput) -> PollResult:
        """Waits for events after an offset; empty where the poll had to make room."""
        poll = _Poll(_reader(), workflow.now())
        self._make_room(poll)
        self._polls.append(poll)
        self._taken += 1
        try:
            await workflow.wait_condition(lambda: poll.released or self._leaving or self._is_news(given))
        finally:
            self._polls.remove(poll)
        if poll.released and not self._is_news(given):
            return PollResult(next_offset=given.from_offset)
        return await self._polled(given)

    def _check_poll(self, given: PollInput) -> None:
        """Refuses what there is no room for; a refusal leaves nothing in the history."""
        if self._leaving or self._taken >= MAX_POLLS:
            raise ApplicationError("no poll can wait here now; query, or ask again", type=TRY_AGAIN)
        if self._is_news(given) or self._is_known(_reader()) or len(self._polls) < MAX_WAITING:
            return
        if workflow.now() - self._polls[0].since < YOUNG:
            raise ApplicationError("other polls wait here; query, or ask again", type=TRY_AGAIN)

    def _make_room(self, poll: _Poll) -> None:
        """A reader's new poll takes the place of its old one, else of the oldest where there is no room."""
        waiting = [each for each in self._polls if not each.released]
        for each in waiting:
            each.released = each.reader == poll.reader
        waiting = [each for each in waiting if not each.released]
        if len(waiting) >= MAX_WAITING:
            waiting[0].released = True

    def _is_known(self, reader: str) -> bool:
        return any(each.reader == reader for each in self._polls)

    def _is_news(self, given: PollInput) -> bool:
        return given.from_offset < self.offset


def _reader() -> str:
    """Who polls: our readers name themselves before the slash of an update's id."""
    info = workflow.current_update_info()
    return "" if info is None else info.id.partition("/")[0]


def _value(entry: PublishEntry) -> Any:
    payload = Payload.FromString(b64decode(entry.data))
    return workflow.payload_converter().from_payload(payload)
