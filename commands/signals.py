"""Signals that a command takes itself, where the system has handlers for them."""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections.abc import Callable, Generator


@contextlib.contextmanager
def taking(*numbers: signal.Signals, act: Callable[[], None]) -> Generator[None]:
    """Calls `act` for each of these until the block ends; on Windows Ctrl-C cancels the main task instead."""
    loop = asyncio.get_running_loop()
    try:
        for number in numbers:
            loop.add_signal_handler(number, act)
    except NotImplementedError:  # Windows has no such handlers
        numbers = ()
    try:
        yield
    finally:
        for number in numbers:
            loop.remove_signal_handler(number)
