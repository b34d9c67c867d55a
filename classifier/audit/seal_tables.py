"""The seal's own tables, read and appended to, of any tenant: acts as `classifier_maintenance`."""

from __future__ import annotations

import uuid
from collections.abc import AsyncGenerator, Collection, Iterable
from dataclasses import asdict, fields
from datetime import datetime
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql
from sqlalchemy.ext.asyncio import AsyncConnection

from classifier.audit.chain import Checkpoint, Kind, Leaf, Place, RetainedStub
from classifier.audit.escape import escape, unescape
from classifier.audit.seal_rows import is_one_of
from classifier.audit.tables import seal_checkpoints, seal_leaves, seal_stubs


async def places_of_leaves(
    connection: AsyncConnection, tenant: str, ids: Collection[uuid.UUID]
) -> dict[uuid.UUID, set[Place]]:
    """Where rows of these ids stood when they were sealed."""
    columns = seal_leaves.c
    select = sa.select(columns.row_id, columns.transaction_id, columns.arrival)
    found: dict[uuid.UUID, set[Place]] = {}
    for row_id, transaction, arrival in await connection.execute(
        select.where(columns.tenant == escape(tenant), is_one_of(columns.row_id, ids))
    ):
        found.setdefault(row_id, set()).add(Place(transaction, arrival))
    return found


async def leaves_after(connection: AsyncConnection, tenant: str, sequence: int, limit: int) -> list[Leaf]:
    """The leaves that follow a number."""
    columns = seal_leaves.c
    select = (
        sa.select(seal_leaves)
        .where(columns.tenant == escape(tenant), columns.sequence > sequence)
        .order_by(columns.sequence)
        .limit(limit)
    )
    return [_leaf(dict(row)) for row in (await connection.execute(select)).mappings()]


async def links_of_period(
    connection: AsyncConnection, tenant: str, kind: Kind, since: datetime, until: datetime
) -> AsyncGenerator[bytes]:
    """The links of the leaves whose moment lies in a period, in order."""
    columns = seal_leaves.c
    select = (
        sa.select(columns.chain_hash)
        .where(
            columns.tenant == escape(tenant),
            columns.kind == kind,
            columns.moment >= since,
            columns.moment < until,
        )
        .order_by(columns.sequence)
    )
    async with connection.stream(select) as links:
        async for (link,) in links:
            yield link


async def checkpoints_after(
    connection: AsyncConnection, tenant: str, number: int, limit: int
) -> list[Checkpoint]:
    """The checkpoints that follow a number."""
    columns = seal_checkpoints.c
    select = (
        sa.select(seal_checkpoints)
        .where(columns.tenant == escape(tenant), columns.number > number)
        .order_by(columns.number)
        .limit(limit)
    )
    return [_checkpoint(dict(row)) for row in (await connection.execute(select)).mappings()]


async def last_checkpoint(connection: AsyncConnection, tenant: str) -> Checkpoint | None:
    """The newest checkpoint of a tenant."""
    columns = seal_checkpoints.c
    select = (
        sa.select(seal_checkpoints)
        .where(columns.tenant == escape(tenant))
        .order_by(columns.number.desc())
        .limit(1)
    )
    row = (await connection.execute(select)).mappings().first()
    return None if row is None else _checkpoint(dict(row))


async def stubs_of(connection: AsyncConnection, tenant: str) -> list[RetainedStub]:
    """What retention said it dropped."""
    columns = seal_stubs.c
    select = (
        sa.select(seal_stubs)
        .where(columns.tenant == escape(tenant))
        .order_by(columns.since, columns.kind, columns.through)
    )
    return [_stub(dict(row)) for row in (await connection.execute(select)).mappings()]


async def insert_leaves(connection: AsyncConnection, tenant: str, leaves: Iterable[Leaf]) -> None:
    """Stores leaves."""
    whose = {"tenant": escape(tenant)}
    await connection.execute(sa.insert(seal_leaves), [_row(leaf) | whose for leaf in leaves])


async def insert_checkpoint(connection: AsyncConnection, checkpoint: Checkpoint) -> None:
    """Stores a checkpoint."""
    await connection.execute(sa.insert(seal_checkpoints), _row(checkpoint))


async def insert_stub(connection: AsyncConnection, stub: RetainedStub) -> None:
    """Stores a stub; the same one again changes nothing."""
    await connection.execute(postgresql.insert(seal_stubs).on_conflict_do_nothing(), _row(stub))


def _row(sealed: Leaf | Checkpoint | RetainedStub) -> dict[str, Any]:
    """The columns are the fields by their names, but for the place, which is two of them."""
    row = {each.name: getattr(sealed, each.name) for each in fields(sealed)}
    if "place" in row:
        row |= asdict(row.pop("place"))
    if "tenant" in row:
        row["tenant"] = escape(row["tenant"])
    return row


def _leaf(row: dict[str, Any]) -> Leaf:
    del row["tenant"]
    return Leaf(**_placed(row))


def _checkpoint(row: dict[str, Any]) -> Checkpoint:
    return Checkpoint(tenant=unescape(row.pop("tenant")), **_placed(row))


def _stub(row: dict[str, Any]) -> RetainedStub:
    return RetainedStub(tenant=unescape(row.pop("tenant")), **row)


def _placed(row: dict[str, Any]) -> dict[str, Any]:
    place = Place(row.pop("transaction_id"), row.pop("arrival"))
    return {**row, "place": place}
