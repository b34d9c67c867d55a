"""The seal's own tables, read and appended to, of any tenant: acts as `classifier_maintenance`."""

from __future__ import annotations

import uuid
from collections.abc import AsyncGenerator, Collection, Iterable, Mapping
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
    await connection.execute(
        sa.insert(seal_leaves),
        [
            {
                "tenant": escape(tenant),
                "sequence": leaf.sequence,
                "kind": leaf.kind,
                "row_id": leaf.row_id,
                "moment": leaf.moment,
                "transaction_id": leaf.place.transaction_id,
                "arrival": leaf.place.arrival,
                "format": leaf.format,
                "row_hash": leaf.row_hash,
                "contents_hash": leaf.contents_hash,
                "chain_hash": leaf.chain_hash,
            }
            for leaf in leaves
        ],
    )


async def insert_checkpoint(connection: AsyncConnection, checkpoint: Checkpoint) -> None:
    """Stores a checkpoint."""
    await connection.execute(
        sa.insert(seal_checkpoints).values(
            tenant=escape(checkpoint.tenant),
            number=checkpoint.number,
            leaves=checkpoint.leaves,
            transaction_id=checkpoint.place.transaction_id,
            arrival=checkpoint.place.arrival,
            chain_hash=checkpoint.chain_hash,
            previous=checkpoint.previous,
            sealed_at=checkpoint.sealed_at,
            key_id=checkpoint.key_id,
            signature=checkpoint.signature,
        )
    )


async def insert_stub(connection: AsyncConnection, stub: RetainedStub) -> None:
    """Stores a stub; the same one again changes nothing."""
    await connection.execute(
        postgresql.insert(seal_stubs)
        .on_conflict_do_nothing()
        .values(
            tenant=escape(stub.tenant),
            kind=stub.kind,
            since=stub.since,
            until=stub.until,
            through=stub.through,
            leaves=stub.leaves,
            digest=stub.digest,
            made_at=stub.made_at,
            key_id=stub.key_id,
            signature=stub.signature,
        )
    )


def _leaf(row: Mapping[str, Any]) -> Leaf:
    return Leaf(
        sequence=row["sequence"],
        kind=row["kind"],
        row_id=row["row_id"],
        place=Place(row["transaction_id"], row["arrival"]),
        moment=row["moment"],
        format=row["format"],
        row_hash=row["row_hash"],
        contents_hash=row["contents_hash"],
        chain_hash=row["chain_hash"],
    )


def _checkpoint(row: Mapping[str, Any]) -> Checkpoint:
    return Checkpoint(
        tenant=unescape(row["tenant"]),
        number=row["number"],
        leaves=row["leaves"],
        place=Place(row["transaction_id"], row["arrival"]),
        chain_hash=row["chain_hash"],
        previous=row["previous"],
        sealed_at=row["sealed_at"],
        key_id=row["key_id"],
        signature=row["signature"],
    )


def _stub(row: Mapping[str, Any]) -> RetainedStub:
    return RetainedStub(
        tenant=unescape(row["tenant"]),
        kind=row["kind"],
        since=row["since"],
        until=row["until"],
        through=row["through"],
        leaves=row["leaves"],
        digest=row["digest"],
        made_at=row["made_at"],
        key_id=row["key_id"],
        signature=row["signature"],
    )
