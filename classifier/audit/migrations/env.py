"""Alembic's entry: runs within the transaction of `classifier.audit.schema`, or by `alembic -x url=…`."""

from __future__ import annotations

import asyncio
import re

import sqlalchemy as sa
from alembic import context

from classifier.audit.engine import create_engine
from classifier.audit.tables import SCHEMA, metadata

_PARTITION = re.compile(r".+_\d{4}_\d{2}")
_TIMEOUT = 300.0


def _include_name(name: str | None, kind: str, _parents: object) -> bool:
    if kind == "schema":
        return name == SCHEMA
    return not (kind == "table" and name is not None and _PARTITION.fullmatch(name))


def _run(connection: sa.Connection) -> None:
    context.configure(
        connection=connection,
        target_metadata=metadata,
        version_table_schema=SCHEMA,
        include_schemas=True,
        include_name=_include_name,
    )
    with context.begin_transaction():
        context.run_migrations()


async def _connect_and_run(database_url: str) -> None:
    engine = create_engine(database_url, role="classifier_owner", timeout=_TIMEOUT, name="alembic")
    try:
        async with engine.begin() as connection:
            await connection.run_sync(_run)
    finally:
        await engine.dispose()


_given: sa.Connection | None = context.config.attributes.get("connection")
if _given is not None:
    _run(_given)
else:
    asyncio.run(_connect_and_run(context.get_x_argument(as_dictionary=True)["url"]))
