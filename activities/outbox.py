"""Appends to a JSONL file, each key once, safe between processes."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from pathlib import Path

from classifier.values import JSON

if os.name == "posix":
    import fcntl


def size_of(path: Path) -> int:
    """How long the file is; 0 where there is none."""
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0


def seen_by_first(path: Path, is_first: Callable[[], bool]) -> int:
    """How long the file was before any attempt wrote; 0 where that cannot be said.

    Measured before it is asked: a process may stand still in between, and be overtaken.
    """
    size = size_of(path)
    return size if is_first() else 0


def append_once(path: Path, key: str, body: Mapping[str, JSON], *, seen: int) -> None:
    """Appends `body` with its key as one durable line, unless another attempt has.

    It may have to wait for others that write, so long that a later attempt overtakes it.

    Args:
        path: The file; made with its folder where absent.
        key: Written as `key`.
        body: The rest of the line.
        seen: How long the file was when no attempt had written yet; what came after it is read.

    Raises:
        OSError: The file cannot be written.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    line = json.dumps({"key": key, **body}, allow_nan=False).encode("ascii") + b"\n"
    with path.open("a+b") as file:
        if os.name == "posix":
            fcntl.flock(file, fcntl.LOCK_EX)
        if _holds(path, key, seen):
            return
        file.write(b"\n" + line if _ends_torn(path) else line)
        file.flush()
        os.fsync(file.fileno())


def _holds(path: Path, key: str, seen: int) -> bool:
    start = b'{"key": ' + json.dumps(key).encode("ascii") + b","
    with path.open("rb") as file:
        file.seek(seen if seen <= size_of(path) else 0)
        return any(line.startswith(start) and _is_whole(line) for line in file)


def _is_whole(line: bytes) -> bool:
    """Whether it is not the rest of an attempt that died or found the disk full."""
    try:
        json.loads(line)
    except ValueError:
        return False
    return line.endswith(b"\n")


def _ends_torn(path: Path) -> bool:
    size = size_of(path)
    if size == 0:
        return False
    with path.open("rb") as file:
        file.seek(size - 1)
        return file.read(1) != b"\n"
