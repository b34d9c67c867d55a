"""Appends to a JSONL file, each key once, safe between processes."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path

from classifier.values import JSON

if os.name == "posix":
    import fcntl


def append_once(path: Path, key: str, body: Mapping[str, JSON], *, look_first: bool) -> None:
    """Appends `body` with its key as one durable line.

    Args:
        path: The file; made with its folder where absent.
        key: Written as `key`.
        body: The rest of the line.
        look_first: Whether an earlier attempt may have written it; reads the file then.

    Raises:
        OSError: The file cannot be written.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    line = json.dumps({"key": key, **body}, allow_nan=False).encode("ascii") + b"\n"
    with path.open("a+b") as file:
        if os.name == "posix":
            fcntl.flock(file, fcntl.LOCK_EX)
        if look_first and _holds(path, key):
            return
        _end_torn_line(file.fileno(), path)
        os.write(file.fileno(), line)
        os.fsync(file.fileno())


def _holds(path: Path, key: str) -> bool:
    start = b'{"key": ' + json.dumps(key).encode("ascii") + b","
    with path.open("rb") as file:
        return any(line.startswith(start) and line.endswith(b"\n") for line in file)


def _end_torn_line(descriptor: int, path: Path) -> None:
    size = path.stat().st_size
    if size == 0:
        return
    with path.open("rb") as file:
        file.seek(size - 1)
        if file.read(1) != b"\n":
            os.write(descriptor, b"\n")
