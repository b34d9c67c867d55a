"""How the history is read: as `classifier_reader`, within time, one tenant to a transaction."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from types import TracebackType
from typing import Self

from sqlalchemy.ext.asyncio import AsyncConnection

from classifier.audit.engine import create_engine, set_tenant, store_errors
from classifier.audit.escape import escape


class TenantReader:
    """What reads the history for one tenant at a time. An async context manager; or call `aclose`.

    Every method of what derives from it names a tenant and sees nothing of another, which row-level security
    holds too. All raise `StoreUnavailable` where the database does not answer in time.

    Args:
        database_url: `postgresql://…`; the login must be allowed to SET ROLE classifier_reader.
        pool_size: Connections at most.
        timeout: Seconds for one call.
    """

    def __init__(self, database_url: str, *, pool_size: int = 2, timeout: float = 30.0) -> None:
        self._timeout = timeout
        self._engine = create_engine(
            database_url,
            role="classifier_reader",
            timeout=timeout,
            pool_size=pool_size,
            name="classifier history",
        )

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Closes the connections."""
        await self._engine.dispose()

    @asynccontextmanager
    async def _reading(self, tenant: str) -> AsyncGenerator[AsyncConnection]:
        async with (
            store_errors("reading the history"),
            asyncio.timeout(self._timeout),
            self._engine.begin() as connection,
        ):
            await set_tenant(connection, escape(tenant))
            yield connection
