"""One stack per state folder: a lock of the operating system's, which kill -9 releases too."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Self

from embedded.errors import already_running, from_os_error

if TYPE_CHECKING:
    from pathlib import Path
    from types import TracebackType

if sys.platform == "win32":
    import msvcrt

    _LOCKED_BYTE = 1 << 20  # beyond the text, which others must be able to read

    def _try_lock(descriptor: int) -> bool:
        os.lseek(descriptor, _LOCKED_BYTE, os.SEEK_SET)
        try:
            msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)
        except OSError:
            return False
        return True

else:
    import fcntl

    def _try_lock(descriptor: int) -> bool:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True


class FolderLock:
    """Holds a lock file for as long as it is entered; children do not inherit it."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._descriptor: int | None = None

    def acquire(self) -> None:
        """Take the lock and write our process id for others to read.

        Raises:
            EmbeddedError: Another process holds it, or the folder is not writable or full.
        """
        try:
            descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT, 0o600)
            try:
                self._take(descriptor)
            except BaseException:
                os.close(descriptor)
                raise
        except OSError as error:
            raise from_os_error(error, self._path.parent) from error
        self._descriptor = descriptor

    def release(self) -> None:
        """Give the lock back; harmless when it is not held."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    def __enter__(self) -> Self:
        self.acquire()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()

    def _take(self, descriptor: int) -> None:
        if not _try_lock(descriptor):
            raise already_running(self._path.parent, _read_pid(self._path))
        os.ftruncate(descriptor, 0)
        os.lseek(descriptor, 0, os.SEEK_SET)
        os.write(descriptor, str(os.getpid()).encode())
        os.fsync(descriptor)


def is_held_by(path: Path, pid: int) -> bool:
    """Whether the process `pid` holds the lock right now.

    The lock is tried only when its text names that process, so that asking about a folder that nobody
    uses never disturbs somebody who is about to.
    """
    if _read_pid(path) != pid:
        return False
    try:
        descriptor = os.open(path, os.O_RDWR)
    except OSError:
        return False
    try:
        return not _try_lock(descriptor)
    finally:
        os.close(descriptor)


def _read_pid(path: Path) -> int | None:
    try:
        return int(path.read_text("ascii"))
    except (OSError, ValueError):
        return None
