"""Reads lines of a file or a pipe in batches, without holding up anything else."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Iterable
from concurrent.futures import Future
from itertools import islice
from typing import TypeVar

T = TypeVar("T")


async def batches(lines: Iterable[bytes], size: int) -> AsyncIterator[list[tuple[int, bytes]]]:
    """Lines that are not blank, with their numbers from 1."""
    numbered = ((number, line) for number, line in enumerate(lines, 1) if line.strip())
    while batch := await _in_daemon_thread(lambda: list(islice(numbered, size))):
        yield batch


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
