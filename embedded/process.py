"""A server as a child process: started tied to our life where possible, watched, stopped, found as an orphan.

On Linux the kernel stops a child when we die, or when the thread that started it ends (`embedded.tethered`).
Elsewhere, and for a child that outlives even that, the next start finds the orphan by its command line.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from embedded import tethered

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from embedded.account import Account

logger = logging.getLogger(__name__)

PATIENCE = 15.0  # seconds between a polite stop and the next, less polite one
READY_LIMIT = 60.0  # seconds; a database that crashed under load replays its log first
READY_POLL = 0.01  # seconds between two questions whether a server answers
ORPHAN_POLL = 0.02  # seconds; somebody else's child cannot be awaited
_KILL = signal.SIGTERM if sys.platform == "win32" else signal.SIGKILL


@dataclass(frozen=True, slots=True)
class Command:
    """What to run: program and arguments, where its output goes, whom it runs as, how it is stopped."""

    arguments: tuple[str, ...]
    log: int
    account: Account | None = None
    stop_signals: tuple[signal.Signals, ...] = (signal.SIGTERM,)


class Child:
    """A running server of ours."""

    def __init__(self, process: asyncio.subprocess.Process, stop_signals: Sequence[signal.Signals]) -> None:
        self._process = process
        self._stop_signals = stop_signals

    @classmethod
    async def start(cls, command: Command) -> Child:
        """Start it in a session of its own, so that Ctrl-C reaches us alone and we stop it in order."""
        process = await asyncio.create_subprocess_exec(
            *_tethered(command),
            stdin=subprocess.DEVNULL,
            stdout=command.log,
            stderr=command.log,
            env=_environment(),
            cwd="/" if command.account else None,  # ours may be closed to that account
            start_new_session=True,
            umask=0o077,
            **_switch(command.account),
        )
        return cls(process, command.stop_signals)

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def ended(self) -> bool:
        return self._process.returncode is not None

    async def wait(self) -> int:
        """Its exit code, once it has ended."""
        return await self._process.wait()

    async def stop(self) -> None:
        """Ask it to stop, more firmly each time, and return when it is gone."""
        for each in (*self._stop_signals, _KILL):
            if self.ended:
                return
            with contextlib.suppress(ProcessLookupError):
                self._process.send_signal(each)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._process.wait(), PATIENCE)


async def stop_orphan(pid: int | None, mark: str, stop_signals: Sequence[signal.Signals]) -> bool:
    """Stop a server that an earlier owner left behind.

    Args:
        pid: Where it was last seen.
        mark: Words of a command line that only our server has, such as the path of its data: proof that
            the id was not given to some other program since.
        stop_signals: What to send, politest first; SIGKILL follows.

    Returns:
        Whether there was an orphan. When true, it is gone.
    """
    if pid is None or mark not in command_line(pid):
        return False
    logger.warning("process %d was left behind and is stopped", pid)
    for each in (*stop_signals, _KILL):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, each)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(PATIENCE):
                while mark in command_line(pid):  # noqa: ASYNC110 -- there is no event for a stranger's child
                    await asyncio.sleep(ORPHAN_POLL)
                return True
    return True


def command_line(pid: int) -> str:
    """The command line of a process; empty when it is gone, a zombie, or not ours to see."""
    if sys.platform == "win32":
        return ""
    if sys.platform == "linux":
        try:
            return os.fsdecode(Path(f"/proc/{pid}/cmdline").read_bytes()).replace("\0", " ")
        except OSError:
            return ""
    listing = subprocess.run(  # noqa: S603 -- a constant and a number
        ["/bin/ps", "-ww", "-o", "command=", "-p", str(pid)], capture_output=True, text=True, check=False
    )
    return listing.stdout


async def until_ready(child: Child, probe: Callable[[], Awaitable[bool]]) -> bool:
    """Ask `probe` until it says yes (true), the child ends (false) or `READY_LIMIT` is over (raises)."""
    ended = asyncio.ensure_future(child.wait())
    try:
        async with asyncio.timeout(READY_LIMIT):
            while not ended.done():
                if await probe():
                    return True
                await asyncio.wait({ended}, timeout=READY_POLL)
        return False
    finally:
        ended.cancel()


def _tethered(command: Command) -> tuple[str, ...]:
    if not _can_tether():
        return command.arguments
    uid, gid = (command.account.uid, command.account.gid) if command.account else (-1, -1)
    signal_number = command.stop_signals[0].value
    tether = (sys.executable, "-I", "-S", tethered.__file__, os.getpid(), signal_number, uid, gid)
    return (*(str(argument) for argument in tether), *command.arguments)


def _switch(account: Account | None) -> dict[str, Any]:
    if account is None or _can_tether():
        return {}
    return {"user": account.uid, "group": account.gid, "extra_groups": []}


def _can_tether() -> bool:
    return sys.platform == "linux" and bool(sys.executable)


def _environment() -> dict[str, str] | None:
    """Almost nothing, so that no PG* or TEMPORAL_* variable of the user's changes what we start."""
    if sys.platform == "win32":
        return None  # programs do not start there without the system's own variables
    return {"PATH": os.defpath, "LC_ALL": "C", "TZ": "UTC"}
