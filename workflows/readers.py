"""Follows the events of threads: one poller per thread and process, however many read. Client side.

    readers = Readers(client)
    async for event in readers.events(workflow_id, after=offset):
        ...

A reader that comes back with the offset of the last event it saw misses nothing. While a thread is idle one
update waits for it; where it is busy, or polls of other processes wait there already, it is asked by query,
which leaves nothing in its history.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import uuid
from collections import deque
from collections.abc import AsyncGenerator
from dataclasses import dataclass
from typing import Any

from temporalio.api.common.v1 import Payload
from temporalio.client import (
    Client,
    WorkflowHandle,
    WorkflowQueryFailedError,
    WorkflowUpdateFailedError,
    WorkflowUpdateRPCTimeoutOrCancelledError,
    WorkflowUpdateStage,
)
from temporalio.contrib.workflow_streams import PollInput, PollResult
from temporalio.service import RPCError, RPCStatusCode

from activities.chat_messages import POLL, TOPIC, Event

TRUNCATED = "TruncatedOffset"

LINGER = 5.0
"""Seconds that a poller stays when its last reader has left; readers come back."""
KEPT = 5_000
"""Events a poller keeps for readers of this process."""

_PAUSE = 0.1
_QUERIES = 20
"""How often a thread without room for a poll is queried before a poll is tried again."""
_LONGEST_PAUSE = 1.0
_GONE = {RPCStatusCode.NOT_FOUND, RPCStatusCode.FAILED_PRECONDITION}


@dataclass(frozen=True, slots=True)
class Seen:
    """An event and where the log goes on after it."""

    event: Event
    next: int


class Readers:
    """The readers of this process.

    Args:
        client: A client of the namespace.
    """

    def __init__(self, client: Client) -> None:
        self._client = client
        self._name = f"reader-{uuid.uuid4().hex[:12]}"
        self._pollers: dict[str, _Poller] = {}

    @property
    def pollers(self) -> int:
        """How many threads are polled."""
        return len(self._pollers)

    async def events(self, workflow_id: str, *, after: int = 0) -> AsyncGenerator[Seen]:
        """Every event from an offset on, as it comes; ends when the thread has ended.

        Args:
            workflow_id: The thread's workflow.
            after: The `next` of the last event that was seen; 0 begins with the oldest that is kept.

        Raises:
            RPCError: There is no such thread, or Temporal does not answer.
        """
        poller = self._pollers.get(workflow_id)
        if poller is None or poller.ended:
            poller = _Poller(self._client, self._name, workflow_id)
            self._pollers[workflow_id] = poller
        poller.enter()
        try:
            async with contextlib.aclosing(poller.read(after)) as events:
                async for seen in events:
                    yield seen
        finally:
            if poller.leave():
                self._forget_later(poller)

    async def aclose(self) -> None:
        """Ends every poller."""
        pollers, self._pollers = list(self._pollers.values()), {}
        for poller in pollers:
            await poller.aclose()

    def _forget_later(self, poller: _Poller) -> None:
        asyncio.get_running_loop().call_later(LINGER, self._forget, poller)

    def _forget(self, poller: _Poller) -> None:
        if not poller.readers and self._pollers.get(poller.workflow_id) is poller:
            del self._pollers[poller.workflow_id]
            poller.cancel()


class _Poller:
    """Polls one thread for all its readers."""

    def __init__(self, client: Client, name: str, workflow_id: str) -> None:
        self._handle: WorkflowHandle[Any, Any] = client.get_workflow_handle(workflow_id)
        self._converter = client.data_converter.payload_converter
        self._name = name
        self.workflow_id = workflow_id
        self.readers = 0
        self._events: deque[Seen] = deque(maxlen=KEPT)
        self._start: int | None = None
        self._next = 0
        self._news = asyncio.Event()
        self._queries = 0
        self._task: asyncio.Task[None] | None = None

    @property
    def ended(self) -> bool:
        """Whether there will be nothing more."""
        return self._task is not None and self._task.done()

    def enter(self) -> None:
        """One more reader."""
        self.readers += 1

    def leave(self) -> bool:
        """One reader less; whether it was the last."""
        self.readers -= 1
        return not self.readers

    def cancel(self) -> None:
        """Ends the polling."""
        if self._task is not None:
            self._task.cancel()

    async def aclose(self) -> None:
        """Ends the polling and waits for that."""
        self.cancel()
        if self._task is not None:
            await asyncio.wait({self._task})

    async def read(self, after: int) -> AsyncGenerator[Seen]:
        """Events from an offset on: what was before the poller began is asked for, the rest is shared."""
        offset = after
        while True:
            if self._start is None or offset < self._oldest():
                result = await self._query(offset)
                for seen in self._decoded(result):
                    yield seen
                offset = max(offset, result.next_offset)
                self._begin(offset)
                if result.more_ready:
                    continue
            for seen in [each for each in self._events if each.next > offset]:
                yield seen
                offset = seen.next
            news = self._news
            if self.ended and offset >= self._next:
                assert self._task is not None
                if not self._task.cancelled():
                    self._task.result()
                return
            if offset >= self._next:
                await news.wait()

    def _oldest(self) -> int:
        """The first offset that is served from here."""
        assert self._start is not None
        return self._events[0].next - 1 if len(self._events) == KEPT else self._start

    def _begin(self, offset: int) -> None:
        if self._task is None:
            self._start = self._next = offset
            self._task = asyncio.create_task(self._poll())

    async def _poll(self) -> None:
        pause = _PAUSE
        try:
            while True:
                result = await self._asked()
                if result is None:
                    return
                for seen in self._decoded(result):
                    self._events.append(seen)
                idle = result.next_offset == self._next
                self._next = max(self._next, result.next_offset)
                self._tell()
                pause = min(pause * 1.5, _LONGEST_PAUSE) if idle else _PAUSE
                if not result.more_ready:
                    await asyncio.sleep(pause)
        finally:
            self._tell()

    def _tell(self) -> None:
        news, self._news = self._news, asyncio.Event()
        news.set()

    async def _asked(self) -> PollResult | None:
        """What came after the last event; None when the thread has ended and everything was read."""
        if self._queries:
            self._queries -= 1
            return await self._queried() or await self._last_words()
        try:
            return await self._waited()
        except WorkflowUpdateFailedError as error:
            if getattr(error.cause, "type", None) == TRUNCATED:
                return await self._query(0)
        except (WorkflowUpdateRPCTimeoutOrCancelledError, RPCError) as error:
            if _is_cancelled(error):
                raise asyncio.CancelledError from error
            if isinstance(error, RPCError) and error.status in _GONE:
                return await self._last_words()
        self._queries = _QUERIES
        return await self._queried() or await self._last_words()

    async def _waited(self) -> PollResult:
        thread: Any = self._handle  # an overload of the SDK is untyped
        handle = await thread.start_update(
            POLL,
            PollInput([TOPIC], self._next),
            id=f"{self._name}/{uuid.uuid4().hex}",
            wait_for_stage=WorkflowUpdateStage.ACCEPTED,
            result_type=PollResult,
        )
        result: PollResult = await handle.result()
        if not result.items and result.next_offset <= self._next:  # it made room for another one
            self._queries = _QUERIES
        return result

    async def _queried(self) -> PollResult | None:
        """What a query finds; None where it finds nothing new."""
        try:
            result = await self._query(self._next)
        except RPCError as error:
            if error.status is RPCStatusCode.NOT_FOUND:
                raise
            return PollResult(next_offset=self._next)
        return result if result.items or result.next_offset > self._next else None

    async def _last_words(self) -> PollResult | None:
        """What a thread that has ended still holds; a thread that went on as a new run is asked there."""
        described = await self._handle.describe()
        if described.close_time is None:
            return PollResult(next_offset=self._next)
        try:
            result = await self._query(self._next)
        except WorkflowQueryFailedError:
            return None
        return result if result.items or result.more_ready else None

    async def _query(self, offset: int) -> PollResult:
        result: PollResult = await self._handle.query(
            POLL, PollInput([TOPIC], offset), result_type=PollResult
        )
        return result

    def _decoded(self, result: PollResult) -> list[Seen]:
        found: list[Seen] = []
        for item in result.items:
            payload = Payload.FromString(base64.b64decode(item.data))
            found.append(Seen(self._converter.from_payload(payload), item.offset + 1))
        return found


def _is_cancelled(error: BaseException) -> bool:
    return isinstance(error.__cause__, asyncio.CancelledError)
