"""Monthly partitions, made ahead, and the way out of quarantine for rows that came before their month."""

from __future__ import annotations

import uuid
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime

import sqlalchemy as sa
from sqlalchemy.exc import DBAPIError
from sqlalchemy.ext.asyncio import AsyncConnection

from classifier.audit.engine import Role, create_engine, is_about_data, sqlstate, store_errors
from classifier.audit.inserts import INSERT_DECISIONS, parameters, released
from classifier.audit.rows import Row, Rows
from classifier.audit.tables import PARTITIONED, SCHEMA, quarantine

NO_PARTITION = "23514"
_LAST_YEAR = 9999
_BATCH = 500
_TIMEOUT = 60.0
_WAITING = quarantine.c.error == NO_PARTITION
_LOCK = sa.text("SELECT pg_advisory_xact_lock(hashtext('classifier.audit.schema'))")


@dataclass(frozen=True, slots=True, order=True)
class Month:
    """A month of `decided_at`, in UTC."""

    year: int
    month: int

    @classmethod
    def of(cls, moment: datetime) -> Month:
        """The month that `moment` lies in."""
        moment = moment.astimezone(UTC)
        return cls(moment.year, moment.month)

    def plus(self, months: int) -> Month:
        """The month so many later."""
        index = self.year * 12 + self.month - 1 + months
        return Month(index // 12, index % 12 + 1)

    @property
    def suffix(self) -> str:
        """The end of its partitions' names."""
        return f"{self.year:04}_{self.month:02}"

    @property
    def bounds(self) -> str:
        """The range, as PostgreSQL spells it."""
        following = self.plus(1)
        end = "MAXVALUE" if following.year > _LAST_YEAR else f"'{following.start}'"
        return f"FROM ('{self.start}') TO ({end})"

    @property
    def start(self) -> datetime:
        """Its first moment."""
        return datetime(self.year, self.month, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class PartitionReport:
    """What `ensure_partitions` did.

    Attributes:
        created: Months that got partitions, as YYYY_MM.
        moved: Decisions moved out of quarantine.
        refused: Decisions that had no month and turned out to be unstorable too; they stay in quarantine.
    """

    created: tuple[str, ...]
    moved: int
    refused: int


async def lock(connection: AsyncConnection) -> None:
    """Waits until no other process changes the schema of this database, to the end of the transaction."""
    await connection.execute(_LOCK)


async def act_as(connection: AsyncConnection, role: Role) -> None:
    """Takes on the rights of `role`, to the end of the transaction."""
    await connection.execute(sa.text(f"SET LOCAL ROLE {role}"))


async def ensure_partitions(
    database_url: str, months_ahead: int = 3, *, now: datetime | None = None
) -> PartitionReport:
    """Makes the partitions of last month to `months_ahead` ahead, and moves what waited for one.

    Run it daily, or at every start; it is safe in many processes at once. One transaction does it all.

    Raises:
        StoreUnavailable: The database cannot be reached, or is not migrated.
    """
    engine = create_engine(database_url, role=None, timeout=_TIMEOUT, name="classifier partitions")
    try:
        async with store_errors("making partitions"), engine.begin() as connection:
            await lock(connection)
            return await make_partitions(connection, now or datetime.now(UTC), months_ahead)
    finally:
        await engine.dispose()


async def make_partitions(connection: AsyncConnection, now: datetime, months_ahead: int) -> PartitionReport:
    """What `ensure_partitions` does, within a transaction that holds the lock."""
    await act_as(connection, "classifier_maintenance")
    month = sa.func.date_trunc("month", quarantine.c.decided_at)
    waiting = await connection.execute(sa.select(month).distinct().where(_WAITING))
    months = {Month.of(moment) for moment in waiting.scalars()}
    months |= {Month.of(now).plus(offset) for offset in range(-1, months_ahead + 1)}
    await act_as(connection, "classifier_owner")
    created = [month for month in sorted(months) if await _create(connection, month)]
    await act_as(connection, "classifier_maintenance")
    moved, refused = await _release(connection)
    return PartitionReport(tuple(month.suffix for month in created), moved, refused)


async def _create(connection: AsyncConnection, month: Month) -> bool:
    made = False
    for table in PARTITIONED:
        name = f"{SCHEMA}.{table.name}_{month.suffix}"
        there = await connection.execute(sa.text("SELECT to_regclass(:name)"), {"name": name})
        if there.scalar_one() is not None:
            continue
        await connection.execute(
            sa.text(f"CREATE TABLE {name} PARTITION OF {SCHEMA}.{table.name} FOR VALUES {month.bounds}")
        )
        # Nobody is granted anything on a partition; if somebody is one day, they see no rows.
        await connection.execute(
            sa.text(f"ALTER TABLE {name} ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY")
        )
        made = True
    return made


async def _release(connection: AsyncConnection) -> tuple[int, int]:
    moved = refused = 0
    select = sa.select(quarantine.c.kept).where(_WAITING).limit(_BATCH)
    while waiting := (await connection.execute(select)).scalars().all():
        batch = [released(kept) for kept in waiting]
        failed = await _move(connection, batch)
        moved += len(batch) - len(failed)
        refused += len(failed)
    return moved, refused


async def _move(connection: AsyncConnection, batch: list[Rows]) -> list[Rows]:
    """Moves the batch; those that are refused stay, under the code of their refusal, and are returned."""
    try:
        async with connection.begin_nested():
            await connection.execute(INSERT_DECISIONS, parameters(batch))
            await connection.execute(sa.delete(quarantine).where(_WAITING, _is_one_of(batch)))
    except DBAPIError as error:
        if not is_about_data(error):
            raise
        if len(batch) == 1:
            await _relabel(connection, batch[0], sqlstate(error) or "")
            return batch
        half = len(batch) // 2
        return [*await _move(connection, batch[:half]), *await _move(connection, batch[half:])]
    return []


async def _relabel(connection: AsyncConnection, rows: Rows, error: str) -> None:
    code = f"{error} again" if error == NO_PARTITION else error
    await connection.execute(sa.update(quarantine).where(_WAITING, _is_one_of([rows])).values(error=code))


def _is_one_of(batch: Iterable[Rows]) -> sa.ColumnElement[bool]:
    keys = [
        (uuid.UUID(kept["decision_id"]), datetime.fromisoformat(kept["decided_at"])) for kept in _facts(batch)
    ]
    return sa.tuple_(quarantine.c.decision_id, quarantine.c.decided_at).in_(keys)


def _facts(batch: Iterable[Rows]) -> Iterable[Row]:
    return (rows.decision for rows in batch)
