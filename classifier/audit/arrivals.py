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

from classifier.audit.escape import escape
from classifier.audit.query import DecisionQuery
from classifier.audit.rows import decision_of
from classifier.audit.sql import SELECT_DECISIONS, conditions
from classifier.audit.tables import decisions
from classifier.decision import Decision
from classifier.errors import StoreError

ARRIVAL_ORDER = (decisions.c.transaction_id, decisions.c.arrival)
"""What to order by: total, and the same for every reader."""


@dataclass(frozen=True, slots=True, order=True)
class ArrivalPosition:
    """The place of a decision in the order of arrival.

    Attributes:
        transaction_id: The transaction that wrote it, as a number that never wraps round.
        arrival: Its number, unique in a database.
    """

    transaction_id: int
    arrival: int


@dataclass(frozen=True, slots=True)
class Arrived:
    """What has arrived since a position.

    Attributes:
        decisions: In the order of arrival.
        position: Where to go on; that of the last row looked at, whether or not it was asked for.
        more: Whether as many came as were asked for, so that there may be more at once.
    """

    decisions: tuple[Decision, ...]
    position: ArrivalPosition | None
    more: bool


def position_of(row: Any) -> ArrivalPosition:
    """The position of a row mapping that has both columns."""
    return ArrivalPosition(row["transaction_id"], row["arrival"])


def arrived_between(
    tenant: str, after: ArrivalPosition | None, until: ArrivalPosition
) -> list[sa.ColumnElement[bool]]:
    """What holds for the decisions of `tenant` after one position, or from the first on, up to another."""
    place = sa.tuple_(*ARRIVAL_ORDER)
    found = [decisions.c.tenant == escape(tenant), place <= _literal(until)]
    return found if after is None else [*found, place > _literal(after)]


def select_last(tenant: str) -> sa.Select[*tuple[Any, ...]]:
    """The position of the last decision of `tenant` that is final; no row where there is none."""
    return (
        sa.select(*ARRIVAL_ORDER)
        .where(decisions.c.tenant == escape(tenant), decisions.c.transaction_id < _oldest_open())
        .order_by(*(column.desc() for column in ARRIVAL_ORDER))
        .limit(1)
    )


def select_arrived(
    tenant: str, after: ArrivalPosition | None, until: ArrivalPosition, limit: int
) -> sa.Select[*tuple[Any, ...]]:
    """Decisions with their contents in the order of arrival; `until` is a position that is final."""
    return (
        SELECT_DECISIONS.where(*arrived_between(tenant, after, until)).order_by(*ARRIVAL_ORDER).limit(limit)
    )


async def last_arrival(connection: AsyncConnection, tenant: str) -> ArrivalPosition | None:
    """The position of the last decision of `tenant` that is final; None where there is none.

    Args:
        connection: In a transaction that may see the rows of `tenant`.
        tenant: Whose.

    Raises:
        StoreError: The rows were restored from another server, so their order says nothing here.
    """
    if (await connection.execute(_select_unborn(tenant))).first() is not None:
        raise StoreError(
            f"tenant {tenant!r} has decisions of transactions that this server has not begun: they were "
            "restored from another server, and their order of arrival cannot be followed; "
            "raise this server's transaction id above theirs with pg_resetwal"
        )
    row = (await connection.execute(select_last(tenant))).mappings().first()
    return None if row is None else position_of(row)


async def arrived_since(
    connection: AsyncConnection, query: DecisionQuery, after: ArrivalPosition | None, limit: int
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
    position = position_of(rows[-1]) if more else until
    return Arrived(tuple(decision_of(dict(row)) for row in rows), position, more)


def _literal(position: ArrivalPosition) -> sa.ColumnElement[Any]:
    return sa.tuple_(
        sa.literal(position.transaction_id, sa.BigInteger), sa.literal(position.arrival, sa.BigInteger)
    )


def _oldest_open() -> sa.ColumnElement[int]:
    return _as_number(sa.func.pg_snapshot_xmin(sa.func.pg_current_snapshot()))


def _select_unborn(tenant: str) -> sa.Select[*tuple[Any, ...]]:
    """A row that a transaction yet to come has written, which cannot be."""
    next_one = _as_number(sa.func.pg_snapshot_xmax(sa.func.pg_current_snapshot()))
    return (
        sa.select(decisions.c.arrival)
        .where(decisions.c.tenant == escape(tenant), decisions.c.transaction_id >= next_one)
        .limit(1)
    )


def _as_number(transaction: sa.ColumnElement[Any]) -> sa.ColumnElement[int]:
    return sa.cast(sa.cast(transaction, sa.Text), sa.BigInteger)
