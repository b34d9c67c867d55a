"""The log file of one server: where its output goes, and what it says about a failure."""

from __future__ import annotations

import contextlib
import os
import shutil
from typing import TYPE_CHECKING

from embedded.errors import EmbeddedError, disk_full, from_os_error

if TYPE_CHECKING:
    from collections.abc import Generator
    from pathlib import Path

LOG_LIMIT = 10_000_000  # bytes; a log that has grown beyond is begun anew at the next start
TAIL = 65_536  # bytes of a log that are searched
ROOM_NEEDED = 32 * 2**20  # bytes; PostgreSQL cannot go on without room for two segments of its log
FULL_TEXTS = (b"no space left on device", b"disk is full", b"disk quota exceeded")


class ServerLog:
    """A log in the state folder. Only lines written since this object was made count as this run's."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._begin = path.stat().st_size if path.exists() else 0

    @contextlib.contextmanager
    def opened(self) -> Generator[int]:
        """A descriptor for a child to append to.

        Raises:
            EmbeddedError: The folder is not writable or full.
        """
        try:
            if self._begin > LOG_LIMIT:
                self.path.unlink()
                self._begin = 0
            descriptor = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        except OSError as error:
            raise from_os_error(error, self.path.parent) from error
        try:
            yield descriptor
        finally:
            os.close(descriptor)

    def explain(self, failure: EmbeddedError, data: Path) -> EmbeddedError:
        """The failure itself, or that the disk under `data` is full, when that was the cause.

        The log alone does not tell: it often lies on the same disk, so that its own last lines are lost.
        """
        if self._speaks_of_a_full_disk() or shutil.disk_usage(data).free < ROOM_NEEDED:
            return disk_full(data)
        return failure

    def _speaks_of_a_full_disk(self) -> bool:
        try:
            with self.path.open("rb") as file:
                size = file.seek(0, os.SEEK_END)
                file.seek(max(self._begin, size - TAIL))
                text = file.read().lower()
        except OSError:
            return False
        return any(each in text for each in FULL_TEXTS)
