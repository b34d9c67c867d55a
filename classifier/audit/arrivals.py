"""The order in which decisions became visible, which `tail` and `seal` follow.

A decision's time says when it was scheduled, not when its row arrived: a record that was late, or a
transaction that stayed open, would be missed by whoever went by time. So rows carry the transaction that
wrote them and a number within it. Rows of a transaction below the oldest one still open are final: nothing
can come in front of them any more. Positions are those of rows, never of the server's counter, which can go
back in a crash.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from classifier.audit.chain import Place
from classifier.audit.escape import escape
from classifier.audit.query import DecisionQuery
from classifier.audit.rows import decision_of
from classifier.audit.sql import SELECT_DECISIONS, conditions
from classifier.audit.tables import decisions
from classifier.decision import Decision
from classifier.errors import StoreError

ARRIVAL_ORDER = (decisions.c.transaction_id, decisions.c.arrival)
"""What to order by: total, and the same for every reader."""


@dataclass(frozen=True, slots=True)
class Arrived:
    """What has arrived since a position.

    Attributes:
        decisions: In the order of arrival.
        position: Where to go on; that of the last row looked at, whether or not it was asked for.
        more: Whether as many came as were asked for, so that there may be more at once.
    """

    decisions: tuple[Decision, ...]
    position: Place | None
    more: bool


def place_in(table: sa.Table) -> sa.ColumnElement[Any]:
    """The place of a row of `table`, to be compared."""
    return sa.tuple_(table.c.transaction_id, table.c.arrival)


def literal(place: Place) -> sa.ColumnElement[Any]:
    """What `place_in` is compared with."""
    return sa.tuple_(
        sa.literal(place.transaction_id, sa.BigInteger), sa.literal(place.arrival, sa.BigInteger)
    )


def oldest_open() -> sa.ColumnElement[int]:
    """The oldest transaction that is still open; rows of those below it are final."""
    return _as_number(sa.func.pg_snapshot_xmin(sa.func.pg_current_snapshot()))


def unborn(table: sa.Table, tenant: str) -> sa.Exists:
    """Whether `tenant` has a row there that a transaction yet to come has written, which cannot be."""
    next_one = _as_number(sa.func.pg_snapshot_xmax(sa.func.pg_current_snapshot()))
    return sa.exists().where(table.c.tenant == escape(tenant), table.c.transaction_id >= next_one)


def restored(tenant: str) -> StoreError:
    """What to raise where there is such a row."""
    return StoreError(
        f"tenant {tenant!r} has rows of transactions that this server has not begun: they were restored "
        "from another server, and their order of arrival cannot be followed; "
        "raise this server's transaction id above theirs with pg_resetwal, to a multiple of 1048576"
    )


def select_last(tenant: str) -> sa.Select[*tuple[Any, ...]]:
    """The position of the last decision of `tenant` that is final; no row where there is none."""
    return (
        sa.select(*ARRIVAL_ORDER)
        .where(decisions.c.tenant == escape(tenant), decisions.c.transaction_id < oldest_open())
        .order_by(*(column.desc() for column in ARRIVAL_ORDER))
        .limit(1)
    )


def select_arrived(tenant: str, after: Place | None, until: Place, limit: int) -> sa.Select[*tuple[Any, ...]]:
    """Decisions with their contents in the order of arrival; `until` is a position that is final."""
    place = place_in(decisions)
    between = [decisions.c.tenant == escape(tenant), place <= literal(until)]
    if after is not None:
        between.append(place > literal(after))
    return SELECT_DECISIONS.where(*between).order_by(*ARRIVAL_ORDER).limit(limit)


async def last_arrival(connection: AsyncConnection, tenant: str) -> Place | None:
    """The position of the last decision of `tenant` that is final; None where there is none.

    Args:
        connection: In a transaction that may see the rows of `tenant`.
        tenant: Whose.

    Raises:
        StoreError: The rows were restored from another server, so their order says nothing here.
    """
    if await connection.scalar(sa.select(unborn(decisions, tenant))):
        raise restored(tenant)
    row = (await connection.execute(select_last(tenant))).mappings().first()
    return None if row is None else _place_of(row)


async def arrived_since(
    connection: AsyncConnection, query: DecisionQuery, after: Place | None, limit: int
) -> Arrived:
    """The final decisions after `after` that `query` asks for; errors as for `last_arrival`.

    Calling it again and again with the position it gives misses none and repeats none.
    """
    until = await last_arrival(connection, query.tenant)
    if until is None or (after is not None and until <= after):
        return Arrived((), after, more=False)
    select = select_arrived(query.tenant, after, until, limit).where(*conditions(query))
    rows: Sequence[Any] = (await connection.execute(select)).mappings().all()
    more = len(rows) == limit
    position = _place_of(rows[-1]) if more else until
    return Arrived(tuple(decision_of(dict(row)) for row in rows), position, more)


def _place_of(row: Any) -> Place:
    return Place(row["transaction_id"], row["arrival"])


def _as_number(transaction: sa.ColumnElement[Any]) -> sa.ColumnElement[int]:
    return sa.cast(sa.cast(transaction, sa.Text), sa.BigInteger)
