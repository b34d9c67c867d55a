"""Verifying the history against its seals: reads everything again, and says what is not as it was sealed.

Acts as `classifier_maintenance` and changes nothing. Each tenant is read in one snapshot, stretch by stretch,
so memory stays flat and writers and sealers may go on meanwhile.
"""

from __future__ import annotations

import uuid
from collections import deque
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy.ext.asyncio import AsyncConnection

from classifier.audit import seal_rows, seal_tables
from classifier.audit.chain import (
    Checkpoint,
    Leaf,
    Link,
    RetainedStub,
    StoredRow,
    broken_link,
    folded,
    link_of,
    root,
)
from classifier.audit.compare import (
    Breach,
    checkpoint_breach,
    differences,
    differs_outside,
    leaf_breach,
    outside_breach,
    settled,
    stub_detail,
)
from classifier.audit.sealing import acting
from classifier.audit.signing import PublicKeys

MOST_BREACHES = 20
"""Of one tenant; whoever changed more has been found out."""
_PAGE = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class Verified:
    """What `verify` found for one tenant.

    Attributes:
        tenant: Whose history.
        leaves: Rows that the chain holds.
        checkpoints: How many sign it.
        sealed_at: When the last one was made; None where nothing ever was sealed.
        retained: Rows that retention dropped and a stub stands for.
        erased: Rows whose contents are gone since; None where contents were not looked at.
        unsealed: Rows that came after the last checkpoint, of which nothing can be said.
        outside: Checkpoints from outside the database that were held against it.
        breaches: What is not as it was sealed, the first first; at most `MOST_BREACHES`.
    """

    tenant: str
    leaves: int
    checkpoints: int
    sealed_at: datetime | None
    retained: int
    erased: int | None
    unsealed: int
    outside: int
    breaches: tuple[Breach, ...]


async def verify(
    database_url: str,
    keys: PublicKeys,
    *,
    hash_key: bytes | None = None,
    outside: Mapping[str, Sequence[Checkpoint]] | None = None,
    tenant: str | None = None,
    advance: Callable[[int], None] | None = None,
) -> AsyncGenerator[Verified]:
    """Holds the history against its seals, tenant by tenant.

    Args:
        database_url: `postgresql://…`; the login must be allowed to SET ROLE classifier_maintenance.
        keys: Whose signatures count.
        hash_key: Keys the hashes of what may be erased; None does not look at it.
        outside: Checkpoints that were kept outside the database, by tenant.
        tenant: Only this one.
        advance: Told how many rows were read, page by page.

    Raises:
        StoreUnavailable: The database cannot be reached, or is not migrated.
    """
    kept = outside or {}
    async with acting(database_url, "verifying") as engine:
        async with engine.begin() as connection:
            everyone = [tenant] if tenant is not None else await seal_rows.tenants(connection)
        for each in everyone if tenant is not None else sorted({*everyone, *kept}):
            async with engine.connect() as connection:
                await connection.execution_options(
                    isolation_level="REPEATABLE READ", postgresql_readonly=True
                )
                async with connection.begin():
                    await seal_rows.spelled(connection)
                    walk = _Walk(connection, each, keys, hash_key=hash_key, advance=advance)
                    yield await walk.through(kept.get(each, ()))


class _Walk:
    """One tenant's chain, read from its beginning to its end."""

    def __init__(
        self,
        connection: AsyncConnection,
        tenant: str,
        keys: PublicKeys,
        *,
        hash_key: bytes | None,
        advance: Callable[[int], None] | None,
    ) -> None:
        self._connection = connection
        self._tenant = tenant
        self._keys = keys
        self._hash_key = hash_key
        self._advance = advance
        self._link = root(tenant)
        self._last: Checkpoint | None = None
        self._outside = deque[Checkpoint]()
        self._waiting: list[Checkpoint] = []
        self._stubs: list[RetainedStub] = []
        self._digests: list[tuple[int, bytes]] = []
        self._retained = self._erased = 0
        self._breaches: list[Breach] = []
        self._told: set[tuple[str, uuid.UUID | None]] = set()

    async def through(self, outside: Sequence[Checkpoint]) -> Verified:
        """The whole way."""
        await self._load_stubs()
        for each in sorted(outside, key=lambda checkpoint: checkpoint.leaves):
            fault = self._keys.fault(each)
            if fault is None:
                self._outside.append(each)
            else:
                self._add([outside_breach(each, fault)])
        believed = len(self._outside)
        whole = True
        while whole and len(self._breaches) < MOST_BREACHES:
            leaves = await seal_tables.leaves_after(
                self._connection, self._tenant, self._link.sequence, _PAGE
            )
            if not leaves:
                await self._end()
                break
            whole = await self._stretch(leaves)
        return await self._report(believed)

    async def _load_stubs(self) -> None:
        for stub in await seal_tables.stubs_of(self._connection, self._tenant):
            fault = self._keys.fault(stub)
            if fault is None:
                self._stubs.append(stub)
                self._digests.append((0, b""))
            else:
                self._add([Breach(fault="stub", detail=stub_detail(stub, fault))])

    async def _stretch(self, leaves: Sequence[Leaf]) -> bool:
        """Judges the leaves that come next, and what stands beside them; whether the chain goes on."""
        broken = broken_link(self._link, leaves)
        sound = leaves if broken is None else leaves[: broken - self._link.sequence - 1]
        if sound:
            await self._rows(sound)
            reached = {leaf.sequence: link_of(leaf) for leaf in sound}
            await self._checkpoints(reached)
            self._link = link_of(sound[-1])
            while self._outside and self._outside[0].leaves <= self._link.sequence:
                each = self._outside.popleft()
                self._add([outside_breach(each, differs_outside(each, reached.get(each.leaves, self._link)))])
        if broken is not None:
            self._add([leaf_breach(broken)])
        if self._advance is not None:
            self._advance(len(leaves))
        return broken is None

    async def _rows(self, leaves: Sequence[Leaf]) -> None:
        rows, cut = await seal_rows.rows_between(
            self._connection,
            self._tenant,
            self._link.place,
            leaves[-1].place,
            len(leaves) + MOST_BREACHES + 1,
            contents=self._hash_key is not None,
        )
        if cut is not None:  # more rows than leaves: enough are left to tell of
            rows = [row for row in rows if row.place < cut]
            leaves = [leaf for leaf in leaves if leaf.place < cut]
        found = differences(leaves, rows, stubs=self._stubs, hash_key=self._hash_key)
        self._count(leaves, rows)
        self._add(await self._settled(found))

    def _count(self, leaves: Sequence[Leaf], rows: Iterable[StoredRow]) -> None:
        standing = {row.row_id: row for row in rows}
        for leaf in leaves:
            row = standing.get(leaf.row_id)
            covering = [index for index, stub in enumerate(self._stubs) if stub.covers(leaf)]
            for index in covering:
                count, digest = self._digests[index]
                self._digests[index] = (count + 1, folded(digest, leaf.chain_hash))
            if row is None:
                self._retained += bool(covering)
            elif leaf.contents_hash is not None and row.contents is None:
                self._erased += 1

    async def _settled(self, found: Sequence[Breach]) -> list[Breach]:
        found = found[: 2 * MOST_BREACHES]
        ids = {breach.row_id for breach in found if breach.row_id is not None}
        if not ids:
            return list(found)
        sealed = await seal_tables.places_of_leaves(self._connection, self._tenant, ids)
        standing = await seal_rows.places_of_rows(self._connection, self._tenant, ids)
        return settled(found, sealed, standing)

    async def _checkpoints(self, reached: Mapping[int, Link]) -> None:
        end = max(reached)
        while checkpoint := await self._next_checkpoint():
            if checkpoint.leaves > end:
                self._waiting.insert(0, checkpoint)
                return
            self._judge(checkpoint, reached.get(checkpoint.leaves))

    async def _next_checkpoint(self) -> Checkpoint | None:
        if not self._waiting:
            number = 0 if self._last is None else self._last.number
            self._waiting = await seal_tables.checkpoints_after(self._connection, self._tenant, number, _PAGE)
        return self._waiting.pop(0) if self._waiting else None

    def _judge(self, checkpoint: Checkpoint, reached: Link | None) -> None:
        fault = self._keys.fault(checkpoint)
        self._add([checkpoint_breach(checkpoint, self._last, reached, fault)])
        self._last = checkpoint

    async def _end(self) -> None:
        """Judges what lies beyond the last leaf, and whether the chain ends where it should."""
        while checkpoint := await self._next_checkpoint():
            self._judge(checkpoint, None)
        signed = 0 if self._last is None else self._last.leaves
        if self._link.sequence > signed:
            self._add([leaf_breach(signed + 1, unsigned=True)])
        self._add(outside_breach(each, differs_outside(each, self._link)) for each in self._outside)
        for stub, found in zip(self._stubs, self._digests, strict=True):
            if found != (stub.leaves, stub.digest):
                detail = stub_detail(stub, "does not agree with the leaves it covers")
                self._add([Breach(fault="stub", detail=detail)])

    def _add(self, found: Iterable[Breach | None]) -> None:
        for breach in found:
            if breach is None or len(self._breaches) == MOST_BREACHES:
                continue
            about = (breach.fault, breach.row_id)
            if breach.row_id is None or about not in self._told:
                self._told.add(about)
                self._breaches.append(breach)

    async def _report(self, outside: int) -> Verified:
        newest = await seal_tables.last_checkpoint(self._connection, self._tenant)
        place = root(self._tenant).place if newest is None else newest.place
        return Verified(
            tenant=self._tenant,
            leaves=self._link.sequence,
            checkpoints=0 if newest is None else newest.number,
            sealed_at=None if newest is None else newest.sealed_at,
            retained=self._retained,
            erased=None if self._hash_key is None else self._erased,
            unsealed=await seal_rows.count_after(self._connection, self._tenant, place),
            outside=outside,
            breaches=tuple(self._breaches),
        )
