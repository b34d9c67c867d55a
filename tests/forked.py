"""Processes that have their imports already: they take it two to three seconds of CPU.

A server, which holds nothing but imported modules, forks one process after the other.
"""

from __future__ import annotations

import asyncio
import faulthandler
import multiprocessing
import os
import runpy
import signal
import sys
from collections.abc import Mapping, Sequence
from multiprocessing.context import ForkServerProcess
from multiprocessing.reduction import DupFd
from typing import Any

from cli import main
from tests.tree import ROOT

_FORKING = multiprocessing.get_context("forkserver")
_FORKING.set_forkserver_preload(
    [
        "commands.chat",
        "commands.look",
        "commands.maintain",
        "commands.reviews",
        "commands.serve",
        "commands.triage_file",
        "openai",
        "pytest",
        "tests.apps.cliff",
        "tests.classifier.temporal.chats",
        "tests.forked",
        "worker",
        "tests.preloaded",  # the last one, since it takes all that is loaded
    ]
)


class Forked:
    """A process that was forked.

    Attributes:
        pid: Also the id of its session.
        returncode: Minus the signal where one ended it; None until it has ended.
    """

    def __init__(self, process: ForkServerProcess) -> None:
        assert process.pid is not None
        self.pid = process.pid
        self.returncode: int | None = None
        self._process = process
        self._ended = asyncio.Event()
        asyncio.get_running_loop().add_reader(process.sentinel, self._end)

    async def wait(self) -> int:
        """The exit code."""
        await self._ended.wait()
        assert self.returncode is not None
        return self.returncode

    def _end(self) -> None:
        asyncio.get_running_loop().remove_reader(self._process.sentinel)
        self._process.join()
        self.returncode = self._process.exitcode
        self._process.close()
        self._ended.set()


async def fork(
    argv: Sequence[str],
    environ: Mapping[str, str],
    *,
    module: str | None,
    stdin: int,
    stdout: int,
    stderr: int,
) -> Forked:
    """The command `classifier`, or `python -m module`, in a session of its own.

    SIGUSR1 has it say on its standard error which line each of its threads is at.

    Args:
        argv: The program's name and its arguments.
        environ: All that its environment holds.
        module: What runs; None runs the command.
        stdin: Becomes its standard input.
        stdout: Becomes its standard output.
        stderr: Becomes its standard error.
    """
    streams = _Streams((stdin, stdout, stderr))
    process = _FORKING.Process(target=_run, args=(module, argv, dict(environ), streams))
    await asyncio.to_thread(process.start)
    return Forked(process)


class _Streams:
    """Descriptors that travel with the process that is started."""

    def __init__(self, streams: Sequence[int]) -> None:
        self._streams = streams

    def __getstate__(self) -> list[Any]:
        return [DupFd(stream) for stream in self._streams]

    def __setstate__(self, travelled: list[Any]) -> None:
        self._streams = [each.detach() for each in travelled]

    def take(self) -> None:
        """Makes them the standard ones of this process."""
        for standard, stream in enumerate(self._streams):
            os.dup2(stream, standard)
            os.close(stream)
        # The server's own may have been files, and remember that.
        sys.stdin, sys.stdout = open(0, closefd=False), open(1, "w", closefd=False)  # noqa: SIM115 - they stay
        sys.stderr = open(2, "w", buffering=1, errors="backslashreplace", closefd=False)  # noqa: SIM115


def _run(module: str | None, argv: Sequence[str], environ: Mapping[str, str], streams: _Streams) -> None:
    streams.take()
    os.setsid()
    faulthandler.register(signal.SIGUSR1)
    os.chdir(ROOT)
    os.environ.clear()
    os.environ.update(environ)
    sys.path[:0] = [path for path in environ.get("PYTHONPATH", "").split(os.pathsep) if path]
    sys.argv = list(argv)
    if module is None:
        main()
    else:
        runpy.run_module(module, run_name="__main__", alter_sys=True)
