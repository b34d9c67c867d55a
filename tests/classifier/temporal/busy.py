"""How long the event loop's callbacks keep the processor, whoever else runs on the machine."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import time
from collections.abc import Callable, Generator
from typing import Any


@contextlib.contextmanager
def busy() -> Generator[Callable[[], float]]:
    """Seconds of processor time of the longest callback inside the block.

    asyncio's own detector measures the clock, which on a busy machine measures the others. No garbage is
    collected meanwhile, since going through all that a run of tests has loaded takes a second.
    """
    longest = 0.0
    handles: Any = asyncio.Handle
    run: Callable[[Any], None] = handles._run

    def timed(handle: Any) -> None:
        nonlocal longest
        began = time.thread_time()
        run(handle)
        longest = max(longest, time.thread_time() - began)

    handles._run = timed
    gc.disable()
    try:
        yield lambda: longest
    finally:
        handles._run = run
        gc.enable()
