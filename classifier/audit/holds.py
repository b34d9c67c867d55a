"""Legal holds: what must not be forgotten for now.

A hold is on everything of a tenant, or on one person, whom it knows by pseudonym alone. While it is open,
erasure of that person is refused, months that hold a row it covers are not dropped, and contents it covers
are not emptied. A hold that is released stays in the table, as the record of what it was.
"""

from __future__ import annotations

import uuid
from collections.abc import Collection
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from classifier.audit.escape import escape, escape_optional, unescape, unescape_optional
from classifier.audit.keeping import checked_name, keeping, names, put_on_record
from classifier.audit.reader import TenantReader
from classifier.audit.rows import subject_of, utc
from classifier.audit.tables import legal_holds
from classifier.errors import ConfigurationError
from classifier.values import JSON

_OPEN = legal_holds.c.released_at.is_(None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Hold:
    """A legal hold.

    Attributes:
        hold_id: By which it is released.
        tenant: Whose decisions it holds.
        subject: The pseudonym of the person it is about; None where it holds everything of the tenant.
        reason: Why, in the words of whoever placed it; empty after the person was erased.
        placed_by: Who placed it.
        placed_at: When.
        released_by: Who released it; None while it is open.
        released_at: When; None while it is open.
    """

    hold_id: uuid.UUID
    tenant: str
    subject: str | None
    reason: str
    placed_by: str
    placed_at: datetime
    released_by: str | None = None
    released_at: datetime | None = None


async def place_hold(
    database_url: str,
    *,
    hash_key: bytes,
    tenant: str,
    resource: str | None = None,
    reason: str,
    by: str,
    now: datetime | None = None,
) -> Hold:
    """Holds everything of a tenant, or of one person; on the record.

    Args:
        database_url: `postgresql://…`; the login must be allowed to SET ROLE classifier_maintenance.
        hash_key: The store's.
        tenant: Whose decisions.
        resource: The person's id, of which only the pseudonym is kept; None for everybody.
        reason: Why.
        by: Who places it.
        now: When; the present by default.

    Raises:
        ConfigurationError: There is no reason, nobody who places it, or the id stands in one of them.
        StoreUnavailable: The database cannot be reached, is not migrated, or was too busy.
    """
    if not reason.strip():
        raise ConfigurationError("a hold says why: --reason TEXT")
    if resource is not None and names(reason, resource):
        raise ConfigurationError(
            "the reason holds the id of the person; a hold knows them by pseudonym alone"
        )
    hold = Hold(
        hold_id=uuid.uuid4(),
        tenant=tenant,
        subject=None if resource is None else subject_of(hash_key, tenant, resource),
        reason=reason.strip(),
        placed_by=checked_name(by, resource),
        placed_at=utc(now or datetime.now(UTC)),
    )
    async with keeping(database_url, "placing a hold") as connection:
        await connection.execute(sa.insert(legal_holds), _row_of(hold))
        await _on_record(connection, hold, "placed", hold.placed_by, hold.placed_at)
    return hold


async def release_hold(
    database_url: str, hold_id: uuid.UUID, *, tenant: str, by: str, now: datetime | None = None
) -> Hold:
    """Ends a hold; on the record.

    Raises:
        ConfigurationError: The tenant has no such hold, or it was released before.
        StoreUnavailable: As for `place_hold`.
    """
    at, by = utc(now or datetime.now(UTC)), checked_name(by)
    columns = legal_holds.c
    mine = sa.and_(columns.tenant == escape(tenant), columns.hold_id == hold_id)
    async with keeping(database_url, "releasing a hold") as connection:
        row = (await connection.execute(sa.select(legal_holds).where(mine))).mappings().first()
        if row is None:
            raise ConfigurationError(f"tenant {tenant!r} has no hold {hold_id}")
        if row["released_at"] is not None:
            raise ConfigurationError(f"hold {hold_id} was released on {row['released_at']:%Y-%m-%d}")
        released = {"released_by": escape(by), "released_at": at}
        await connection.execute(sa.update(legal_holds).where(mine).values(released))
        hold = _hold_of(dict(row) | released)
        await _on_record(connection, hold, "released", by, at)
    return hold


async def list_holds(database_url: str, tenant: str, *, released: bool = False) -> tuple[Hold, ...]:
    """The holds of a tenant, oldest first; with `released`, those of the past too.

    Raises:
        StoreUnavailable: As for `place_hold`.
    """
    async with _HoldReader(database_url) as reader:
        return await reader.holds(tenant, released=released)


async def holds_on(connection: AsyncConnection, tenant: str, subjects: Collection[str]) -> tuple[Hold, ...]:
    """The open holds on a tenant as a whole, and on these persons."""
    columns = legal_holds.c
    covered = sa.or_(columns.subject.is_(None), columns.subject.in_(subjects))
    select = sa.select(legal_holds).where(columns.tenant == escape(tenant), _OPEN, covered)
    rows = await connection.execute(select.order_by(columns.placed_at))
    return tuple(_hold_of(dict(row)) for row in rows.mappings())


async def open_holds(connection: AsyncConnection, tenant: str | None = None) -> tuple[Hold, ...]:
    """The open holds, of one tenant or of all."""
    select = sa.select(legal_holds).where(_OPEN).order_by(legal_holds.c.placed_at)
    if tenant is not None:
        select = select.where(legal_holds.c.tenant == escape(tenant))
    return tuple(_hold_of(dict(row)) for row in (await connection.execute(select)).mappings())


class _HoldReader(TenantReader):
    async def holds(self, tenant: str, *, released: bool) -> tuple[Hold, ...]:
        select = sa.select(legal_holds).where(legal_holds.c.tenant == escape(tenant))
        if not released:
            select = select.where(_OPEN)
        async with self._reading(tenant) as connection:
            rows = await connection.execute(select.order_by(legal_holds.c.placed_at, legal_holds.c.hold_id))
            return tuple(_hold_of(dict(row)) for row in rows.mappings())


async def _on_record(connection: AsyncConnection, hold: Hold, what: str, by: str, at: datetime) -> None:
    body: dict[str, JSON] = {"hold_id": str(hold.hold_id), "what": what, "subject": hold.subject}
    if what == "placed":
        body["reason"] = hold.reason
    await put_on_record(connection, "hold", tenant=hold.tenant, at=at, by=by, body=body)


def _row_of(hold: Hold) -> dict[str, Any]:
    return {
        "hold_id": hold.hold_id,
        "tenant": escape(hold.tenant),
        "subject": hold.subject,
        "reason": escape(hold.reason),
        "placed_by": escape(hold.placed_by),
        "placed_at": hold.placed_at,
        "released_by": escape_optional(hold.released_by),
        "released_at": hold.released_at,
    }


def _hold_of(row: dict[str, Any]) -> Hold:
    return Hold(
        hold_id=row["hold_id"],
        tenant=unescape(row["tenant"]),
        subject=row["subject"],
        reason=unescape(row["reason"]),
        placed_by=unescape(row["placed_by"]),
        placed_at=row["placed_at"],
        released_by=unescape_optional(row["released_by"]),
        released_at=row["released_at"],
    )
