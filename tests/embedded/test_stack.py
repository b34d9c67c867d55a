"""Starting, stopping, sharing and refusing."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import time
from typing import TYPE_CHECKING

import pytest

from embedded.errors import EmbeddedError
from embedded.stack import Addresses, Stack, running
from embedded.state import LOOPBACK, StateFolder
from tests.embedded.helpers import connected, find_traces, owner, servers, until

if TYPE_CHECKING:
    from pathlib import Path


async def test_people_get_a_role_that_owns_its_database_and_is_not_above_row_level_security(
    shared: Stack,
) -> None:
    async with connected(shared.addresses) as connection:
        row = await connection.fetchrow(
            "SELECT rolsuper, rolbypassrls, rolcreaterole, rolname = pg_get_userbyid(datdba) AS owns "
            "FROM pg_roles, pg_database WHERE rolname = current_user AND datname = current_database()",
        )
    assert row
    assert dict(row) == {"rolsuper": False, "rolbypassrls": False, "rolcreaterole": True, "owns": True}


async def test_committed_rows_survive_a_power_cut_and_damage_is_noticed(shared: Stack) -> None:
    async with connected(shared.addresses) as connection:
        names = ("fsync", "synchronous_commit", "full_page_writes", "data_checksums")
        settings = [await connection.fetchval(f"SHOW {name}") for name in names]
    assert settings == ["on"] * len(names)


async def test_the_database_speaks_utf8_and_needs_the_password(shared: Stack) -> None:
    async with connected(shared.addresses) as connection:
        assert await connection.fetchval("SHOW server_encoding") == "UTF8"
        assert await connection.fetchval("SELECT upper('тикет')") == "ТИКЕТ"
    wrong = Addresses(
        database_url=(shared.addresses.database_url or "").replace("classifier:", "classifier:x")
    )
    with pytest.raises(Exception, match="password authentication failed"):
        async with connected(wrong):
            pass


async def test_everything_listens_on_loopback_only(shared: Stack) -> None:
    listening = {
        connection.laddr.ip
        for process in servers(shared.home).values()
        for connection in process.net_connections("tcp")
        if connection.status == "LISTEN"
    }
    assert listening == {LOOPBACK}


async def test_nobody_else_can_read_what_people_wrote(shared: Stack) -> None:
    files = [path for path in shared.home.iterdir() if path.is_file()]
    assert files
    assert [path for path in files if path.stat().st_mode & 0o077] == []


async def test_the_addresses_print_without_the_password(shared: Stack) -> None:
    secrets = StateFolder(shared.home).read_secrets()
    assert secrets
    assert secrets.classifier in (shared.addresses.database_url or "")
    assert secrets.classifier not in repr(shared.addresses)
    assert "classifier:***@127.0.0.1" in repr(shared.addresses)
    assert "=" not in repr(secrets)


async def test_a_running_stack_is_found_by_its_folder(shared: Stack) -> None:
    assert running(shared.home) == shared.addresses


async def test_a_second_up_on_the_same_folder_is_refused_with_one_sentence(shared: Stack) -> None:
    with owner(shared.home) as second:
        assert second.refusal == (
            f"The stack in {shared.home} is already run by process {os.getpid()}: "
            "stop it, or set CLASSIFIER_HOME to another folder."
        )
    assert running(shared.home) == shared.addresses


async def test_a_later_start_is_quick_and_keeps_data_and_ports(kept: Path) -> None:
    before = StateFolder(kept).read_record()
    begin = time.perf_counter()
    async with Stack(kept) as stack:
        assert time.perf_counter() - begin < 5
        assert await find_traces(stack.addresses)
        during = StateFolder(kept).read_record()
        assert running(kept) == stack.addresses
    assert running(kept) is None
    assert servers(kept) == {}
    assert StateFolder(kept).read_record() == before
    assert (during.temporal_port, during.ui_port, during.postgres_port) == (
        before.temporal_port,
        before.ui_port,
        before.postgres_port,
    )


async def test_ports_of_last_time_that_are_taken_are_replaced(kept: Path) -> None:
    taken = [socket.create_server((LOOPBACK, 0)) for _ in range(3)]
    ports = [each.getsockname()[1] for each in taken]
    folder = StateFolder(kept)
    folder.update_record(temporal_port=ports[0], ui_port=ports[1], postgres_port=ports[2])
    with contextlib.ExitStack() as closing:
        for each in taken:
            closing.enter_context(each)
        async with Stack(kept) as stack:
            assert await find_traces(stack.addresses)
    record = folder.read_record()
    assert not {record.temporal_port, record.ui_port, record.postgres_port} & set(ports)


async def test_a_part_that_is_not_wanted_is_not_started(kept: Path) -> None:
    async with Stack(kept, temporal=False) as stack:
        assert set(servers(kept)) == {"postgres"}
        assert (stack.addresses.temporal_address, stack.addresses.temporal_ui) == (None, None)
        assert running(kept) == stack.addresses


async def test_with_no_part_wanted_the_folder_is_not_even_made(home: Path) -> None:
    async with Stack(home / "never", temporal=False, database=False) as stack:
        assert stack.addresses == Addresses()
    assert not (home / "never").exists()


async def test_an_error_inside_leaves_no_process_behind(kept: Path) -> None:
    async def fail() -> None:
        async with Stack(kept):
            assert set(servers(kept)) == {"postgres", "temporal"}
            raise LookupError

    with pytest.raises(LookupError):
        await fail()
    assert servers(kept) == {}


@pytest.mark.parametrize("wait", ["while it starts", "while it runs"])
async def test_cancellation_leaves_no_process_behind(kept: Path, wait: str) -> None:
    entered = asyncio.Event()

    async def use() -> None:
        async with Stack(kept) as stack:
            entered.set()
            await stack.watch()

    task = asyncio.create_task(use())
    if wait == "while it runs":
        await entered.wait()
    else:
        await until(lambda: bool(servers(kept)))
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert servers(kept) == {}
    assert running(kept) is None


async def test_ctrl_c_stops_everything(kept: Path) -> None:
    with owner(kept) as other:
        assert running(kept) == other.addresses
        assert other.interrupt() == 130
    assert servers(kept) == {}
    assert running(kept) is None


async def test_a_state_folder_that_is_a_file_is_refused_with_one_sentence(home: Path) -> None:
    file = home / "file"
    file.touch()
    with pytest.raises(
        EmbeddedError, match=r"^The state folder .*/file is not a folder: set CLASSIFIER_HOME"
    ):
        async with Stack(file):
            pass
