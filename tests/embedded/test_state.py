"""The state folder by itself: its place, its lock, its ports, its small files."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest

from embedded.errors import EmbeddedError
from embedded.lock import FolderLock, is_held_by
from embedded.state import LOOPBACK, Record, StateFolder, default_home, free_port


def test_the_variable_decides_where_the_state_lies() -> None:
    assert default_home({"CLASSIFIER_HOME": "/srv/triage"}) == Path("/srv/triage")
    assert default_home({"CLASSIFIER_HOME": "~/triage"}) == Path.home() / "triage"
    assert default_home({"CLASSIFIER_HOME": "here"}) == Path.cwd() / "here"


@pytest.mark.parametrize("environ", [{}, {"CLASSIFIER_HOME": " "}])
def test_without_it_the_state_lies_where_this_system_keeps_it(environ: dict[str, str]) -> None:
    home = default_home(environ)
    assert home.is_absolute()
    assert home.name == "temporal-classifier"


def test_only_an_empty_folder_changes_its_mode(tmp_path: Path) -> None:
    (tmp_path / "somebody's file").touch()
    tmp_path.chmod(0o755)
    StateFolder(tmp_path).create()
    assert tmp_path.stat().st_mode & 0o777 == 0o755
    StateFolder(tmp_path / "new").create()
    assert (tmp_path / "new").stat().st_mode & 0o066 == 0


def test_a_record_is_read_back_and_keeps_what_is_not_named(tmp_path: Path) -> None:
    folder = StateFolder(tmp_path)
    assert folder.read_record() == Record()
    folder.update_record(postgres_port=5433, serving=("postgres",))
    folder.update_record(pid=7)
    assert folder.read_record() == Record(pid=7, serving=("postgres",), postgres_port=5433)


def test_damaged_passwords_are_refused_with_one_sentence(tmp_path: Path) -> None:
    folder = StateFolder(tmp_path)
    assert folder.read_secrets() is None
    made = folder.make_secrets()
    assert folder.read_secrets() == made
    folder.secrets.write_text('{"postgres": 1}')
    with pytest.raises(EmbeddedError, match=r"secrets\.json is damaged: restore it"):
        folder.read_secrets()


def test_a_preferred_port_is_kept_while_it_is_free() -> None:
    with socket.create_server((LOOPBACK, 0)) as taken:
        port: int = taken.getsockname()[1]
        assert free_port(port) != port
    assert free_port(port) == port


def test_the_lock_is_exclusive_and_says_who_holds_it(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    with FolderLock(path):
        assert is_held_by(path, os.getpid())
        assert not is_held_by(path, os.getpid() + 1)
        with pytest.raises(EmbeddedError, match=f"already run by process {os.getpid()}: "):
            FolderLock(path).acquire()
    assert not is_held_by(path, os.getpid())
    with FolderLock(path):
        pass
