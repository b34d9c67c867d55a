"""Merges calls that come together: the first goes at once, those that come meanwhile go with the next."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import Generic, TypeVar

T = TypeVar("T")
R = TypeVar("R")


class Batcher(Generic[T, R]):
    """Calls `flush` with what is waiting; nobody waits for a batch to fill.

    An item that was submitted is flushed even if its caller has been cancelled since.

    Args:
        flush: Gives one result per item, in order. What it raises, every item of the batch raises.
        limit: Items in one call at most.
        concurrency: Calls at once at most.
    """

    def __init__(
        self, flush: Callable[[Sequence[T]], Awaitable[Sequence[R]]], *, limit: int, concurrency: int
    ) -> None:
        self._flush = flush
        self._limit = limit
        self._concurrency = concurrency
        self._waiting: deque[tuple[T, asyncio.Future[R]]] = deque()
        self._running: set[asyncio.Task[None]] = set()

    async def submit(self, items: Sequence[T]) -> list[R]:
        """The results for `items`, which may share their call with others'."""
        loop = asyncio.get_running_loop()
        futures = [loop.create_future() for _ in items]
        self._waiting.extend(zip(items, futures, strict=True))
        if self._waiting and len(self._running) < self._concurrency:
            self._running.add(asyncio.create_task(self._drain()))
        return list(await asyncio.gather(*futures))

    async def drained(self) -> None:
        """Returns when nothing is under way."""
        while self._running:
            await asyncio.wait(self._running)

    async def _drain(self) -> None:
        try:
            while self._waiting:
                count = min(self._limit, len(self._waiting))
                batch = [self._waiting.popleft() for _ in range(count)]
                await self._run(batch)
        finally:  # at once, not in a callback: whoever submits next has to start another
            self._running -= {asyncio.current_task()}

    async def _run(self, batch: list[tuple[T, asyncio.Future[R]]]) -> None:
        open_futures = [future for _, future in batch]
        try:
            results = await self._flush([item for item, _ in batch])
        except BaseException as error:
            for future in open_futures:
                if not future.done():
                    future.set_exception(error) if isinstance(error, Exception) else future.cancel()
            if not isinstance(error, Exception):
                raise
            return
        for future, result in zip(open_futures, results, strict=True):
            if not future.done():
                future.set_result(result)
