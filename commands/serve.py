"""`classifier up` and `classifier worker`: run until told to stop."""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections.abc import Coroutine, Generator

from rich.console import Console

from commands.show import say
from worker import Settings, app_of, opened, working


async def up(settings: Settings, console: Console) -> None:
    """The stack and a worker, until Ctrl-C or until a part of the stack dies.

    Raises:
        EmbeddedError: Another process runs a stack on this folder, or a part died.
        ConfigurationError: The app cannot start.
    """
    declared = app_of(settings)
    async with opened(settings, alone=True) as service, working(service, declared):
        say(console, f"running in {settings.home}")
        if service.addresses.temporal_ui:
            say(console, f"Temporal UI  {service.addresses.temporal_ui}")
        say(console, f"task queue   {settings.task_queue}")
        say(console, "stop with Ctrl-C")
        await _until_stopped(service.watch())


async def worker(settings: Settings, console: Console) -> None:
    """A worker, until SIGTERM or Ctrl-C; calls in flight finish first.

    Raises:
        ConfigurationError: The app cannot start.
    """
    declared = app_of(settings)
    async with opened(settings) as service, working(service, declared):
        say(console, f"worker polls {settings.task_queue}; stop with Ctrl-C")
        await _until_stopped(service.watch())


async def _until_stopped(watching: Coroutine[None, None, None]) -> None:
    stopped = asyncio.Event()
    with _signals(stopped):
        watch = asyncio.create_task(watching)
        stop = asyncio.create_task(stopped.wait())
        done, pending = await asyncio.wait({watch, stop}, return_when=asyncio.FIRST_COMPLETED)
        for task in pending:
            task.cancel()
        if watch in done:
            watch.result()


@contextlib.contextmanager
def _signals(stopped: asyncio.Event) -> Generator[None]:
    loop = asyncio.get_running_loop()
    caught = [signal.SIGINT, signal.SIGTERM]
    try:
        for number in caught:
            loop.add_signal_handler(number, stopped.set)
    except NotImplementedError:  # Windows has no such handlers; Ctrl-C cancels the main task there
        caught = []
    try:
        yield
    finally:
        for number in caught:
            loop.remove_signal_handler(number)
