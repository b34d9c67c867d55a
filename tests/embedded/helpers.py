"""Real clients and real processes for the tests of the embedded stack."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import sysconfig
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import asyncpg
import psutil
import pytest
from temporalio.client import Client, WorkflowExecutionStatus

from embedded.stack import Addresses

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Generator

    from embedded.account import Account

ROOT = Path(__file__).parents[2]
PATIENCE = 30


@contextlib.asynccontextmanager
async def connected(addresses: Addresses) -> AsyncGenerator[asyncpg.Connection[asyncpg.Record]]:
    """A plain connection with the address that a person is handed."""
    assert addresses.database_url
    connection = await asyncpg.connect(addresses.database_url.replace("+asyncpg", ""), ssl=False)
    try:
        yield connection
    finally:
        await connection.close()


async def leave_traces(addresses: Addresses, number: int = 1) -> None:
    """One more committed row and one more open workflow."""
    async with connected(addresses) as connection:
        await connection.execute("CREATE TABLE IF NOT EXISTS traces (id int)")
        await connection.execute("INSERT INTO traces VALUES ($1)", number)
    client = await Client.connect(addresses.temporal_address or "")
    await client.start_workflow("Anything", id=f"trace-{number}", task_queue="nobody-polls-this")


async def find_traces(addresses: Addresses, number: int = 1) -> bool:
    """Whether all rows and open workflows up to this number are there, once."""
    async with connected(addresses) as connection:
        rows = [row["id"] for row in await connection.fetch("SELECT id FROM traces ORDER BY id")]
    client = await Client.connect(addresses.temporal_address or "")
    numbers = range(1, number + 1)
    found = [await client.get_workflow_handle(f"trace-{each}").describe() for each in numbers]
    return rows == list(numbers) and {each.status for each in found} == {WorkflowExecutionStatus.RUNNING}


async def until(true: Callable[[], bool]) -> None:
    """Return as soon as something outside this process is so, of which no event tells."""
    async with asyncio.timeout(PATIENCE):
        while not true():
            await asyncio.sleep(0.01)


def servers(home: Path) -> dict[str, psutil.Process]:
    """The servers that run over a state folder, by the name of their program."""
    found: dict[str, psutil.Process] = {}
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            command = process.cmdline()
            if any(str(home) in argument for argument in command[1:]) and Path(command[0]).name in {
                "postgres",
                "temporal",
            }:
                found[Path(command[0]).name] = process
    return found


@dataclass(frozen=True, slots=True)
class Owner:
    """Another process that has started, or been refused, a stack."""

    process: subprocess.Popen[str]
    said: dict[str, str | None]

    @property
    def addresses(self) -> Addresses:
        return Addresses(**self.said)

    @property
    def refusal(self) -> str:
        return self.said["refusal"] or ""

    def kill(self) -> None:
        """As the kernel's out-of-memory killer would: no chance to tidy up."""
        self.process.kill()
        self.process.wait(PATIENCE)

    def interrupt(self) -> int:
        """Ctrl-C; returns the exit code."""
        self.process.send_signal(signal.SIGINT)
        return self.process.wait(PATIENCE)


@contextlib.contextmanager
def owner(home: Path, account: Account | None = None) -> Generator[Owner]:
    """Start a stack in a process of its own, without any environment."""
    python = _interpreter(account)
    user: dict[str, Any] = (
        {} if account is None else {"user": account.uid, "group": account.gid, "extra_groups": []}
    )
    with subprocess.Popen(
        [python, "-W", "error", "-m", "tests.embedded.owner", str(home)],
        cwd=ROOT,
        env={"PATH": os.defpath, "PYTHONPATH": sysconfig.get_path("purelib"), "PYTHONDONTWRITEBYTECODE": "1"},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        **user,
    ) as process:
        assert process.stdout
        assert process.stderr
        line = process.stdout.readline()
        assert line, process.stderr.read()
        try:
            yield Owner(process, json.loads(line))
        finally:
            if process.poll() is None:
                process.communicate(timeout=PATIENCE)


def _interpreter(account: Account | None) -> str:
    """This interpreter, or another of its version when the account may not run this one."""
    if account is None:
        return sys.executable
    if not account.can_reach(ROOT):
        pytest.skip("this checkout lies where a plain user may not enter")
    names = (sys.executable, shutil.which(f"python3.{sys.version_info.minor}", path=os.defpath))
    found = [name for name in names if name and account.can_reach(Path(name))]
    if not found:
        pytest.skip("no interpreter of this version that a plain user may run")
    return found[0]
