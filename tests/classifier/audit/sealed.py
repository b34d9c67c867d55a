"""A sealed history for tests, and somebody with every right on the database who changes it."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Mapping, Sequence
from datetime import timedelta

import sqlalchemy as sa

from classifier.audit.chain import Checkpoint
from classifier.audit.engine import create_engine
from classifier.audit.postgres import PostgresStore
from classifier.audit.records import HistoryEvent, event_id_of
from classifier.audit.sealing import missing_outside, seal
from classifier.audit.signing import PublicKeys, SealKey, new_key
from classifier.audit.tables import EVERY_TABLE, SCHEMA
from classifier.audit.verifying import Verified, verify
from classifier.decision import Decision, Ids
from tests.classifier.audit.examples import KEY, NOW, decision

SEAL = SealKey.of(new_key())
PUBLIC = PublicKeys.of([SEAL.public])
DECISIONS = [
    decision(f"w{number}", ids=Ids(resource=f"user-{number}"), metadata={"note": "n"}) for number in range(6)
]
ROWS = 9
"""Of the tenant acme, in the sealed history."""


def event(name: str, *, tenant: str = "acme") -> HistoryEvent:
    """A review with something that a person wrote."""
    return HistoryEvent(
        event_id=event_id_of(tenant, "review", name),
        at=NOW + timedelta(seconds=1),
        tenant=tenant,
        kind="review",
        workflow_id=name,
        run_id="run",
        actor="ada",
        body={"route": "billing", "reason": "they called"},
    )


EVENTS = [event(f"w{number}") for number in range(3)]


async def record_all(store: PostgresStore) -> None:
    """Decisions and events of acme, one after the other, and a decision of globex."""
    for one, happened in zip(DECISIONS[:3], EVENTS, strict=True):
        await store.record([one])
        await store.record_events([happened])
    for one in (*DECISIONS[3:], decision("theirs", tenant="globex")):
        await store.record([one])


async def sealed(
    url: str, rows: int, *, key: SealKey = SEAL, keys: PublicKeys = PUBLIC, batch: int = 4
) -> None:
    """Returns when so many rows were sealed; the server's own housekeeping may hold them up."""
    total = 0
    async with asyncio.timeout(60):
        while total < rows:
            done = await seal(url, key, keys=keys, hash_key=KEY, batch=batch)
            assert [one.problem for one in done if one.problem] == []
            total += sum(one.rows for one in done)
    assert total == rows


async def final(url: str) -> None:
    """Returns when no transaction is open that began before the newest row was written."""
    engine = create_engine(url, role="classifier_maintenance", timeout=30)
    newest = " UNION ALL ".join(
        f"SELECT max(transaction_id) AS id FROM {SCHEMA}.{table}" for table in ("decisions", "history_events")
    )
    below = "CAST(CAST(pg_snapshot_xmin(pg_current_snapshot()) AS text) AS bigint)"
    try:
        async with asyncio.timeout(60), engine.connect() as connection:
            while not await connection.scalar(sa.text(f"SELECT max(id) < {below} FROM ({newest})")):
                await asyncio.sleep(0.02)
    finally:
        await engine.dispose()


async def verified(
    url: str,
    *,
    keys: PublicKeys = PUBLIC,
    outside: Mapping[str, Sequence[Checkpoint]] | None = None,
    hash_key: bytes | None = KEY,
) -> dict[str, Verified]:
    """What `verify` says, by tenant."""
    results = verify(url, keys, hash_key=hash_key, outside=outside)
    return {result.tenant: result async for result in results}


async def breaches(url: str) -> list[tuple[str, uuid.UUID | int | None]]:
    """Faults of acme, each with the row or the number it names; of nobody else."""
    results = await verified(url)
    assert [name for name, result in results.items() if result.breaches and name != "acme"] == []
    return [(breach.fault, breach.row_id or breach.sequence) for breach in results["acme"].breaches]


async def kept_outside(url: str) -> dict[str, list[Checkpoint]]:
    """Every checkpoint there is, by tenant."""
    found: dict[str, list[Checkpoint]] = {}
    async for checkpoint in missing_outside(url, {}):
        found.setdefault(checkpoint.tenant, []).append(checkpoint)
    return found


async def tamper(url: str, *statements: str) -> None:
    """Runs statements as somebody whom row-level security does not bind; each must reach a row."""
    engine = create_engine(url, role="classifier_owner", timeout=30)
    try:
        async with engine.begin() as connection:
            for table in EVERY_TABLE:
                await connection.execute(
                    sa.text(f"ALTER TABLE {SCHEMA}.{table.name} NO FORCE ROW LEVEL SECURITY")
                )
            for statement in statements:
                assert (await connection.execute(sa.text(statement))).rowcount > 0, statement
            for table in EVERY_TABLE:
                await connection.execute(
                    sa.text(f"ALTER TABLE {SCHEMA}.{table.name} FORCE ROW LEVEL SECURITY")
                )
    finally:
        await engine.dispose()


def swap(table: str, one: str, other: str) -> str:
    """A statement that gives two rows each other's place in the order of arrival."""
    return (
        f"UPDATE {SCHEMA}.{table} a SET transaction_id = b.transaction_id, arrival = b.arrival "
        f"FROM {SCHEMA}.{table} b WHERE (a.{one} AND b.{other}) OR (a.{other} AND b.{one})"
    )


def named(one: Decision) -> str:
    """The condition for its rows."""
    return f"decision_id = '{one.decision_id}'"
