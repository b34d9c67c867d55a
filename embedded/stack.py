"""One embedded stack per state folder: started together, watched, stopped together, found by others.

```python
async with Stack(default_home(environ)) as stack:
    await work(stack.addresses)
```
"""

from __future__ import annotations

import asyncio
import logging
import os
import re
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, Self

from embedded.errors import EmbeddedError, not_installed
from embedded.lock import FolderLock, is_held_by
from embedded.postgres import Postgres, database_url
from embedded.state import LOOPBACK, Part, Record, StateFolder
from embedded.temporal_server import DownloadedTemporalServer, TemporalServer
from embedded.wheels import find_temporal

if TYPE_CHECKING:
    from collections.abc import Coroutine
    from pathlib import Path
    from types import TracebackType

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, repr=False)
class Addresses:
    """Where the parts of a stack answer; None for a part that it does not run."""

    temporal_address: str | None = None
    temporal_ui: str | None = None
    database_url: str | None = None

    def __repr__(self) -> str:
        """Without the password, so that a log or a traceback may hold it."""
        masked = self.database_url and re.sub(r"(://[^:/@]+):[^@]*@", r"\1:***@", self.database_url)
        return (
            f"Addresses(temporal_address={self.temporal_address!r}, temporal_ui={self.temporal_ui!r}, "
            f"database_url={masked!r})"
        )


class Server(Protocol):
    """What a stack needs of each of its servers."""

    name: str

    async def start(self) -> None:
        """Return when it answers; raise `EmbeddedError` when it will not."""
        ...

    async def stop(self) -> None:
        """Return when nothing of it is left, also when it was only half started."""
        ...

    async def wait(self) -> EmbeddedError:
        """Return the reason once it has ended by itself."""
        ...


class Stack:
    """The servers under one state folder, for as long as it is entered.

    Args:
        home: The state folder; made when it is missing. As root, give a temporary one whose parents other
            accounts may enter (`tempfile.mkdtemp()` itself is fine, pytest's `tmp_path` is not): else the
            database is made, and stays, in `/var/lib/temporal-classifier`.
        temporal: Whether to run Temporal's dev server.
        database: Whether to run PostgreSQL.

    Raises:
        EmbeddedError: On entering: one sentence on what is in the way. Nothing is left running then.
    """

    def __init__(self, home: Path, *, temporal: bool = True, database: bool = True) -> None:
        self.home = home.absolute()
        self._folder = StateFolder(self.home)
        self._lock = FolderLock(self._folder.lock)
        self._parts: tuple[Part, ...] = (
            *(("temporal",) if temporal else ()),
            *(("postgres",) if database else ()),
        )
        self._servers: list[Server] = []
        self._addresses = Addresses()

    @property
    def addresses(self) -> Addresses:
        """Where the running parts answer."""
        return self._addresses

    async def watch(self) -> None:
        """Wait until a server ends by itself; with no part to run, wait for ever.

        Raises:
            EmbeddedError: The sentence that names it.
        """
        if not self._servers:
            await asyncio.get_running_loop().create_future()
        waits = [asyncio.ensure_future(server.wait()) for server in self._servers]
        try:
            ended, _ = await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for each in waits:
                each.cancel()
        raise ended.pop().result()

    async def __aenter__(self) -> Self:
        if not self._parts:
            return self
        self._folder.create()
        self._lock.acquire()
        try:
            self._folder.update_record(pid=None, serving=())
            self._servers = [self._make(part) for part in self._parts]
            await self._start()
        except BaseException:
            await _to_the_end(self._stop())
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await _to_the_end(self._stop())

    def _make(self, part: Part) -> Server:
        match part:
            case "postgres":
                return Postgres(self._folder)
            case "temporal":
                program = find_temporal()
                if program is not None:
                    return TemporalServer(self._folder, program)
                if sys.platform != "win32":  # elsewhere the wheel exists; a download may take for ever
                    raise not_installed("Temporal")
                return DownloadedTemporalServer(self._folder)

    async def _start(self) -> None:
        await self._start_servers()
        record = self._folder.update_record(pid=os.getpid(), serving=self._parts)
        self._addresses = _addresses(self._folder, record)
        logger.info("the stack in %s runs: %r", self.home, self._addresses)

    async def _start_servers(self) -> None:
        """Start them at the same time; the first that is refused cancels the others."""
        refused = None
        try:
            async with asyncio.TaskGroup() as group:
                for server in self._servers:
                    group.create_task(server.start())
        except BaseExceptionGroup as several:
            refused = several.subgroup(EmbeddedError)
            if refused is None:
                raise
        if refused is not None:
            raise _first(refused)

    async def _stop(self) -> None:
        """Stop what runs. The lock goes last, so that nobody starts over servers that are still stopping."""
        if not self._parts:
            return
        servers, self._servers, self._addresses = self._servers, [], Addresses()
        try:
            outcomes = await asyncio.gather(*(server.stop() for server in servers), return_exceptions=True)
            self._forget()
            for failure in filter(None, outcomes):
                raise failure
        finally:
            self._lock.release()

    def _forget(self) -> None:
        try:
            self._folder.update_record(pid=None, serving=(), temporal_pid=None)
        except EmbeddedError as error:  # the lock alone decides who runs; the stop itself went well
            logger.warning("the record of the stopped stack is out of date: %s", error)


def running(home: Path) -> Addresses | None:
    """Where the stack answers that another live process (or another `Stack` of this one) runs in `home`.

    None when nobody does, or somebody is just starting it.

    Raises:
        EmbeddedError: The folder exists and may not be read.
    """
    folder = StateFolder(home.absolute())
    record = folder.read_record()
    if record.pid is None or not is_held_by(folder.lock, record.pid):
        return None
    return _addresses(folder, record)


def _addresses(folder: StateFolder, record: Record) -> Addresses:
    secrets = folder.read_secrets()
    temporal = "temporal" in record.serving
    port = record.postgres_port if "postgres" in record.serving else None
    return Addresses(
        temporal_address=f"{LOOPBACK}:{record.temporal_port}" if temporal else None,
        temporal_ui=f"http://{LOOPBACK}:{record.ui_port}" if temporal else None,
        database_url=database_url(port, secrets) if port and secrets else None,
    )


def _first(several: BaseExceptionGroup[EmbeddedError]) -> EmbeddedError:
    """One sentence is enough: what is in the way of one part is in the way of the stack."""
    for each in several.exceptions:
        return _first(each) if isinstance(each, BaseExceptionGroup) else each
    raise AssertionError("a group is never empty")


async def _to_the_end(work: Coroutine[None, None, None]) -> None:
    """Finish `work` although we are being cancelled, and be cancelled then."""
    task = asyncio.ensure_future(work)
    try:
        await asyncio.shield(task)
    except asyncio.CancelledError:
        await task
        raise
