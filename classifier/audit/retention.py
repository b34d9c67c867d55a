"""Retention: whole months are dropped after an age, one tenant's contents are emptied after a shorter one.

A month is dropped whole or not at all: one row in it that a legal hold covers keeps it. Contents are emptied
row by row, but for those that a hold covers. With a key of the seal, each month that goes leaves a signed
stub for every tenant that had rows in it, which `verify` takes instead of them.
"""

from __future__ import annotations

import re
import uuid
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from classifier.audit.escape import escape, unescape
from classifier.audit.holds import Hold, open_holds
from classifier.audit.inserts import kept_text, released
from classifier.audit.keeping import checked_name, keeping, put_on_record
from classifier.audit.partitions import Month, act_as
from classifier.audit.rows import utc
from classifier.audit.sealing import retained_stubs
from classifier.audit.signing import SealKey
from classifier.audit.tables import (
    PARTITIONED,
    SCHEMA,
    decision_contents,
    decisions,
    history_events,
    quarantine,
)
from classifier.values import JSON

_MONTH = re.compile(r"_(\d{4})_(\d{2})$")
_PARTITIONS = sa.text(
    "SELECT c.relname FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid "  # noqa: S608 - names of our own
    f"WHERE i.inhparent = CAST('{SCHEMA}.{decisions.name}' AS regclass)"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Dropped:
    """What became of the months that are old enough.

    Attributes:
        months: Those that were dropped, as YYYY_MM.
        decisions: How many decisions were in them, by tenant.
        held: Those that legal holds keep, with the holds.
        stubs: How many signed stubs were left; 0 without a key of the seal.
    """

    months: tuple[str, ...] = ()
    decisions: Mapping[str, int] = field(default_factory=dict[str, int])
    held: Mapping[str, tuple[uuid.UUID, ...]] = field(default_factory=dict[str, tuple[uuid.UUID, ...]])
    stubs: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Emptied:
    """What became of the contents that are old enough.

    Attributes:
        contents: Decisions that have none any more, those in quarantine included.
        events: Events that have lost what people wrote.
        holds: The open holds of the tenant, which what they cover was kept for.
    """

    contents: int
    events: int
    holds: tuple[uuid.UUID, ...]


async def drop_months(
    database_url: str,
    *,
    before: datetime,
    by: str,
    key: SealKey | None = None,
    dry_run: bool = False,
    now: datetime | None = None,
) -> Dropped:
    """Drops every month that ended before a moment, of all tenants at once; on the record of each of them.

    Rows of such a month that wait in quarantine go too, unless their tenant has a hold.

    Args:
        database_url: `postgresql://…`; the login must be allowed to SET ROLE classifier_owner.
        before: A month that contains it, or comes after it, stays.
        by: Who drops.
        key: Signs the stubs; everything must have been sealed with it before. None leaves none.
        dry_run: Says what would be dropped, and changes nothing.
        now: When; the present by default.

    Raises:
        StoreError: With a key, some of the rows are not sealed yet; nothing is dropped.
        StoreUnavailable: The database cannot be reached, is not migrated, or was too busy; nothing happened.
    """
    by, at = checked_name(by), utc(now or datetime.now(UTC))
    async with keeping(database_url, "dropping old months") as connection:
        old = [month for month in await _months(connection) if month < Month.of(before)]
        if not dry_run:
            await _lock(connection, old)
        holds = await open_holds(connection)
        held = {month: found for month in old if (found := await _holding(connection, month, holds))}
        going = [month for month in old if month not in held]
        waiting = _waiting(Month.of(before).start, {hold.tenant for hold in holds})
        report = Dropped(
            months=tuple(month.suffix for month in going),
            decisions=await _counted(connection, going, waiting),
            held={month.suffix: found for month, found in held.items()},
        )
        if not dry_run:
            stubs = [] if key is None else [await _stubs(connection, month, key) for month in going]
            report = replace(report, stubs=sum(stubs))
            await connection.execute(sa.delete(quarantine).where(waiting))
            await _on_record(connection, report, by, at)
            await _drop(connection, going)
    return report


async def empty_contents(
    database_url: str,
    *,
    tenant: str,
    before: datetime,
    by: str,
    dry_run: bool = False,
    now: datetime | None = None,
) -> Emptied:
    """Empties what one tenant's decisions before a moment were about; facts stay. On the record.

    Args:
        database_url: `postgresql://…`; the login must be allowed to SET ROLE classifier_maintenance.
        tenant: Whose.
        before: What was decided at this moment or later stays.
        by: Who empties.
        dry_run: Says how much there is, and changes nothing.
        now: When; the present by default.

    Raises:
        StoreUnavailable: The database cannot be reached, is not migrated, or was too busy; nothing happened.
    """
    by, at = checked_name(by), utc(now or datetime.now(UTC))
    async with keeping(database_url, "emptying old contents") as connection:
        holds = await open_holds(connection, tenant)
        emptying = _Emptying(connection, tenant, before, holds)
        emptied = Emptied(
            contents=await emptying.contents(dry_run=dry_run) + await emptying.waiting(dry_run=dry_run),
            events=await emptying.events(dry_run=dry_run),
            holds=tuple(hold.hold_id for hold in holds),
        )
        if not dry_run and (emptied.contents or emptied.events):
            body: dict[str, JSON] = {
                "what": "contents",
                "before": before.isoformat(),
                "contents": emptied.contents,
                "events": emptied.events,
            }
            await put_on_record(connection, "retention", tenant=tenant, at=at, by=by, body=body)
    return emptied


_EMPTIED = '%"contents":{}%'


class _Emptying:
    """One tenant's old contents, but for what a hold covers."""

    def __init__(
        self, connection: AsyncConnection, tenant: str, before: datetime, holds: Collection[Hold]
    ) -> None:
        self._connection = connection
        self._tenant = escape(tenant)
        self._before = before
        self._everything_held = any(hold.subject is None for hold in holds)
        self._held = sorted({hold.subject for hold in holds if hold.subject is not None})

    async def contents(self, *, dry_run: bool) -> int:
        columns, facts = decision_contents.c, decisions.c
        old = [columns.tenant == self._tenant, columns.decided_at < self._before]
        if self._held:
            covered = sa.exists().where(
                facts.decision_id == columns.decision_id,
                facts.decided_at == columns.decided_at,
                facts.subject.in_(self._held),
            )
            old.append(~covered)
        return await self._done(decision_contents, old, sa.delete(decision_contents), dry_run=dry_run)

    async def events(self, *, dry_run: bool) -> int:
        columns = history_events.c
        old = [columns.tenant == self._tenant, columns.at < self._before, columns.content.is_not(None)]
        if self._held:
            covered = sa.exists().where(
                decisions.c.tenant == self._tenant,
                decisions.c.subject.in_(self._held),
                sa.or_(
                    decisions.c.decision_id == columns.decision_id,
                    sa.and_(
                        columns.workflow_id != "",
                        decisions.c.workflow_id == columns.workflow_id,
                    ),
                ),
            )
            about = sa.func.coalesce(columns.body["subject"].astext, "").in_(self._held)
            old += [~covered, ~about]
        emptying = sa.update(history_events).values(content=sa.null())
        return await self._done(history_events, old, emptying, dry_run=dry_run)

    async def waiting(self, *, dry_run: bool) -> int:
        """What is in quarantine; a row that has lost its contents is of no use to be read again."""
        if self._everything_held:
            return 0
        columns = quarantine.c
        old = sa.and_(columns.tenant == self._tenant, columns.decided_at < self._before)
        found = await self._connection.execute(
            sa.select(columns.decision_id, columns.decided_at).where(old, columns.kept.not_like(_EMPTIED))
        )
        emptied = 0
        for decision_id, decided_at in found.all():
            this = sa.and_(columns.decision_id == decision_id, columns.decided_at == decided_at)
            rows = released(await self._connection.scalar(sa.select(columns.kept).where(this)) or "")
            if rows.contents and rows.decision["subject"] not in self._held:
                emptied += 1
                if not dry_run:
                    kept = kept_text(replace(rows, contents={}))
                    await self._connection.execute(sa.update(quarantine).where(this).values(kept=kept))
        return emptied

    async def _done(
        self,
        table: sa.Table,
        old: Sequence[sa.ColumnElement[bool]],
        statement: sa.Delete | sa.Update,
        *,
        dry_run: bool,
    ) -> int:
        if self._everything_held:
            return 0
        if dry_run:
            counting = sa.select(sa.func.count()).select_from(table).where(*old)
            return int((await self._connection.execute(counting)).scalar_one())
        return (await self._connection.execute(statement.where(*old))).rowcount


async def _months(connection: AsyncConnection) -> list[Month]:
    found = (_MONTH.search(name) for name in await connection.scalars(_PARTITIONS))
    return sorted(Month(int(name[1]), int(name[2])) for name in found if name is not None)


def _within(month: Month) -> sa.ColumnElement[bool]:
    moment = decisions.c.decided_at
    return sa.and_(moment >= month.start, moment < month.plus(1).start)


async def _holding(
    connection: AsyncConnection, month: Month, holds: Collection[Hold]
) -> tuple[uuid.UUID, ...]:
    """The holds that cover a row of the month."""
    found: list[uuid.UUID] = []
    for hold in holds:
        covered = [decisions.c.tenant == escape(hold.tenant), _within(month)]
        if hold.subject is not None:
            covered.append(decisions.c.subject == hold.subject)
        if await connection.scalar(sa.select(sa.exists().where(*covered))):
            found.append(hold.hold_id)
    return tuple(found)


async def _counted(
    connection: AsyncConnection, months: Collection[Month], waiting: sa.ColumnElement[bool]
) -> dict[str, int]:
    conditions = [(decisions, _within(month)) for month in months]
    counts = Counter[str]()
    for table, condition in (*conditions, (quarantine, waiting)):
        tenant = table.c.tenant
        select = sa.select(tenant, sa.func.count()).where(condition).group_by(tenant)
        for name, count in await connection.execute(select):
            counts[unescape(name)] += count
    return dict(sorted(counts.items()))


async def _lock(connection: AsyncConnection, months: Collection[Month]) -> None:
    """Lets nobody write to these months any more, to the end of the transaction."""
    await act_as(connection, "classifier_owner")
    for name in _partitions_of(months):
        await connection.execute(sa.text(f"LOCK TABLE {name} IN SHARE MODE"))
    await act_as(connection, "classifier_maintenance")


async def _stubs(connection: AsyncConnection, month: Month, key: SealKey) -> int:
    return len(await retained_stubs(connection, key, since=month.start, until=month.plus(1).start))


async def _drop(connection: AsyncConnection, months: Collection[Month]) -> None:
    """The last thing of a transaction, since nobody reads or writes any month from here to its end."""
    await act_as(connection, "classifier_owner")
    for name in _partitions_of(months):
        await connection.execute(sa.text(f"DROP TABLE {name}"))


def _partitions_of(months: Collection[Month]) -> list[str]:
    return [f"{SCHEMA}.{table.name}_{month.suffix}" for month in months for table in PARTITIONED]


def _waiting(before: datetime, held: Collection[str]) -> sa.ColumnElement[bool]:
    """What waits in quarantine for a month that would be old enough; tenants with a hold keep theirs."""
    columns = quarantine.c
    return sa.and_(columns.decided_at < before, columns.tenant.not_in([escape(tenant) for tenant in held]))


async def _on_record(connection: AsyncConnection, report: Dropped, by: str, at: datetime) -> None:
    for tenant, count in report.decisions.items():
        body: dict[str, JSON] = {"what": "months", "months": list(report.months), "decisions": count}
        await put_on_record(connection, "retention", tenant=tenant, at=at, by=by, body=body)
