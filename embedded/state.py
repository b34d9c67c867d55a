"""The state folder: what lies where, who may read it, and which ports were used last time.

```
home/               0700 (0711 when root makes it, since PostgreSQL then runs as somebody else)
  lock              held by the process that runs the stack, see `embedded.lock`
  stack.json        ports of this time and the last, and the processes behind them
  secrets.json      0600, the two passwords of the database
  postgres/         the database, or `postgres.location`, a file that says where it is instead
  postgres.log  temporal.db  temporal.log
```
"""

from __future__ import annotations

import contextlib
import logging
import os
import secrets
import socket
import sys
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import platformdirs
from pydantic import TypeAdapter

from embedded.errors import EmbeddedError, from_os_error

if TYPE_CHECKING:
    from collections.abc import Mapping

logger = logging.getLogger(__name__)

LOOPBACK = "127.0.0.1"
HOME_VARIABLE = "CLASSIFIER_HOME"
Part = Literal["temporal", "postgres"]


def default_home(environ: Mapping[str, str]) -> Path:
    """The state folder: `CLASSIFIER_HOME`, or `temporal-classifier` where this system keeps users' state."""
    given = environ.get(HOME_VARIABLE, "").strip()
    if given:
        return Path(given).expanduser().absolute()
    return Path(platformdirs.user_state_dir("temporal-classifier", appauthor=False))


@dataclass(frozen=True, slots=True)
class Record:
    """What the state folder remembers of the stack: its ports for ever, its processes while they run."""

    pid: int | None = None
    """The process that runs the stack; absent until everything answers and again after a clean stop."""
    serving: tuple[Part, ...] = ()
    temporal_port: int | None = None
    ui_port: int | None = None
    postgres_port: int | None = None
    temporal_pid: int | None = None
    """The dev server, for whoever finds it orphaned; PostgreSQL keeps a record of its own."""


@dataclass(frozen=True, slots=True)
class Secrets:
    """The two passwords of the database; the superuser's stays inside this package."""

    postgres: str = field(repr=False)
    classifier: str = field(repr=False)


_RECORD = TypeAdapter(Record)
_SECRETS = TypeAdapter(Secrets)


@dataclass(frozen=True, slots=True)
class StateFolder:
    """One state folder. Every method that writes raises `EmbeddedError` when it cannot."""

    home: Path

    @property
    def lock(self) -> Path:
        return self.home / "lock"

    @property
    def record(self) -> Path:
        return self.home / "stack.json"

    @property
    def secrets(self) -> Path:
        return self.home / "secrets.json"

    @property
    def postgres(self) -> Path:
        return self.home / "postgres"

    @property
    def postgres_location(self) -> Path:
        return self.home / "postgres.location"

    @property
    def postgres_log(self) -> Path:
        return self.home / "postgres.log"

    @property
    def temporal_database(self) -> Path:
        return self.home / "temporal.db"

    @property
    def temporal_log(self) -> Path:
        return self.home / "temporal.log"

    def create(self) -> None:
        """Make the folder, private to its owner; a folder that already holds something keeps its mode."""
        try:
            self.home.mkdir(parents=True, exist_ok=True)
            if not any(self.home.iterdir()):
                self.home.chmod(0o711 if is_root() else 0o700)
        except OSError as error:
            raise from_os_error(error, self.home) from error

    def read_record(self) -> Record:
        """The last record, or an empty one: a lost record costs the ports of last time, not the data."""
        try:
            return _RECORD.validate_json(self.record.read_bytes())
        except FileNotFoundError:
            return Record()
        except ValueError:
            logger.warning("%s is damaged and is begun anew", self.record)
            return Record()
        except OSError as error:
            raise from_os_error(error, self.home) from error

    def update_record(self, **changes: Any) -> Record:
        """Replace the named fields of the record on disk. Only the holder of the lock may."""
        record = replace(self.read_record(), **changes)
        self.write(self.record, _RECORD.dump_json(record).decode())
        return record

    def read_secrets(self) -> Secrets | None:
        """The passwords made at the first start, or None before it."""
        try:
            return _SECRETS.validate_json(self.secrets.read_bytes())
        except FileNotFoundError:
            return None
        except ValueError as error:
            raise EmbeddedError(
                f"{self.secrets} is damaged: restore it, or remove {self.home} to start afresh."
            ) from error
        except OSError as error:
            raise from_os_error(error, self.home) from error

    def make_secrets(self) -> Secrets:
        """Make and keep new passwords."""
        made = Secrets(postgres=secrets.token_hex(24), classifier=secrets.token_hex(24))
        self.write(self.secrets, _SECRETS.dump_json(made).decode())
        return made

    def write(self, path: Path, text: str) -> None:
        """Write a small file of this folder so that a reader sees the old or the new text, never a part."""
        partial = path.with_name(f"{path.name}.partial")
        try:
            with contextlib.ExitStack() as undo:
                undo.callback(partial.unlink, missing_ok=True)
                descriptor = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
                with os.fdopen(descriptor, "w", encoding="utf-8") as file:
                    file.write(text)
                    file.flush()
                    os.fsync(file.fileno())
                partial.replace(path)
        except OSError as error:
            raise from_os_error(error, self.home) from error


def free_port(preferred: int | None = None) -> int:
    """A loopback port that nothing listens on: the preferred one, or another when that is taken."""
    if preferred is not None and _bindable(preferred) is not None:
        return preferred
    port = _bindable(0)
    if port is None:
        raise EmbeddedError(f"No free port is left on {LOOPBACK}: stop some other programs and start again.")
    return port


def is_root() -> bool:
    """Whether this process is the superuser, whom PostgreSQL refuses to serve."""
    return sys.platform != "win32" and os.geteuid() == 0


def _bindable(port: int) -> int | None:
    with socket.socket() as probe:
        if sys.platform != "win32":  # there the option would allow to share a port that is in use
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((LOOPBACK, port))
        except OSError:
            return None
        bound: int = probe.getsockname()[1]
        return bound
