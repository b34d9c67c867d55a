"""The outbox: each key is one whole line, whoever was too late, died, or found the disk full."""

from __future__ import annotations

import fcntl
import json
import resource
import threading
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from activities.outbox import append_once, seen_by_first, size_of


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "folder" / "outbox.jsonl"


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="ascii").splitlines()]


def append(path: Path, key: str, *, seen: int = 0) -> None:
    append_once(path, key, {"n": 1}, seen=seen)


@contextmanager
def files_end_at(size: int) -> Generator[None]:
    """As on a full disk: what is over is not written."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_every_key_is_one_line_and_the_folder_is_made(path: Path) -> None:
    for key in ("a", "b", "a"):
        append(path, key)
    assert lines(path) == [{"key": "a", "n": 1}, {"key": "b", "n": 1}]


def test_a_first_attempt_that_is_overtaken_while_it_waits_to_write_adds_no_second_line(path: Path) -> None:
    append(path, "earlier")
    seen = size_of(path)
    with path.open("ab") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        overtaken = threading.Thread(target=append, args=(path, "a"), kwargs={"seen": seen})
        overtaken.start()
        file.write(b'{"key": "a", "n": 1}\n')
    overtaken.join()
    assert [line["key"] for line in lines(path)] == ["earlier", "a"]


def test_a_first_attempt_that_stands_still_while_another_writes_does_not_take_that_line_for_an_older_one(
    path: Path,
) -> None:
    append(path, "earlier")

    def overtaken_meanwhile() -> bool:
        append(path, "a")
        return True

    append(path, "a", seen=seen_by_first(path, overtaken_meanwhile))
    assert [line["key"] for line in lines(path)] == ["earlier", "a"]


def test_only_a_first_attempt_spares_itself_what_was_there_before(path: Path) -> None:
    append(path, "a")
    append(path, "a", seen=seen_by_first(path, lambda: False))
    assert len(lines(path)) == 1


def test_what_was_there_before_the_first_attempt_is_not_read(path: Path) -> None:
    """A file of any length costs a first attempt nothing; a key that is there twice shows it."""
    append(path, "a")
    append(path, "a", seen=size_of(path))
    assert len(lines(path)) == 2


def test_a_file_that_was_taken_away_meanwhile_is_begun_anew(path: Path) -> None:
    append(path, "earlier")
    seen = size_of(path)
    path.unlink()
    append(path, "a", seen=seen)
    append(path, "a", seen=seen)
    assert [line["key"] for line in lines(path)] == ["a"]


def test_a_line_that_did_not_fit_on_the_disk_is_an_error_and_is_written_whole_by_the_next_attempt(
    path: Path,
) -> None:
    append(path, "earlier")
    with files_end_at(size_of(path) + 12), pytest.raises(OSError, match="File too large"):
        append(path, "a")
    append(path, "a")
    first, torn, whole = path.read_bytes().splitlines()
    assert b'{"key": "a", "n": 1}'.startswith(torn)
    assert json.loads(first)["key"] == "earlier"
    assert json.loads(whole) == {"key": "a", "n": 1}


def test_a_torn_line_that_somebody_has_ended_is_not_taken_for_a_delivery(path: Path) -> None:
    path.parent.mkdir()
    path.write_bytes(b'{"key": "a", "n"\n')
    append(path, "a")
    assert json.loads(path.read_bytes().splitlines()[-1]) == {"key": "a", "n": 1}
