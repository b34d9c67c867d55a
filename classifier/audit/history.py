"""The audit history, read: acts as `classifier_reader`, one tenant at a time, and gives plain values out."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncGenerator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import datetime
from types import TracebackType
from typing import Any, Literal, Self, cast

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import distinct_on
from sqlalchemy.ext.asyncio import AsyncConnection

from classifier.audit.engine import create_engine, set_tenant, store_errors
from classifier.audit.escape import decode, escape, unescape, unescape_optional
from classifier.audit.query import DecisionQuery, Position
from classifier.audit.records import HistoryEvent
from classifier.audit.rows import decision_of
from classifier.audit.sql import NEWEST_FIRST, SELECT_DECISIONS, after, conditions
from classifier.audit.tables import decisions, history_events
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


@dataclass(frozen=True, slots=True)
class Settled:
    """How far a run has come, by what is on record.

    Attributes:
        delivered: It was delivered.
        reviewed: A person has decided.
        action: What its last playbook decision said; None where there is none.
        route: Where it went: the person's choice, else the decision's.
        reasons: Why it went to review; empty for a clean route.
    """

    delivered: bool
    reviewed: bool
    action: Literal["route", "review"] | None
    route: str | None
    reasons: tuple[str, ...]

    @property
    def waiting(self) -> bool:
        """Whether a person still has to decide."""
        return self.action == "review" and not self.reviewed and not self.delivered


class History:
    """Reads decisions and events. An async context manager; or call `aclose`.

    Every method names a tenant and sees nothing of another, which row-level security holds too. All raise
    `StoreUnavailable` where the database does not answer in time.

    Args:
        database_url: `postgresql://…`; the login must be allowed to SET ROLE classifier_reader.
        pool_size: Connections at most.
        timeout: Seconds for one call.
    """

    def __init__(self, database_url: str, *, pool_size: int = 2, timeout: float = 30.0) -> None:
        self._timeout = timeout
        self._engine = create_engine(
            database_url,
            role="classifier_reader",
            timeout=timeout,
            pool_size=pool_size,
            name="classifier history",
        )

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Closes the connections."""
        await self._engine.dispose()

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
        select = SELECT_DECISIONS.where(*conditions(query)).order_by(*NEWEST_FIRST).limit(limit + 1)
        if cursor is not None:
            select = select.where(after(Position.parse(cursor, query)))
        async with self._reading(query.tenant) as connection:
            rows = (await connection.execute(select)).mappings().all()
        found = tuple(decision_of(dict(row)) for row in rows[:limit])
        if len(rows) <= limit:
            return Page(found, None)
        return Page(found, Position(found[-1].decided_at, found[-1].decision_id).cursor(query))

    async def get(self, tenant: str, decision_id: uuid.UUID) -> Decision | None:
        """The decision with this id; None where the tenant has none."""
        select = SELECT_DECISIONS.where(
            decisions.c.tenant == escape(tenant), decisions.c.decision_id == decision_id
        ).limit(1)
        async with self._reading(tenant) as connection:
            row = (await connection.execute(select)).mappings().first()
        return None if row is None else decision_of(dict(row))

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
        wanted = sa.any_(sa.literal([escape(one) for one in workflow_ids], sa.ARRAY(sa.Text)))
        async with self._reading(tenant) as connection:
            branches = (await connection.execute(_last_branches(tenant, wanted))).all()
            happened = (await connection.execute(_endings(tenant, wanted))).all()
        return _settle(branches, happened)

    async def open_reviews(
        self, tenant: str, limit: int = 50, after: Position | None = None
    ) -> tuple[Decision, ...]:
        """Decisions that wait for a person, oldest first.

        Args:
            tenant: Whose.
            limit: How many at most.
            after: The last one of those already seen.
        """
        facts, events = decisions.c, history_events.c
        reviewed = sa.exists().where(
            events.tenant == escape(tenant), events.workflow_id == facts.workflow_id, events.kind == "review"
        )
        select = (
            SELECT_DECISIONS.where(facts.tenant == escape(tenant), facts.branch_action == "review", ~reviewed)
            .order_by(facts.decided_at, facts.decision_id)
            .limit(limit)
        )
        if after is not None:
            place = sa.tuple_(
                sa.literal(after.decided_at, facts.decided_at.type),
                sa.literal(after.decision_id, facts.decision_id.type),
            )
            select = select.where(sa.tuple_(facts.decided_at, facts.decision_id) > place)
        async with self._reading(tenant) as connection:
            rows = (await connection.execute(select)).mappings().all()
        return tuple(decision_of(dict(row)) for row in rows)

    @asynccontextmanager
    async def _reading(self, tenant: str) -> AsyncGenerator[AsyncConnection]:
        async with (
            store_errors("reading the history"),
            asyncio.timeout(self._timeout),
            self._engine.begin() as connection,
        ):
            await set_tenant(connection, escape(tenant))
            yield connection


def _last_branches(tenant: str, wanted: sa.ColumnElement[Any]) -> sa.Select[*tuple[Any, ...]]:
    facts = decisions.c
    return (
        sa.select(facts.workflow_id, facts.branch_action, facts.branch_route, facts.branch_reasons)
        .ext(distinct_on(facts.workflow_id))
        .where(facts.tenant == escape(tenant), facts.workflow_id == wanted, facts.branch_action.is_not(None))
        .order_by(facts.workflow_id, facts.decided_at.desc(), facts.ordinal.desc(), facts.decision_id)
    )


def _endings(tenant: str, wanted: sa.ColumnElement[Any]) -> sa.Select[*tuple[Any, ...]]:
    events = history_events.c
    return (
        sa.select(events.workflow_id, events.kind, events.body)
        .where(
            events.tenant == escape(tenant),
            events.workflow_id == wanted,
            events.kind.in_(("delivery", "review")),
        )
        .order_by(events.at, events.event_id)
    )


def _settle(branches: Sequence[tuple[Any, ...]], happened: Sequence[tuple[Any, ...]]) -> dict[str, Settled]:
    found = {
        workflow: Settled(False, False, action, unescape_optional(route), _reasons(reasons))
        for workflow, action, route, reasons in branches
    }
    nothing = Settled(False, False, None, None, ())
    for workflow, kind, body in happened:
        before = found.get(workflow, nothing)
        route = cast("Mapping[str, JSON]", decode(body)).get("route")
        found[workflow] = Settled(
            before.delivered or kind == "delivery",
            before.reviewed or kind == "review",
            before.action,
            route if isinstance(route, str) else before.route,
            before.reasons,
        )
    return {unescape(workflow): settled for workflow, settled in found.items()}


def _reasons(stored: Any) -> tuple[str, ...]:
    return tuple(cast("list[str]", decode(stored or [])))


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
        body=cast("Mapping[str, JSON]", decode(row["body"])),
    )
