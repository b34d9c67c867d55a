"""`classifier up` and `classifier worker`: run until told to stop."""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections.abc import AsyncGenerator, Coroutine
from datetime import timedelta

from rich.console import Console

from classifier.app import ResolvedApp
from classifier.errors import ConfigurationError
from classifier.judging import LONGEST_END
from classifier.temporal.leaving import Leaving
from commands.guards import guards
from commands.housekeeping import housekeeping
from commands.show import say
from commands.signals import taking
from worker import GRACE, Settings, app_of, opened, working

_FOR_THE_SDK = timedelta(seconds=2)
LAST = timedelta(seconds=LONGEST_END + 5)
"""What is cut off may still record; a worker that has not ended by then does not end by itself."""
STOPPING = f"stopping; calls in flight have {GRACE.seconds} s, being told again cuts them off"


async def up(settings: Settings, console: Console) -> None:
    """The stack and a worker, until Ctrl-C or until a part of the stack dies.

    Raises:
        EmbeddedError: Another process runs a stack on this folder, or a part died.
        ConfigurationError: The app cannot start.
    """
    declared = app_of(settings)
    async with (
        stoppable() as stop,
        opened(settings, alone=True, measured=True) as service,
        working(service, declared, leaving=stop.leaving) as app,
        housekeeping(service, stop.leaving),
    ):
        _say_guards(console, app)
        say(console, f"running in {settings.home}")
        if service.addresses.temporal_ui:
            say(console, f"Temporal UI  {service.addresses.temporal_ui}")
        say(console, f"task queue   {settings.task_queue}")
        say(console, "stop with Ctrl-C")
        await stop.asked_for(service.watch())
        say(console, STOPPING)


async def worker(settings: Settings, console: Console) -> None:
    """A worker, until SIGTERM or Ctrl-C; calls in flight finish first.

    Raises:
        ConfigurationError: The app cannot start, or there is no version to promote.
    """
    if settings.promote is not None and settings.version is None:
        raise ConfigurationError(
            "promoting needs a version: set CLASSIFIER_DEPLOYMENT and CLASSIFIER_BUILD_ID"
        )
    declared = app_of(settings)
    async with (
        stoppable() as stop,
        opened(settings, measured=True) as service,
        working(service, declared, leaving=stop.leaving) as app,
        housekeeping(service, stop.leaving),
    ):
        _say_guards(console, app)
        say(console, f"worker polls {settings.task_queue}; stop with Ctrl-C")
        await stop.asked_for(service.watch())
        say(console, STOPPING)


def _say_guards(console: Console, app: ResolvedApp) -> None:
    for guard in guards(app):
        say(console, f"processor {guard.id}: {guard.description}")
        if guard.warning:
            say(console, f"warning: {guard.warning}")


class _Stop:
    """What signals ask for: first to stop when calls in flight have ended, then to stop at once.

    The SDK cancels what has not ended after its grace, but was seen to miss an activity, and to wait for ever
    when all its tasks had ended; so this cuts off what is left, and at last the waiting.
    """

    def __init__(self, grace: timedelta = GRACE + _FOR_THE_SDK, last: timedelta = LAST) -> None:
        self.leaving = Leaving()
        self._grace = grace.total_seconds()
        self._last = last.total_seconds()
        self.asked = False
        self._waiting: asyncio.Future[None] | None = None
        self._main = asyncio.current_task()

    def signalled(self) -> None:
        """A signal came."""
        if self.asked:
            self._leave()
            return
        asyncio.get_running_loop().call_later(self._grace, self._leave)
        if self._waiting is not None:
            self._waiting.cancel()
        else:  # it is still starting
            self._cancel()
        self.asked = True

    def _leave(self) -> None:
        self.leaving.leave()
        asyncio.get_running_loop().call_later(self._last, self._cancel)

    def _cancel(self) -> None:
        if self._main is not None:
            self._main.cancel()

    def forget(self) -> None:
        """The cancel has done its work."""
        if self._main is not None:
            self._main.uncancel()

    async def asked_for(self, watching: Coroutine[None, None, None]) -> None:
        """Returns when a signal comes; raises what `watching` raises."""
        self._waiting = asyncio.ensure_future(watching)
        try:
            await asyncio.wait({self._waiting})
            if not self.asked:
                await self._waiting
        finally:
            self._waiting.cancel()


@contextlib.asynccontextmanager
async def stoppable() -> AsyncGenerator[_Stop]:
    """Takes signals until everything inside is closed; being told to stop is no error."""
    stop = _Stop()
    with taking(signal.SIGINT, signal.SIGTERM, act=stop.signalled):
        try:
            yield stop
        except asyncio.CancelledError:
            if not stop.asked:
                raise
            stop.forget()
