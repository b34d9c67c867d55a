"""Rows as the seal reads them, from any tenant: acts as `classifier_maintenance`.

Columns are read as PostgreSQL prints them. Of what may be erased only hashes travel, so a batch is small
whatever the texts are.
"""

from __future__ import annotations

import functools
import json
import uuid
from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from typing import Any, cast

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from classifier.audit.arrivals import literal, oldest_open, place_in, unborn
from classifier.audit.chain import ANSWER_ROWS, CONTENTS, SEALED, START, Columns, Kind, Place, StoredRow
from classifier.audit.escape import escape, unescape
from classifier.audit.tables import SCHEMA, decisions, history_events, seal_checkpoints, seal_leaves

KINDS: tuple[Kind, ...] = ("decision", "event")
_TABLE: Mapping[Kind, sa.Table] = {"decision": decisions, "event": history_events}
_ID: Mapping[Kind, str] = {"decision": "decision_id", "event": "event_id"}
_MOMENT: Mapping[Kind, str] = {"decision": "decided_at", "event": "at"}
_NAMES: Mapping[Kind, Sequence[str]] = {
    kind: sorted({name for sealed in SEALED.values() for name in sealed[kind]} - {ANSWER_ROWS})
    for kind in KINDS
}

# How PostgreSQL prints times and numbers is a setting; here it has to be the same everywhere and always.
_SPELLING = sa.text(
    "SELECT set_config('datestyle', 'ISO, YMD', true), set_config('timezone', 'UTC', true), "
    "set_config('extra_float_digits', '1', true)"
)
_LOCK = sa.text("SELECT pg_advisory_xact_lock(hashtextextended('classifier.audit.seal ' || :tenant, 0))")


def _answers() -> str:
    return (
        "(SELECT CAST(jsonb_agg(jsonb_build_array(a.tenant, a.question, a.kind, a.choice, "  # noqa: S608 - names of our own
        'CAST(a.number AS text)) ORDER BY a.question COLLATE "C") AS text) '
        f"FROM {SCHEMA}.decision_answers a "
        "WHERE a.decision_id = r.decision_id AND a.decided_at = r.decided_at)"
    )


def _hashes(kind: Kind, table: str) -> str:
    names = sorted({name for covered in CONTENTS.values() for name in covered[kind]})
    hashed = (
        f"'{name}', encode(sha256(convert_to(CAST({table}.{name} AS text), 'UTF8')), 'hex')" for name in names
    )
    return f"CAST(json_build_object({', '.join(hashed)}) AS text)"


def _contents(kind: Kind) -> str:
    if kind == "event":
        return f"CASE WHEN r.content IS NOT NULL THEN {_hashes(kind, 'r')} END"
    # A row without text and context is one whose contents were emptied, or never kept.
    return (
        f"(SELECT {_hashes(kind, 'c')} FROM {SCHEMA}.decision_contents c "  # noqa: S608 - names of our own
        "WHERE c.decision_id = r.decision_id AND c.decided_at = r.decided_at "
        "AND NOT (c.state IS NULL AND c.original IS NULL AND c.request_context = '{}'))"
    )


@functools.cache
def _select(kind: Kind, *, first: bool, contents: bool, end: str) -> sa.TextClause:
    texts = [f"CAST(r.{name} AS text) AS {name}" for name in _NAMES[kind]]
    if kind == "decision":
        texts.append(f"{_answers()} AS {ANSWER_ROWS}")
    texts.append(f"{_contents(kind) if contents else 'NULL'} AS contents")
    after = ">=" if first else ">"  # so that no place at all is before the start
    return sa.text(
        f"SELECT r.{_MOMENT[kind]} AS moment, {', '.join(texts)} FROM {SCHEMA}.{_TABLE[kind].name} r "  # noqa: S608 - names of our own
        f"WHERE r.tenant = :tenant AND (r.transaction_id, r.arrival) {after} "
        "(CAST(:after_transaction AS bigint), CAST(:after AS bigint)) "
        f"AND {end} ORDER BY r.transaction_id, r.arrival LIMIT :limit"
    )


_FINAL = "r.transaction_id < CAST(:horizon AS bigint)"
_UP_TO = "(r.transaction_id, r.arrival) <= (CAST(:end_transaction AS bigint), CAST(:end AS bigint))"


async def spelled(connection: AsyncConnection) -> None:
    """Makes this transaction print columns the way they are sealed."""
    await connection.execute(_SPELLING)


async def lock(connection: AsyncConnection, tenant: str) -> None:
    """Waits until nobody else seals this tenant, to the end of the transaction."""
    await connection.execute(_LOCK, {"tenant": escape(tenant)})


async def horizon(connection: AsyncConnection, tenant: str) -> tuple[int, bool]:
    """The oldest transaction still open, and whether the tenant has rows of one that has not begun yet."""
    beside = sa.or_(*(unborn(table, tenant) for table in _TABLE.values()))
    before, restored = (await connection.execute(sa.select(oldest_open(), beside))).one()
    return before, restored


async def tenants(connection: AsyncConnection) -> list[str]:
    """Everyone who has rows or seals, in order; goes from one to the next by index."""
    found: set[str] = set()
    for table in (decisions, history_events, seal_leaves, seal_checkpoints):
        name = f"{SCHEMA}.{table.name}"
        rows = await connection.execute(
            sa.text(
                f"WITH RECURSIVE f (tenant) AS ((SELECT tenant FROM {name} ORDER BY tenant LIMIT 1) "  # noqa: S608 - names of our own
                f"UNION ALL SELECT (SELECT n.tenant FROM {name} n WHERE n.tenant > f.tenant "
                "ORDER BY n.tenant LIMIT 1) FROM f WHERE f.tenant IS NOT NULL) "
                "SELECT tenant FROM f WHERE tenant IS NOT NULL"
            )
        )
        found.update(rows.scalars())
    return sorted(unescape(tenant) for tenant in found)


async def final_rows(
    connection: AsyncConnection, tenant: str, after: Place, before: int, limit: int
) -> list[StoredRow]:
    """The rows after a place, of transactions below `before`, of both kinds in one order."""
    found: list[StoredRow] = []
    for kind in KINDS:
        given = _given(tenant, after, limit) | {"horizon": before}
        select = _select(kind, first=after == START, contents=True, end=_FINAL)
        found += [_row(kind, dict(row)) for row in (await connection.execute(select, given)).mappings()]
    return sorted(found, key=_by_place)[:limit]


async def rows_between(
    connection: AsyncConnection, tenant: str, after: Place, end: Place, limit: int, *, contents: bool
) -> tuple[list[StoredRow], Place | None]:
    """The rows after one place up to another, in order.

    Where there are more than `limit` of a kind, also the place from which on some are missing.
    """
    found: list[StoredRow] = []
    cut: Place | None = None
    for kind in KINDS:
        given = _given(tenant, after, limit) | {"end_transaction": end.transaction_id, "end": end.arrival}
        select = _select(kind, first=after == START, contents=contents, end=_UP_TO)
        these = [_row(kind, dict(row)) for row in (await connection.execute(select, given)).mappings()]
        if len(these) == limit:
            cut = min(cut or these[-1].place, these[-1].place)
        found += these
    return sorted(found, key=_by_place), cut


async def count_after(connection: AsyncConnection, tenant: str, place: Place) -> int:
    """How many rows stand after a place."""
    total = 0
    for table in _TABLE.values():
        after = place_in(table) > literal(place)
        select = sa.select(sa.func.count()).where(table.c.tenant == escape(tenant), after)
        total += (await connection.execute(select)).scalar_one()
    return total


async def count_of_period(
    connection: AsyncConnection, tenant: str, kind: Kind, *, since: datetime, until: datetime, after: Place
) -> int:
    """How many rows of a kind have their moment in a period and stand after a place."""
    table = _TABLE[kind]
    moment = table.c[_MOMENT[kind]]
    select = sa.select(sa.func.count()).where(
        table.c.tenant == escape(tenant),
        moment >= since,
        moment < until,
        place_in(table) > literal(after),
    )
    return int((await connection.execute(select)).scalar_one())


async def places_of_rows(
    connection: AsyncConnection, tenant: str, ids: Collection[uuid.UUID]
) -> dict[uuid.UUID, set[Place]]:
    """Where rows of these ids stand now."""
    found: dict[uuid.UUID, set[Place]] = {}
    for kind, table in _TABLE.items():
        columns = table.c[_ID[kind]], table.c.transaction_id, table.c.arrival
        select = sa.select(*columns).where(table.c.tenant == escape(tenant), is_one_of(columns[0], ids))
        for row_id, transaction, arrival in await connection.execute(select):
            found.setdefault(row_id, set()).add(Place(transaction, arrival))
    return found


def is_one_of(column: sa.Column[Any], ids: Collection[uuid.UUID]) -> sa.ColumnElement[bool]:
    """Whether the id in this column is among those."""
    return column == sa.any_(sa.literal(list(ids), sa.ARRAY(sa.Uuid)))


def _given(tenant: str, after: Place, limit: int) -> dict[str, Any]:
    return {
        "tenant": escape(tenant),
        "after_transaction": after.transaction_id,
        "after": after.arrival,
        "limit": limit,
    }


def _by_place(row: StoredRow) -> Place:
    return row.place


def _row(kind: Kind, columns: dict[str, Any]) -> StoredRow:
    moment: datetime = columns.pop("moment")
    contents: str | None = columns.pop("contents")
    return StoredRow(
        kind=kind,
        row_id=uuid.UUID(columns[_ID[kind]]),
        place=Place(int(columns["transaction_id"]), int(columns["arrival"])),
        moment=moment,
        columns=columns,
        contents=None if contents is None else cast("Columns", json.loads(contents)),
    )
