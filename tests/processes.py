"""The command `classifier` as a process of its own, forked: its own environment, folder and streams.

finished = await run("triage", "-", environ=environment(home), given=lines)
async with started("up", environ=environment(home)) as up:
    await up.said("stop with Ctrl-C")
    assert await up.interrupted() == 0
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import sys
import tempfile
from asyncio.subprocess import DEVNULL
from collections.abc import AsyncGenerator, Callable, Generator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from tests.forked import Forked, fork
from tests.tree import NOBODYS_CA, ROOT

PROGRAM = str(Path(sys.executable).with_name("classifier"))
PATIENCE = 180.0


@contextlib.contextmanager
def state_folder() -> Generator[Path]:
    """An empty state folder that other accounts may enter, as root's PostgreSQL needs it."""
    with tempfile.TemporaryDirectory(prefix="classifier-home-") as folder:
        Path(folder).chmod(0o755)
        yield Path(folder)


def environment(home: Path, **given: str) -> dict[str, str]:
    """Nothing of ours but the state folder and what is given."""
    ours = {"HOME": str(home), "CLASSIFIER_HOME": str(home)}
    return {"PATH": os.defpath, "COLUMNS": "120", "SSL_CERT_FILE": NOBODYS_CA, **ours, **given}


@dataclass(frozen=True, slots=True)
class Finished:
    """What a process left behind."""

    code: int
    output: str
    errors: str

    @property
    def json(self) -> Any:
        """Standard output, which must be one JSON document."""
        return json.loads(self.output)

    @property
    def sentence(self) -> str:
        """The one line of standard error that says what is wrong."""
        assert "Traceback" not in self.errors, self.errors
        (line,) = self.errors.splitlines()
        assert line.startswith("error "), line
        return line.removeprefix("error ")


class Running:
    """A process, and what it has said so far."""

    def __init__(self, process: Forked, output: asyncio.StreamReader, errors: asyncio.StreamReader) -> None:
        self.process = process
        self._said = {"output": b"", "errors": b""}
        self._news = asyncio.Event()
        self._readers = [
            asyncio.create_task(self._read(output, "output")),
            asyncio.create_task(self._read(errors, "errors")),
        ]

    @property
    def pid(self) -> int:
        return self.process.pid

    @property
    def errors(self) -> str:
        return self._said["errors"].decode()

    async def said(self, text: str) -> None:
        """Returns when `text` has appeared on standard error."""
        async with asyncio.timeout(PATIENCE):
            while text not in self.errors:
                ended = all(reader.done() for reader in self._readers)
                assert not ended, f"it ended without saying {text!r}: {self.errors}"
                self._news.clear()
                await self._news.wait()

    async def finished(self) -> Finished:
        """Returns when it has ended and everything it said is read."""
        async with asyncio.timeout(PATIENCE):
            await asyncio.gather(*self._readers)
            code = await self.process.wait()
        return Finished(code, self._said["output"].decode(), self.errors)

    async def state(self) -> str:
        """What it has said on standard error, and, where it still runs, which line each thread is at."""
        if self.process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGUSR1)
            await asyncio.sleep(1)
        return self.errors

    async def interrupted(self) -> Finished:
        """Ctrl-C: the signal goes to the whole group, as from a terminal."""
        os.killpg(self.pid, signal.SIGINT)
        return await self.finished()

    async def terminated(self) -> Finished:
        """SIGTERM, to the process alone."""
        os.kill(self.pid, signal.SIGTERM)
        return await self.finished()

    async def killed(self) -> Finished:
        """SIGKILL: no chance to tidy up."""
        os.kill(self.pid, signal.SIGKILL)
        return await self.finished()

    async def _read(self, stream: asyncio.StreamReader, name: str) -> None:
        while chunk := await stream.read(65_536):
            self._said[name] += chunk
            self._news.set()
        self._news.set()


@contextlib.asynccontextmanager
async def started(
    *arguments: str, environ: dict[str, str], module: str | None = None, stdin: int = DEVNULL
) -> AsyncGenerator[Running]:
    """The command, or `python -m module`, which runs meanwhile; whatever is left of it is killed."""
    async with contextlib.AsyncExitStack() as exits:
        given = os.open(os.devnull, os.O_RDONLY) if stdin == DEVNULL else stdin
        output, stdout = await exits.enter_async_context(_pipe())
        errors, stderr = await exits.enter_async_context(_pipe())
        argv = (PROGRAM if module is None else module, *arguments)
        try:
            process = await fork(argv, environ, module=module, stdin=given, stdout=stdout, stderr=stderr)
        finally:
            os.close(stdout)
            os.close(stderr)
            if stdin == DEVNULL:
                os.close(given)
        async with _ended(Running(process, output, errors), " ".join(arguments)) as running:
            yield running


@contextlib.asynccontextmanager
async def _ended(running: Running, name: str) -> AsyncGenerator[Running]:
    """Kills what is left of it; an error on the way tells what it has said, and where it is."""
    try:
        yield running
    except BaseException as error:
        error.add_note(f"{name} said: {await running.state()}")
        raise
    finally:
        if running.process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(running.pid, signal.SIGKILL)
        await running.finished()


@contextlib.asynccontextmanager
async def _pipe() -> AsyncGenerator[tuple[asyncio.StreamReader, int]]:
    """A pipe's two ends; whoever takes the second closes it."""
    reads, writes = os.pipe()
    reader = asyncio.StreamReader()
    transport, _ = await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(reads, "rb")
    )
    try:
        yield reader, writes
    finally:
        transport.close()


async def run(*arguments: str, environ: dict[str, str], given: bytes = b"") -> Finished:
    """Runs the command to its end, with `given` on standard input."""
    with tempfile.TemporaryFile() as stdin:
        stdin.write(given)
        stdin.seek(0)
        async with started(*arguments, environ=environ, stdin=stdin.fileno()) as running:
            return await running.finished()


async def run_on_a_terminal(*arguments: str, environ: dict[str, str]) -> tuple[int, str]:
    """Runs the command on a terminal of its own; the exit code and all that the terminal was sent."""
    master, slave = os.openpty()
    try:
        process = await asyncio.create_subprocess_exec(
            PROGRAM, *arguments, cwd=ROOT, env=environ, stdin=slave, stdout=slave, stderr=slave
        )
    finally:
        os.close(slave)
    try:
        screen = await asyncio.to_thread(_read_to_the_end, master)
        return await process.wait(), screen.decode()
    finally:
        os.close(master)


def descendants(pid: int) -> list[psutil.Process]:
    """Every process below this one."""
    return psutil.Process(pid).children(recursive=True)


async def until(true: Callable[[], bool]) -> None:
    """Returns as soon as something outside this process is so, of which no event tells."""
    async with asyncio.timeout(PATIENCE):
        while not true():
            await asyncio.sleep(0.02)


def peak_memory(pid: int) -> float:
    """The most memory a process ever held, in MB; where the system does not say, what it holds now."""
    status = Path(f"/proc/{pid}/status")
    if not status.exists():
        return float(psutil.Process(pid).memory_info().rss) / 1e6
    (line,) = [line for line in status.read_text().splitlines() if line.startswith("VmHWM:")]
    return int(line.split()[1]) * 1024 / 1e6


def _read_to_the_end(descriptor: int) -> bytes:
    screen = b""
    with contextlib.suppress(OSError):  # Linux says so when the last process has left the terminal
        while chunk := os.read(descriptor, 65_536):
            screen += chunk
    return screen
