"""Dead letters, read: events that could not be handled and lie there until somebody replays or drops them.

A dead letter is an event of kind `dead_letter` that nothing followed: no replay, no drop, no delivery, no
stop of its run, and no later dead letter. All these times are of the run's own clock.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal, cast

import sqlalchemy as sa

from classifier.audit.engine import create_engine, store_errors
from classifier.audit.escape import decode, escape, unescape, unescape_optional
from classifier.audit.query import Position
from classifier.audit.reader import TenantReader
from classifier.audit.records import EventKind
from classifier.audit.rows import utc
from classifier.audit.tables import history_events
from classifier.values import JSON

KIND: EventKind = "dead_letter"
_ENDS: tuple[EventKind, ...] = ("replay", "drop", "delivery", "stop")

_letter = history_events.alias("letter")


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadLetterQuery:
    """Which open dead letters of one tenant; every field that is set has to hold.

    Attributes:
        tenant: Whose; always.
        playbook: What was to decide on the event.
        stage: What came to nothing.
        code: Why.
        since: Lies there since this time or later.
        until: Lies there since before this time.
    """

    tenant: str
    playbook: str | None = None
    stage: Literal["decide", "deliver"] | None = None
    code: str | None = None
    since: datetime | None = None
    until: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadLetter:
    """An event that could not be handled.

    Attributes:
        event_id: Of its entry in the history.
        tenant: Whose event it is.
        workflow_id: The run that keeps it; what people name it by.
        run_id: Its run id.
        since: Since when it lies there.
        stage: "decide" or "deliver": what came to nothing.
        code: Why, as a stable code.
        attempts: How often it was tried; None where nobody could count.
        status: What a receiver answered, where there was one.
        playbook: What was to decide on it.
        route: Where it was to be delivered.
        decided_by: Who chose the route.
        decision_id: The decision it rests on, if any was recorded.
        source: The event's own source.
        event: The event's own id.
        type: The event's own type.
    """

    event_id: uuid.UUID
    tenant: str
    workflow_id: str
    run_id: str
    since: datetime
    stage: str
    code: str
    attempts: int | None
    status: int | None
    playbook: str
    route: str | None
    decided_by: str | None
    decision_id: uuid.UUID | None
    source: str
    event: str
    type: str

    @property
    def position(self) -> Position:
        """Its place, oldest first."""
        return Position(self.since, self.event_id)


class DeadLetters(TenantReader):
    """Reads dead letters, as `TenantReader` says."""

    async def page(
        self, query: DeadLetterQuery, limit: int = 50, after: Position | None = None
    ) -> tuple[DeadLetter, ...]:
        """Open dead letters, oldest first.

        Args:
            query: Which ones.
            limit: How many at most.
            after: The position of the last one of those already seen.
        """
        letter = _letter.c
        select = sa.select(_letter).where(*_conditions(query)).order_by(letter.at, letter.event_id)
        if after is not None:
            place = sa.tuple_(
                sa.literal(after.decided_at, letter.at.type),
                sa.literal(after.decision_id, letter.event_id.type),
            )
            select = select.where(sa.tuple_(letter.at, letter.event_id) > place)
        async with self._reading(query.tenant) as connection:
            rows = (await connection.execute(select.limit(limit))).mappings()
            return tuple(_dead_letter(row) for row in rows)

    async def count(self, query: DeadLetterQuery) -> int:
        """How many there are."""
        select = sa.select(sa.func.count()).select_from(_letter).where(*_conditions(query))
        async with self._reading(query.tenant) as connection:
            return (await connection.execute(select)).scalar_one()

    async def find(self, tenant: str, workflow_id: str) -> DeadLetter | None:
        """The dead letter that this run keeps; None where it keeps none."""
        select = sa.select(_letter).where(
            *_conditions(DeadLetterQuery(tenant=tenant)), _letter.c.workflow_id == escape(workflow_id)
        )
        async with self._reading(tenant) as connection:
            row = (await connection.execute(select)).mappings().first()
        return None if row is None else _dead_letter(row)


async def count_by_tenant(database_url: str, *, within: float = 10.0) -> dict[str, int]:
    """How many open dead letters each tenant has, for whoever keeps the house; as `classifier_maintenance`.

    Args:
        database_url: `postgresql://…`; the login must be allowed to SET ROLE classifier_maintenance.
        within: Seconds that it may take.

    Raises:
        StoreUnavailable: The database did not answer in time.
    """
    letter = _letter.c
    select = (
        sa.select(letter.tenant, sa.func.count())
        .where(letter.kind == KIND, ~_followed())
        .group_by(letter.tenant)
        .order_by(letter.tenant)
    )
    engine = create_engine(
        database_url, role="classifier_maintenance", timeout=within, name="classifier check"
    )
    try:
        async with (
            store_errors("counting dead letters"),
            asyncio.timeout(within),
            engine.connect() as connection,
        ):
            return {unescape(tenant): count for tenant, count in await connection.execute(select)}
    finally:
        await engine.dispose()


def _conditions(query: DeadLetterQuery) -> list[sa.ColumnElement[bool]]:
    letter = _letter.c
    found = [letter.tenant == escape(query.tenant), letter.kind == KIND, ~_followed()]
    for name in ("playbook", "stage", "code"):
        wanted = getattr(query, name)
        if wanted is not None:
            found.append(letter.body[name].astext == escape(wanted))
    if query.since is not None:
        found.append(letter.at >= query.since)
    if query.until is not None:
        found.append(letter.at < query.until)
    return found


def _followed() -> sa.Exists:
    letter, later = _letter.c, history_events.alias("later").c
    ended = sa.and_(later.kind.in_(_ENDS), later.at >= letter.at)
    died_again = sa.and_(
        later.kind == KIND, sa.tuple_(later.at, later.event_id) > sa.tuple_(letter.at, letter.event_id)
    )
    return sa.exists().where(
        later.tenant == letter.tenant,
        later.workflow_id == letter.workflow_id,
        sa.or_(ended, died_again),
    )


def _dead_letter(row: Mapping[Any, Any]) -> DeadLetter:
    facts = cast("Mapping[str, JSON]", decode(row["body"]))
    return DeadLetter(
        event_id=row["event_id"],
        tenant=unescape(row["tenant"]),
        workflow_id=unescape(row["workflow_id"]),
        run_id=unescape(row["run_id"]),
        since=utc(row["at"]),
        stage=_text(facts, "stage") or "",
        code=_text(facts, "code") or "",
        attempts=_number(facts, "attempts"),
        status=_number(facts, "status"),
        playbook=_text(facts, "playbook") or "",
        route=_text(facts, "route"),
        decided_by=unescape_optional(row["actor"]),
        decision_id=row["decision_id"],
        source=_text(facts, "source") or "",
        event=_text(facts, "event") or "",
        type=_text(facts, "type") or "",
    )


def _text(facts: Mapping[str, JSON], name: str) -> str | None:
    value = facts.get(name)
    return value if isinstance(value, str) else None


def _number(facts: Mapping[str, JSON], name: str) -> int | None:
    value = facts.get(name)
    return value if isinstance(value, int) else None
