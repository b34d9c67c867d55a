"""Reads in batches: lines of a file or a pipe, without holding up anything else, or what comes one by one."""

from __future__ import annotations

import asyncio
import threading
from codecs import BOM_UTF8
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable
from concurrent.futures import Future
from itertools import islice
from typing import TypeVar

T = TypeVar("T")


async def batches(lines: Iterable[bytes], size: int) -> AsyncIterator[list[tuple[int, bytes]]]:
    """Lines that are not blank, with their numbers from 1; a mark before the first is no part of it."""
    marked = (line if number > 1 else line.removeprefix(BOM_UTF8) for number, line in enumerate(lines, 1))
    numbered = ((number, line) for number, line in enumerate(marked, 1) if line.strip())
    while batch := await _in_daemon_thread(lambda: list(islice(numbered, size))):
        yield batch


async def grouped(items: AsyncIterator[T], size: int) -> AsyncGenerator[list[T]]:
    """What comes one by one, so many at a time."""
    group: list[T] = []
    async for item in items:
        group.append(item)
        if len(group) == size:
            yield group
            group = []
    if group:
        yield group


async def _in_daemon_thread(work: Callable[[], T]) -> T:
    """Unlike `asyncio.to_thread`, a read that waits for somebody to type does not outlive Ctrl-C."""
    done: Future[T] = Future()
    done.set_running_or_notify_cancel()

    def run() -> None:
        try:
            done.set_result(work())
        except Exception as error:  # noqa: BLE001 - handed over to the caller
            done.set_exception(error)

    threading.Thread(target=run, daemon=True).start()
    return await asyncio.wrap_future(done)
