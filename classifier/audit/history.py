"""The audit history, read: acts as `classifier_reader`, one tenant at a time, and gives plain values out."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal, cast

import sqlalchemy as sa

from classifier.audit.arrivals import Arrived, arrived_since, last_arrival
from classifier.audit.chain import Place
from classifier.audit.escape import decode, escape, unescape, unescape_optional
from classifier.audit.query import DecisionQuery, Position
from classifier.audit.reader import TenantReader
from classifier.audit.records import HistoryEvent
from classifier.audit.rows import decision_of
from classifier.audit.sql import SELECT_DECISIONS, conditions, newest
from classifier.audit.tables import decisions, history_events
from classifier.audit.waiting import (
    EVERY_REVIEW,
    OpenReview,
    ReviewQuery,
    Settled,
    open_reviews,
    settled,
)
from classifier.decision import Decision
from classifier.errors import ConfigurationError
from classifier.values import JSON

MAX_PAGE = 1000


@dataclass(frozen=True, slots=True)
class Page:
    """Decisions, newest first.

    Attributes:
        decisions: At most as many as were asked for.
        next_cursor: Where the next page begins; None where there is nothing more.
    """

    decisions: tuple[Decision, ...]
    next_cursor: str | None


@dataclass(frozen=True, slots=True)
class Count:
    """How many decisions had this outcome and branch.

    Attributes:
        outcome: "allowed", "filtered" or "aborted".
        action: "route" or "review"; None outside playbooks.
        route: Where to; None outside playbooks, or where nothing could be said.
        count: How many.
    """

    outcome: str
    action: Literal["route", "review"] | None
    route: str | None
    count: int


class History(TenantReader):
    """Reads decisions and events, as `TenantReader` says."""

    async def page(self, query: DecisionQuery, limit: int = 50, cursor: str | None = None) -> Page:
        """The decisions that `query` asks for, newest first, from `cursor` on.

        A walk over all pages gives every decision once that was there when it began, also while more arrive.

        Args:
            query: Which ones.
            limit: How many at most, 1 to 1,000.
            cursor: What the page before said.

        Raises:
            ConfigurationError: The cursor is damaged or of another tenant or filter, or the limit is off.
        """
        if not 1 <= limit <= MAX_PAGE:
            raise ConfigurationError(f"a page holds 1 to {MAX_PAGE} decisions, not {limit}")
        position = None if cursor is None else Position.parse(cursor, query.fingerprint)
        select = newest(SELECT_DECISIONS, query, limit + 1, position)
        async with self._reading(query.tenant) as connection:
            rows = (await connection.execute(select)).mappings().all()
        found = tuple(decision_of(dict(row)) for row in rows[:limit])
        if len(rows) <= limit:
            return Page(found, None)
        return Page(found, Position(found[-1].decided_at, found[-1].decision_id).cursor(query.fingerprint))

    async def get(self, tenant: str, decision_id: uuid.UUID) -> Decision | None:
        """The decision with this id; None where the tenant has none."""
        select = SELECT_DECISIONS.where(
            decisions.c.tenant == escape(tenant), decisions.c.decision_id == decision_id
        ).limit(1)
        async with self._reading(tenant) as connection:
            row = (await connection.execute(select)).mappings().first()
        return None if row is None else decision_of(dict(row))

    async def last_arrival(self, tenant: str) -> Place | None:
        """Where the decisions that arrive from now on come after; None where there is none yet."""
        async with self._reading(tenant) as connection:
            return await last_arrival(connection, tenant)

    async def arrived(
        self, query: DecisionQuery, after: Place | None = None, limit: int = MAX_PAGE
    ) -> Arrived:
        """The decisions that `query` asks for in the order in which they arrived, from `after` on.

        A row counts as arrived when no transaction older than its own is open any more. Asked again and again
        with the position it gives, it misses none and repeats none, late records included.

        Raises:
            StoreError: The database was restored from another server; see `classifier.audit.arrivals`.
        """
        async with self._reading(query.tenant) as connection:
            return await arrived_since(connection, query, after, limit)

    async def events(self, tenant: str, workflow_id: str) -> tuple[HistoryEvent, ...]:
        """What else happened to this workflow, oldest first."""
        select = (
            sa.select(history_events)
            .where(
                history_events.c.tenant == escape(tenant), history_events.c.workflow_id == escape(workflow_id)
            )
            .order_by(history_events.c.at, history_events.c.event_id)
        )
        async with self._reading(tenant) as connection:
            return tuple(_event_of(dict(row)) for row in (await connection.execute(select)).mappings())

    async def counts(self, query: DecisionQuery) -> tuple[Count, ...]:
        """How many decisions `query` asks for, by outcome, action and route; the largest first."""
        by = (decisions.c.outcome, decisions.c.branch_action, decisions.c.branch_route)
        total = sa.func.count().label("total")
        select = sa.select(*by, total).where(*conditions(query)).group_by(*by).order_by(total.desc(), *by)
        async with self._reading(query.tenant) as connection:
            rows = (await connection.execute(select)).all()
        return tuple(
            Count(outcome, action, unescape_optional(route), count) for outcome, action, route, count in rows
        )

    async def settled(self, tenant: str, workflow_ids: Iterable[str]) -> Mapping[str, Settled]:
        """How far each of these workflows has come; those with nothing on record are absent."""
        async with self._reading(tenant) as connection:
            return await settled(connection, tenant, workflow_ids)

    async def open_reviews(
        self,
        tenant: str,
        limit: int = 50,
        after: Position | None = None,
        wanted: ReviewQuery = EVERY_REVIEW,
    ) -> tuple[OpenReview, ...]:
        """Events that wait for a person, oldest first.

        Args:
            tenant: Whose.
            limit: How many at most.
            after: The position of the last one of those already seen.
            wanted: Which ones.
        """
        async with self._reading(tenant) as connection:
            return await open_reviews(connection, tenant, limit, after, wanted)


def _event_of(row: Mapping[str, Any]) -> HistoryEvent:
    moment: datetime = row["at"]
    return HistoryEvent(
        event_id=row["event_id"],
        at=moment,
        tenant=unescape(row["tenant"]),
        kind=row["kind"],
        workflow_id=unescape(row["workflow_id"]),
        run_id=unescape(row["run_id"]),
        decision_id=row["decision_id"],
        actor=unescape_optional(row["actor"]),
        body=cast("Mapping[str, JSON]", decode({**row["body"], **(row["content"] or {})})),
    )
