"""Calls that come together share one flush, and none is left behind."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from classifier.audit.batching import Batcher


async def test_what_is_submitted_as_the_last_batch_ends_is_flushed() -> None:
    late: list[asyncio.Future[list[int]]] = []

    async def flush(items: Sequence[int]) -> Sequence[int]:
        if items == [1]:
            late.append(asyncio.ensure_future(batcher.submit([2])))
        return [10 * item for item in items]

    batcher: Batcher[int, int] = Batcher(flush, limit=10, concurrency=1)
    assert await batcher.submit([1]) == [10]
    async with asyncio.timeout(5):
        assert await late[0] == [20]


async def test_what_comes_while_a_batch_is_under_way_goes_with_the_next() -> None:
    calls: list[list[int]] = []
    go = asyncio.Event()

    async def flush(items: Sequence[int]) -> Sequence[int]:
        calls.append(list(items))
        await go.wait()
        return items

    batcher: Batcher[int, int] = Batcher(flush, limit=2, concurrency=1)
    submitted = [asyncio.ensure_future(batcher.submit([number])) for number in range(4)]
    while not calls:
        await asyncio.sleep(0)
    go.set()
    assert await asyncio.gather(*submitted) == [[0], [1], [2], [3]]
    await batcher.drained()
    assert calls == [[0, 1], [2, 3]]
