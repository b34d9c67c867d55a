"""How this project connects to PostgreSQL: as a restricted role, within time, without content in errors."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Literal, TypeAlias

import sqlalchemy as sa
from sqlalchemy.exc import ArgumentError, DBAPIError, SQLAlchemyError
from sqlalchemy.exc import TimeoutError as PoolTimeout
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine, create_async_engine

from classifier.audit.tables import TENANT_SETTING
from classifier.errors import ConfigurationError, StoreError, StoreUnavailable

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

Role: TypeAlias = Literal[
    "classifier_owner", "classifier_writer", "classifier_reader", "classifier_maintenance"
]
ROLES: Sequence[Role] = (
    "classifier_owner",
    "classifier_writer",
    "classifier_reader",
    "classifier_maintenance",
)

NOT_MIGRATED = frozenset({"42P01", "42704", "42703", "3F000", "22023", "42501"})
"""No such table, role, column or schema, or no right to use it."""

_REFUSED_DATA = ("21", "22", "23", "54")
"""SQLSTATE classes that mean: this row, not this server."""

_READING = {"plan_cache_mode": "force_custom_plan", "parallel_setup_cost": "100000"}
"""Tenants and values differ by orders of magnitude, so that a plan made for all of them is bad for some.

And starting helpers takes longer than finding a page; they are for figures over very many rows.
"""

_SET_TENANT = sa.text(f"SELECT set_config('{TENANT_SETTING}', :tenant, true)")


def sqlalchemy_url(database_url: str) -> sa.URL:
    """A `postgresql://` URL for the asyncpg driver.

    Raises:
        ConfigurationError: It is not one; the message does not repeat it, since it may hold a password.
    """
    try:
        url = sa.make_url(database_url)
    except (ArgumentError, ValueError) as error:
        raise ConfigurationError(
            "the database URL cannot be read; write postgresql://user@host/name"
        ) from error
    if url.get_backend_name() not in {"postgresql", "postgres"}:
        raise ConfigurationError("the database URL does not start with postgresql://")
    query = {("ssl" if name == "sslmode" else name): value for name, value in url.query.items()}
    return url.set(drivername="postgresql+asyncpg", query=query)


def create_engine(
    database_url: str, *, role: Role | None, timeout: float, pool_size: int = 1, name: str = "classifier"
) -> AsyncEngine:
    """An engine whose connections act as `role`, or as who they log in as for None.

    Args:
        database_url: `postgresql://…`.
        role: What to SET ROLE to when a connection is made.
        timeout: Seconds for connecting, for one statement, and for waiting for a free connection.
        pool_size: Connections at most.
        name: How the connections show up in `pg_stat_activity`.
    """
    settings = {"application_name": name, "search_path": "pg_catalog", "timezone": "UTC", "jit": "off"}
    if role is not None:
        settings["role"] = role
    if role == "classifier_reader":
        settings |= _READING
    return create_async_engine(
        sqlalchemy_url(database_url),
        pool_size=pool_size,
        max_overflow=0,
        pool_timeout=timeout,
        pool_pre_ping=True,
        hide_parameters=True,
        connect_args={"timeout": timeout, "command_timeout": timeout, "server_settings": settings},
    )


async def set_tenant(connection: AsyncConnection, tenant: str) -> None:
    """Lets this transaction see the rows of `tenant`, and no others."""
    await connection.execute(_SET_TENANT, {"tenant": tenant})


def sqlstate(error: BaseException) -> str | None:
    """PostgreSQL's code for what went wrong, where the server said it."""
    original = error.orig if isinstance(error, DBAPIError) else error
    code = getattr(original, "sqlstate", None)
    return code if isinstance(code, str) else None


def is_about_data(error: DBAPIError) -> bool:
    """Whether the server refuses this very row and would take others."""
    code = sqlstate(error)
    return code is not None and code.startswith(_REFUSED_DATA) and code not in NOT_MIGRATED


@asynccontextmanager
async def store_errors(what: str) -> AsyncGenerator[None]:
    """Turns what the driver raises into errors of this library, without their text.

    PostgreSQL repeats the values of a refused row in the detail of its message, and a chained exception
    carries it along: so nothing is chained.

    Raises:
        StoreUnavailable: Not reachable, not in time, or not migrated yet; trying again can help.
        StoreError: The server refuses what was sent.
    """
    try:
        yield
    except (PoolTimeout, TimeoutError):
        raise StoreUnavailable(f"{what}: the audit store did not answer in time") from None
    except DBAPIError as error:
        raise _as_store_error(what, error) from None
    except (OSError, SQLAlchemyError) as error:
        raise StoreUnavailable(
            f"{what}: the audit store cannot be reached ({type(error).__name__})"
        ) from None
    except Exception as error:
        if sqlstate(error) is None:  # the driver raises its own errors while it connects
            raise
        raise _as_store_error(what, error) from None


def _as_store_error(what: str, error: Exception) -> StoreError:
    code = sqlstate(error)
    if code in NOT_MIGRATED:
        return StoreUnavailable(f"{what}: the audit store is not migrated ({code}); run `classifier migrate`")
    if isinstance(error, DBAPIError) and is_about_data(error):
        return StoreError(f"{what}: PostgreSQL refuses the values ({code})")
    reason = code or type(getattr(error, "orig", None) or error).__name__
    return StoreUnavailable(f"{what}: the audit store is not available ({reason})")
