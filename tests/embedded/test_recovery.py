"""After kill -9 of any part the next start has everything that was acknowledged."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import psutil
import pytest

from embedded.account import database_account
from embedded.cluster import locate
from embedded.errors import EmbeddedError
from embedded.postgres import _postgres
from embedded.stack import Stack, running
from embedded.state import StateFolder, free_port
from embedded.temporal_server import Ports, TemporalServer
from embedded.wheels import find_postgres, find_temporal
from tests.embedded.helpers import PATIENCE, find_traces, leave_traces, owner, servers, until

if TYPE_CHECKING:
    from pathlib import Path

NAMES = {"postgres": "PostgreSQL", "temporal": "Temporal's dev server"}


@pytest.mark.parametrize("program", NAMES)
async def test_a_killed_server_is_named_and_the_next_start_has_all(used: Path, program: str) -> None:
    async with Stack(used) as stack:
        await leave_traces(stack.addresses, 2)
        servers(used)[program].kill()
        with pytest.raises(EmbeddedError, match=f"^{NAMES[program]} has stopped unexpectedly: "):
            await asyncio.wait_for(stack.watch(), PATIENCE)
    assert servers(used) == {}
    async with Stack(used) as stack:
        assert await find_traces(stack.addresses, 2)


async def test_a_killed_owner_is_followed_by_its_servers_and_the_next_start_has_all(used: Path) -> None:
    with owner(used) as other:
        left = list(servers(used).values())
        await leave_traces(other.addresses, 2)
        other.kill()
    assert running(used) is None
    if sys.platform == "linux":
        _, alive = psutil.wait_procs(left, timeout=PATIENCE)
        assert alive == []
    async with Stack(used) as stack:
        assert stack.addresses == other.addresses
        assert await find_traces(stack.addresses, 2)


async def test_orphans_are_stopped_before_the_next_start(used: Path) -> None:
    orphans = await _orphans(used)
    await until(lambda: all(_serves(used, each.pid) for each in orphans))
    async with Stack(used) as stack:
        assert await find_traces(stack.addresses)
        assert not {each.pid for each in orphans} & {each.pid for each in servers(used).values()}
    for each in orphans:
        await each.wait()


async def test_a_stale_pid_file_that_names_a_living_stranger_is_no_obstacle(used: Path) -> None:
    cluster = locate(StateFolder(used))
    account = cluster.account
    user: dict[str, Any] = {} if account is None else {"user": account.uid}
    stranger = await asyncio.create_subprocess_exec("/bin/sleep", "60", cwd="/", **user)
    pid_file = cluster.data / "postmaster.pid"
    pid_file.write_text(f"{stranger.pid}\n{cluster.data}\n1\n1\n\n127.0.0.1\n1 1\nready\n")
    async with Stack(used, temporal=False) as stack:
        assert stack.addresses.database_url
    assert stranger.returncode is None
    stranger.kill()
    await stranger.wait()


async def test_an_interrupted_first_start_is_begun_anew(home: Path) -> None:
    task = asyncio.create_task(Stack(home, temporal=False).__aenter__())
    await until((home / "postgres" / "data.partial").exists)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    (home / "postgres" / "data.partial").mkdir(exist_ok=True)
    (home / "postgres" / "data.partial" / "rubbish").touch()
    async with Stack(home, temporal=False) as stack:
        assert stack.addresses.database_url


async def test_a_damaged_record_costs_nothing_but_the_ports(used: Path) -> None:
    StateFolder(used).record.write_text("{")
    async with Stack(used, temporal=False) as stack:
        assert stack.addresses.database_url


async def test_a_database_without_its_passwords_is_refused_with_one_sentence(used: Path) -> None:
    (used / "secrets.json").unlink()
    with pytest.raises(EmbeddedError, match=r"^The passwords of the database in .* are gone: restore"):
        async with Stack(used, temporal=False):
            pass


async def test_a_database_of_another_major_version_is_refused_with_one_sentence(used: Path) -> None:
    (used / "postgres" / "data" / "PG_VERSION").write_text("17\n")
    with pytest.raises(EmbeddedError, match=r"was made by PostgreSQL 17, and 18 is installed: install"):
        async with Stack(used, temporal=False):
            pass


async def _orphans(home: Path) -> list[asyncio.subprocess.Process]:
    """Both servers as they would be left where nothing ties them to us."""
    folder = StateFolder(home)
    cluster = locate(folder)
    account = database_account(cluster.folder)
    user: dict[str, Any] = {} if account is None else {"user": account.uid, "group": account.gid}
    program = find_temporal()
    assert program
    start = asyncio.create_subprocess_exec
    quiet = subprocess.DEVNULL
    arguments = TemporalServer(folder, program)._arguments(Ports(free_port(), free_port()))
    temporal = await start(*arguments, stdout=quiet, stderr=quiet)
    folder.update_record(temporal_pid=temporal.pid)
    arguments = _postgres(cluster, find_postgres(), free_port())
    postgres = await start(*arguments, cwd="/", stdout=quiet, stderr=quiet, **user)
    return [postgres, temporal]


def _serves(home: Path, pid: int) -> bool:
    """Whether an orphan has come so far that it is in the way; PostgreSQL then has written its id."""
    return pid == locate(StateFolder(home)).postmaster_pid() or bool(psutil.Process(pid).net_connections())
