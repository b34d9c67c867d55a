"""Whom PostgreSQL runs as when we are root, and where that account can reach its files.

PostgreSQL refuses root. So its processes get an existing unprivileged account; no account is made and no
parent folder changes its mode. What that account cannot reach (a venv or a state folder below `/root`)
lies elsewhere instead, in a folder that only root can write.
"""

from __future__ import annotations

import os
import stat
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from embedded.errors import EmbeddedError
from embedded.state import is_root

SHARED_NAME = "temporal-classifier"
SHARED_PARENTS = (Path("/var/lib"), Path("/var/tmp"))  # noqa: S108 -- ownership is checked before use
FALLBACK_ID = 65534


@dataclass(frozen=True, slots=True)
class Account:
    """An unprivileged user and group id."""

    uid: int
    gid: int

    def can_reach(self, path: Path) -> bool:
        """Whether the account may search every folder above `path`, and `path` itself."""
        real = path.resolve()
        return all(self._may_search(folder.stat()) for folder in (real, *real.parents))

    def _may_search(self, found: os.stat_result) -> bool:
        if found.st_uid == self.uid:
            return bool(found.st_mode & stat.S_IXUSR)
        if found.st_gid == self.gid:
            return bool(found.st_mode & stat.S_IXGRP)
        return bool(found.st_mode & stat.S_IXOTH)


def database_account(cluster: Path) -> Account | None:
    """Whom to run PostgreSQL as: nobody else than us, except when we are root.

    As root the owner of the existing files, so that a folder that a plain user made stays usable for
    them, or the account `nobody`.
    """
    if not is_root():
        return None
    if cluster.exists() and (owner := cluster.stat()).st_uid != 0:
        return Account(owner.st_uid, owner.st_gid)
    return _nobody()


def check_named(account: Account | None) -> None:
    """Refuse a user id without a name, as some containers give, since `initdb` does.

    Raises:
        EmbeddedError: The account (None: our own) has no name.
    """
    if sys.platform == "win32":
        return
    import pwd  # noqa: PLC0415 -- does not exist on Windows

    uid = account.uid if account else os.geteuid()
    try:
        pwd.getpwuid(uid)
    except KeyError as error:
        raise EmbeddedError(
            f"PostgreSQL needs an account with a name and user id {uid} has none: "
            "add it to /etc/passwd, or give the DATABASE_URL of another server.",
        ) from error


def shared_folder() -> Path:
    """A folder that every account can search and only root can write, for what must lie elsewhere.

    Raises:
        EmbeddedError: There is no such folder and none can be made.
    """
    for parent in SHARED_PARENTS:
        folder = parent / SHARED_NAME
        try:
            folder.mkdir(mode=0o755, exist_ok=True)
            found = folder.lstat()
        except OSError:
            continue
        if stat.S_ISDIR(found.st_mode) and found.st_uid == 0 and not found.st_mode & 0o022:
            return folder
    raise EmbeddedError(
        "PostgreSQL cannot run as root and its files cannot be placed in /var/lib or /var/tmp: "
        "run as a plain user, or set CLASSIFIER_HOME to a folder that other accounts can enter.",
    )


def private_folder_elsewhere(prefix: str) -> Path:
    """A new, empty folder of root's below the shared one; its name is never used again."""
    return Path(tempfile.mkdtemp(prefix=prefix, dir=shared_folder()))


def _nobody() -> Account:
    if sys.platform == "win32":
        raise AssertionError("there is no root on Windows")
    import pwd  # noqa: PLC0415 -- does not exist on Windows

    try:
        entry = pwd.getpwnam("nobody")
    except KeyError:  # an image without a user database
        return Account(FALLBACK_ID, FALLBACK_ID)
    return Account(entry.pw_uid, entry.pw_gid)
