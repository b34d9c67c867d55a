"""Publishes what a model call releases into its thread's stream, in order, each batch once. I/O.

A batch is a signal with publisher and sequence number, so the thread drops a repeat. Decisions that could not
be stored go ahead of the text they let through.
"""

from __future__ import annotations

import asyncio
import base64
import time
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Any, Self

from temporalio.client import WorkflowHandle
from temporalio.contrib.workflow_streams import PublishEntry, PublishInput
from temporalio.converter import PayloadConverter

from activities.chat_messages import PUBLISH, RECORDS, TOPIC, Event
from classifier.temporal.travel import chunks

SHORTEST_PAUSE = 0.1
LONGEST_PAUSE = 1.0
_SLOWER_PER_SECOND = 0.01
"""A long reply is published in larger batches, since each one grows the thread's history."""
_MERGED_CHARACTERS = 50_000


class Publisher:
    """Collects events and sends them while the model goes on; use it as a context manager.

    Args:
        thread: The workflow that holds the stream.
        converter: How values become payloads.
        publisher: The name under which batches are counted.
        travelling: Takes the decisions that have to go with the next batch, and forgets them.
    """

    def __init__(
        self,
        thread: WorkflowHandle[Any, Any],
        converter: PayloadConverter,
        publisher: str,
        travelling: Callable[[], Sequence[dict[str, Any]]],
    ) -> None:
        self._thread = thread
        self._converter = converter
        self._publisher = publisher
        self._travelling = travelling
        self._buffer: list[Event] = []
        self._sequence = 0
        self._news = asyncio.Event()
        self._sending = asyncio.Lock()
        self._began = time.monotonic()
        self._loop: asyncio.Task[None] | None = None

    def add(self, event: Event) -> None:
        """An event to publish; raises what an earlier batch failed with."""
        self._raise_if_broken()
        last = self._buffer[-1] if self._buffer else None
        mergeable = last is not None and len(last.get("text", "")) < _MERGED_CHARACTERS
        if last is not None and mergeable and event["type"] == last["type"] == "text":
            last["text"] += event["text"]
        else:
            self._buffer.append(event)
        self._news.set()

    async def flush(self) -> None:
        """Returns when everything that was added is in the thread's history."""
        self._raise_if_broken()
        async with self._sending:
            events, self._buffer = self._buffer, []
            bodies = list(self._travelling()) if events else []
            batches = [[self._entry(RECORDS, chunk)] for chunk in chunks(bodies)]
            batches += [[self._entry(TOPIC, event) for event in chunk] for chunk in chunks(events)]
            for batch in batches:
                self._sequence += 1
                given = PublishInput(items=batch, publisher_id=self._publisher, sequence=self._sequence)
                await self._thread.signal(PUBLISH, given)

    async def __aenter__(self) -> Self:
        self._loop = asyncio.create_task(self._run())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._loop is not None:
            self._loop.cancel()
            await asyncio.wait({self._loop})

    async def _run(self) -> None:
        while True:
            await self._news.wait()
            self._news.clear()
            await self.flush()
            pause = SHORTEST_PAUSE + (time.monotonic() - self._began) * _SLOWER_PER_SECOND
            await asyncio.sleep(min(pause, LONGEST_PAUSE))

    def _raise_if_broken(self) -> None:
        if self._loop is not None and self._loop.done():
            self._loop.result()

    def _entry(self, topic: str, value: Any) -> PublishEntry:
        (payload,) = self._converter.to_payloads([value])
        return PublishEntry(topic, base64.b64encode(payload.SerializeToString()).decode("ascii"))
