"""A real PostgreSQL for tests, and a database of its own for each: migrated once, cloned in 20 ms.

Everything connects as the restricted login of the embedded stack, never as superuser.
"""

from __future__ import annotations

import asyncio
import itertools
import shutil
import tempfile
from collections.abc import AsyncGenerator
from contextlib import aclosing, asynccontextmanager
from pathlib import Path

import sqlalchemy as sa
from sqlalchemy.exc import ProgrammingError

from classifier.audit.engine import create_engine, sqlstate
from classifier.audit.roles import INSUFFICIENT_PRIVILEGE
from classifier.audit.schema import upgrade
from embedded.stack import Stack

TEMPLATE = "migrated"
EMPTY = "template0"
PATIENCE = 60.0


class PostgresServer:
    """A running server; `database` gives databases on it."""

    def __init__(self, url: str) -> None:
        self.url = url
        self._numbers = itertools.count(1)
        self._engine = create_engine(url, role=None, timeout=30)

    async def aclose(self) -> None:
        """Closes its connection."""
        await self._engine.dispose()

    def url_of(self, name: str) -> str:
        """The address of the database `name`."""
        return sa.make_url(self.url).set(database=name).render_as_string(hide_password=False)

    @asynccontextmanager
    async def database(self, template: str = TEMPLATE) -> AsyncGenerator[str]:
        """The address of a fresh database, dropped afterwards; `EMPTY` for one without our schema."""
        name = f"test_{next(self._numbers)}"
        await self.execute(f"CREATE DATABASE {name} TEMPLATE {template} STRATEGY file_copy")
        try:
            yield self.url_of(name)
        finally:
            await self._drop(name)

    async def _drop(self, name: str) -> None:
        """Drops a database; a vacuum in it, which only a superuser may end, ends by itself."""
        async with asyncio.timeout(PATIENCE):
            while True:
                try:
                    return await self.execute(f"DROP DATABASE {name} WITH (FORCE)")
                except ProgrammingError as error:
                    if sqlstate(error) != INSUFFICIENT_PRIVILEGE:
                        raise
                await asyncio.sleep(0.2)

    async def prepare(self) -> None:
        """Makes the template."""
        await self.execute(f"CREATE DATABASE {TEMPLATE} TEMPLATE {EMPTY}")
        await upgrade(self.url_of(TEMPLATE))

    async def execute(self, statement: str) -> None:
        """Runs one statement outside a transaction."""
        async with self._engine.connect() as connection:
            await connection.execution_options(isolation_level="AUTOCOMMIT")
            await connection.execute(sa.text(statement))


@asynccontextmanager
async def running_postgres() -> AsyncGenerator[PostgresServer]:
    """A server in a temporary folder, with the template made."""
    home = Path(tempfile.mkdtemp(prefix="classifier-tests-"))
    try:
        async with Stack(home, temporal=False) as stack:
            assert stack.addresses.database_url is not None
            async with aclosing(PostgresServer(stack.addresses.database_url)) as server:
                await server.prepare()
                yield server
    finally:
        shutil.rmtree(home, ignore_errors=True)
