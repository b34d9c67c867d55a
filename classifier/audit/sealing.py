"""Sealing what has arrived: rows become leaves of their tenant's chain, and a checkpoint signs where it ends.

Acts as `classifier_maintenance`, beside everything that writes: no row is touched, and only rows of finished
transactions are sealed, so nothing can come in front of them any more. A batch is one transaction under a
lock of the tenant's; whoever stops half-way has sealed so much, and any number may run at once.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from classifier.audit import seal_rows, seal_tables
from classifier.audit.arrivals import restored
from classifier.audit.chain import (
    Checkpoint,
    Kind,
    Link,
    Place,
    RetainedStub,
    StoredRow,
    chained,
    folded,
    link_of,
    root,
)
from classifier.audit.engine import create_engine, store_errors
from classifier.audit.signing import PublicKeys, SealKey
from classifier.errors import StoreError

BATCH = 1000
_TIMEOUT = 300.0
_PAGE = 500


@dataclass(frozen=True, slots=True, kw_only=True)
class Sealed:
    """What `seal` did for one tenant.

    Attributes:
        tenant: Whose rows.
        rows: How many were sealed now.
        checkpoint: The newest one; None where nothing ever was sealed.
        problem: Why the chain was left alone, or None.
    """

    tenant: str
    rows: int
    checkpoint: Checkpoint | None
    problem: str | None = None


async def seal(
    database_url: str,
    key: SealKey,
    *,
    keys: PublicKeys,
    hash_key: bytes,
    batch: int = BATCH,
    advance: Callable[[int], None] | None = None,
) -> tuple[Sealed, ...]:
    """Seals what has arrived since the last time, of every tenant; one result for each.

    Args:
        database_url: `postgresql://…`; the login must be allowed to SET ROLE classifier_maintenance.
        key: Signs the new checkpoints.
        keys: Whose checkpoints may be built on.
        hash_key: Keys the hashes of what may be erased; the same as the store's.
        batch: Rows in one transaction, and in memory, at most.
        advance: Told how many rows were sealed, batch by batch.

    Raises:
        StoreUnavailable: The database cannot be reached, or is not migrated.
        StoreError: Rows were restored from another server, so their order of arrival says nothing here.
    """
    done: list[Sealed] = []
    async with acting(database_url, "sealing") as engine:
        async with engine.begin() as connection:
            tenants = await seal_rows.tenants(connection)
        for tenant in tenants:
            total, more = 0, True
            sealed = Sealed(tenant=tenant, rows=0, checkpoint=None)
            while more:
                async with engine.begin() as connection:
                    sealed, more = await _step(connection, tenant, key, keys, hash_key=hash_key, batch=batch)
                total += sealed.rows
                if advance is not None:
                    advance(sealed.rows)
            done.append(replace(sealed, rows=total))
    return tuple(done)


async def missing_outside(database_url: str, known: Mapping[str, Checkpoint]) -> AsyncGenerator[Checkpoint]:
    """The checkpoints that follow those that are `known` outside the database, tenant by tenant.

    Args:
        database_url: As for `seal`.
        known: The newest that is kept outside, by tenant.

    Raises:
        StoreUnavailable: The database cannot be reached, or is not migrated.
        StoreError: The database has another checkpoint in the place of a known one, or none.
    """
    async with acting(database_url, "reading checkpoints") as engine, engine.begin() as connection:
        for tenant in sorted({*known, *await seal_rows.tenants(connection)}):
            last = known.get(tenant)
            number = 0 if last is None else last.number
            if last is not None:
                same = await seal_tables.checkpoints_after(connection, tenant, number - 1, 1)
                if [each.hash for each in same] != [last.hash]:
                    raise StoreError(
                        f"checkpoint {number} of tenant {tenant!r} is not in the database as it was kept "
                        "outside; nothing was added there, `classifier history verify --against` says more"
                    )
            while page := await seal_tables.checkpoints_after(connection, tenant, number, _PAGE):
                for checkpoint in page:
                    yield checkpoint
                number = page[-1].number


async def retained_stub(
    connection: AsyncConnection,
    key: SealKey,
    *,
    tenant: str,
    since: datetime,
    until: datetime,
    kind: Kind = "decision",
) -> RetainedStub | None:
    """States that retention drops a tenant's rows of a period, so that `verify` takes this instead of them.

    Call it in the transaction that drops them, after nobody can add any (the partition is locked or
    detached), and after `seal`.

    Args:
        connection: Acts as classifier_maintenance.
        key: Signs the stub.
        tenant: Whose rows.
        since: First moment of the period: `decided_at` of decisions, `at` of events.
        until: Its end, exclusive.
        kind: Which rows.

    Returns:
        The stub, stored; None where the tenant has no rows of the period, sealed or not.

    Raises:
        StoreError: Some of the rows are not sealed yet, and would be gone without a trace.
    """
    last = await seal_tables.last_checkpoint(connection, tenant)
    place, through = (root(tenant).place, 0) if last is None else (last.place, last.leaves)
    unsealed = await seal_rows.count_of_period(
        connection, tenant, kind, since=since, until=until, after=place
    )
    if unsealed:
        raise StoreError(
            f"{unsealed} rows of tenant {tenant!r} that retention would drop are not sealed yet; "
            "run `classifier history seal` first"
        )
    digest, leaves = b"", 0
    async for link in seal_tables.links_of_period(connection, tenant, kind, since, until):
        digest, leaves = folded(digest, link), leaves + 1
    if not leaves:
        return None
    stub = RetainedStub(
        tenant=tenant,
        kind=kind,
        since=since,
        until=until,
        through=through,
        leaves=leaves,
        digest=digest,
        made_at=datetime.now(UTC),
        key_id=key.key_id,
    )
    stub = key.signed(stub)
    await seal_tables.insert_stub(connection, stub)
    return stub


async def retained_stubs(
    connection: AsyncConnection,
    key: SealKey,
    *,
    since: datetime,
    until: datetime,
    kind: Kind = "decision",
) -> tuple[RetainedStub, ...]:
    """`retained_stub` for every tenant, as where a whole partition is dropped."""
    stubs = [
        await retained_stub(connection, key, tenant=tenant, since=since, until=until, kind=kind)
        for tenant in await seal_rows.tenants(connection)
    ]
    return tuple(stub for stub in stubs if stub is not None)


@asynccontextmanager
async def acting(database_url: str, what: str) -> AsyncGenerator[AsyncEngine]:
    """An engine of one connection that acts as `classifier_maintenance`; errors are ours."""
    engine = create_engine(
        database_url, role="classifier_maintenance", timeout=_TIMEOUT, name="classifier seal"
    )
    try:
        async with store_errors(what):
            yield engine
    finally:
        await engine.dispose()


async def _step(
    connection: AsyncConnection,
    tenant: str,
    key: SealKey,
    keys: PublicKeys,
    *,
    hash_key: bytes,
    batch: int,
) -> tuple[Sealed, bool]:
    """Seals a batch; also whether there may be more."""
    await seal_rows.lock(connection, tenant)
    last = await seal_tables.last_checkpoint(connection, tenant)
    fault = None if last is None else keys.fault(last)
    if last is not None and fault is not None:
        problem = f"checkpoint {last.number} {fault}; nothing is sealed on top of it"
        return Sealed(tenant=tenant, rows=0, checkpoint=last, problem=problem), False
    link = root(tenant) if last is None else Link(last.leaves, last.place, last.chain_hash)
    rows = await _final(connection, tenant, link.place, batch)
    leaves = chained(link, rows, hash_key)
    if not leaves:
        return Sealed(tenant=tenant, rows=0, checkpoint=last), False
    made = key.signed(_checkpoint(tenant, last, link_of(leaves[-1])))
    await seal_tables.insert_leaves(connection, tenant, leaves)
    await seal_tables.insert_checkpoint(connection, made)
    return Sealed(tenant=tenant, rows=len(leaves), checkpoint=made), len(rows) == batch


async def _final(connection: AsyncConnection, tenant: str, after: Place, limit: int) -> list[StoredRow]:
    await seal_rows.spelled(connection)
    before, unborn = await seal_rows.horizon(connection, tenant)
    if unborn:
        raise restored(tenant)
    return await seal_rows.final_rows(connection, tenant, after, before, limit)


def _checkpoint(tenant: str, last: Checkpoint | None, link: Link) -> Checkpoint:
    return Checkpoint(
        tenant=tenant,
        number=1 if last is None else last.number + 1,
        leaves=link.sequence,
        place=link.place,
        chain_hash=link.chain_hash,
        previous=None if last is None else last.hash,
        sealed_at=datetime.now(UTC),
        key_id="",
    )
