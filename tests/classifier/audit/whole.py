"""Everything that a database holds as text, for tests that say that something is nowhere."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa

from classifier.audit.engine import Role, create_engine
from classifier.audit.tables import SCHEMA

_TABLES = sa.text(
    "SELECT c.relname FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace "
    "WHERE n.nspname = :schema AND c.relkind IN ('r', 'p') AND NOT c.relispartition ORDER BY 1"
)


async def ask(url: str, statement: str, role: Role = "classifier_maintenance") -> Any:
    """The first value that a statement gives."""
    engine = create_engine(url, role=role, timeout=10)
    try:
        async with engine.begin() as connection:
            return (await connection.execute(sa.text(statement))).scalar()
    finally:
        await engine.dispose()


async def everything(url: str) -> dict[str, list[str]]:
    """Every row of every table, all its columns as one text.

    A transaction for each table, since one that held several would be in the way of partitions being dropped.
    """
    engine = create_engine(url, role="classifier_maintenance", timeout=30)
    try:
        async with engine.connect() as connection:
            await connection.execution_options(isolation_level="AUTOCOMMIT")
            names = list(await connection.scalars(_TABLES, {"schema": SCHEMA}))
            return {
                name: list(await connection.scalars(sa.text(f"SELECT t::text FROM {SCHEMA}.{name} t")))
                for name in names
            }
    finally:
        await engine.dispose()


async def hits(url: str, text: str) -> dict[str, int]:
    """In how many rows of which tables a text stands."""
    found = {name: sum(text in row for row in rows) for name, rows in (await everything(url)).items()}
    return {name: count for name, count in found.items() if count}
