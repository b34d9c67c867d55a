"""What waits for a person, and how far runs have come.

A run asks for a review by its decision, or by an event `review_requested` where something else than the
decision asks, such as a delivery that was refused. It waits while the last such request is newer than the
last review, delivery or stop. All these times are of the run's own clock, but for the end of a run that was
terminated.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, Literal, cast

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import distinct_on
from sqlalchemy.ext.asyncio import AsyncConnection

from classifier.audit.desks import Desk, desks_of, queue_of
from classifier.audit.escape import decode, escape, unescape, unescape_optional
from classifier.audit.query import Position
from classifier.audit.records import EventKind
from classifier.audit.rows import decision_of, utc
from classifier.audit.sql import LIVE, SELECT_DECISIONS
from classifier.audit.tables import decisions, history_events
from classifier.decision import Decision
from classifier.errors import ConfigurationError, PolicyError
from classifier.values import JSON

REQUESTED: EventKind = "review_requested"
_ANSWERS: tuple[EventKind, ...] = ("review", "review_defaulted", "delivery", "stop")
_DEAD: tuple[EventKind, ...] = ("dead_letter", "replay", "drop")
"""What of a run concerns no reviewer; see `classifier.audit.dead_letters`."""
_NOT_A_PERSONS = frozenset({PolicyError.code, ConfigurationError.code})
"""A triage run makes a dead letter of these failures, though their decision says review."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReviewQuery:
    """Which of those that wait are asked for; without anything all.

    Attributes:
        playbook: Whose events.
        queue: Whom a deadline asked last.
        before: Since before when they wait.
        decision_id: Which one.
    """

    playbook: str | None = None
    queue: str | None = None
    before: datetime | None = None
    decision_id: uuid.UUID | None = None


EVERY_REVIEW = ReviewQuery()


@dataclass(frozen=True, slots=True)
class OpenReview:
    """An event that waits for a person.

    Attributes:
        decision: What was decided about it.
        since: Since when it waits.
        route: Where it would go, or could not be delivered; None where nothing could be said.
        reasons: Why it waits, as stable codes.
        desk: Who is at work on it, and who was asked last.
    """

    decision: Decision
    since: datetime
    route: str | None
    reasons: tuple[str, ...]
    desk: Desk = field(default_factory=Desk)

    @property
    def position(self) -> Position:
        """Its place, oldest first."""
        return Position(self.since, self.decision.decision_id)

    def to_json(self, now: datetime) -> dict[str, JSON]:
        """What there is to say of it besides its decision; a claim that has run out is none."""
        held = self.desk.held(now)
        return {
            "since": self.since.isoformat(),
            "route": self.route,
            "reasons": list(self.reasons),
            "queue": self.desk.queue,
            "claimed_by": None if held is None else held.by,
            "claimed_until": None if held is None else held.until.isoformat(),
        }


@dataclass(frozen=True, slots=True)
class Settled:
    """How far a run has come, by what is on record.

    Attributes:
        delivered: It was delivered.
        reviewed: A person has decided.
        waiting: A person still has to decide.
        action: What its last playbook decision said; None where there is none.
        route: Where it went: the last attempt's or the person's choice, else the decision's.
        reasons: Why it went to review last; empty for a clean route.
        dead: Why it is a dead letter, as a stable code; None where it is none.
        dropped: Somebody gave it up.
    """

    delivered: bool
    reviewed: bool
    waiting: bool
    action: Literal["route", "review"] | None
    route: str | None
    reasons: tuple[str, ...]
    dead: str | None = None
    dropped: bool = False


async def settled(
    connection: AsyncConnection, tenant: str, workflow_ids: Iterable[str]
) -> dict[str, Settled]:
    """How far each of these workflows has come; those with nothing on record are absent."""
    wanted = sa.any_(sa.literal([escape(one) for one in workflow_ids], sa.ARRAY(sa.Text)))
    found: dict[str, Settled] = {}
    decided: dict[str, datetime] = {}
    branches = await connection.execute(_last_branches(tenant, wanted))
    for workflow, at, action, route, reasons, failure in branches:
        waits = action == "review" and failure not in _NOT_A_PERSONS
        found[workflow] = Settled(
            False, False, waits, action, unescape_optional(route), _texts(decode(reasons))
        )
        decided[workflow] = at
    for workflow, at, kind, body in await connection.execute(_followed(tenant, wanted)):
        before = found.get(workflow, Settled(False, False, False, None, None, ()))
        is_news = workflow not in decided or at >= decided[workflow]
        found[workflow] = _then(before, kind, decode(body), is_news=is_news)
    return {unescape(workflow): one for workflow, one in found.items()}


async def open_reviews(
    connection: AsyncConnection,
    tenant: str,
    limit: int,
    after: Position | None,
    wanted: ReviewQuery = EVERY_REVIEW,
) -> tuple[OpenReview, ...]:
    """Events that wait for a person, oldest first."""
    by_decision = await connection.execute(_asked_by_decision(tenant, after, wanted).limit(limit))
    found = [_by_decision(decision_of(dict(row))) for row in by_decision.mappings()]
    by_event = await connection.execute(_asked_by_event(tenant, after, wanted).limit(limit))
    found += [_by_event(dict(row)) for row in by_event.mappings()]
    oldest = sorted(found, key=lambda one: (one.since, one.decision.decision_id))[:limit]
    waiting = {one.decision.coordinates.workflow_id: one.since for one in oldest}
    desks = await desks_of(connection, tenant, waiting)
    return tuple(replace(one, desk=desks[one.decision.coordinates.workflow_id]) for one in oldest)


def _then(before: Settled, kind: EventKind, body: JSON, *, is_news: bool) -> Settled:
    """`before`, and what this event makes of it; news are not older than the decision."""
    facts = cast("Mapping[str, JSON]", body)
    route = facts.get("route")
    now = replace(before, route=route if isinstance(route, str) else before.route)
    if kind in _DEAD:
        code = facts.get("code") if kind == "dead_letter" else None
        return replace(
            now,
            waiting=now.waiting and not is_news,
            dead=None if code is None else str(code),
            dropped=kind == "drop",
        )
    if kind == REQUESTED:
        return replace(now, waiting=True, reasons=_texts(facts.get("reasons"))) if is_news else now
    return replace(
        now,
        delivered=now.delivered or kind == "delivery",
        reviewed=now.reviewed or kind == "review",
        waiting=now.waiting and not is_news,
        dead=None,
    )


def _last_branches(tenant: str, wanted: sa.ColumnElement[Any]) -> sa.Select[*tuple[Any, ...]]:
    facts = decisions.c
    columns = (
        facts.decided_at,
        facts.branch_action,
        facts.branch_route,
        facts.branch_reasons,
        facts.failure_code,
    )
    return (
        sa.select(facts.workflow_id, *columns)
        .ext(distinct_on(facts.workflow_id))
        .where(
            facts.tenant == escape(tenant),
            facts.workflow_id == wanted,
            facts.branch_action.is_not(None),
            LIVE,
        )
        .order_by(facts.workflow_id, facts.decided_at.desc(), facts.ordinal.desc(), facts.decision_id)
    )


def _followed(tenant: str, wanted: sa.ColumnElement[Any]) -> sa.Select[*tuple[Any, ...]]:
    events = history_events.c
    return (
        sa.select(events.workflow_id, events.at, events.kind, events.body)
        .where(
            events.tenant == escape(tenant),
            events.workflow_id == wanted,
            events.kind.in_((REQUESTED, *_ANSWERS, *_DEAD)),
        )
        # A request comes before an answer of the same moment.
        .order_by(events.at, (events.kind == REQUESTED).desc(), events.event_id)
    )


def _asked_by_decision(
    tenant: str, after: Position | None, wanted: ReviewQuery
) -> sa.Select[*tuple[Any, ...]]:
    facts, later = decisions.c, history_events.c
    followed = sa.exists().where(
        later.tenant == escape(tenant),
        later.workflow_id == facts.workflow_id,
        later.kind.in_((REQUESTED, *_ANSWERS, *_DEAD)),
        later.at >= facts.decided_at,
    )
    asked = SELECT_DECISIONS.where(
        facts.tenant == escape(tenant), facts.branch_action == "review", LIVE, ~followed
    )
    return _oldest_first(asked, tenant, facts.decided_at, after, wanted)


def _asked_by_event(tenant: str, after: Position | None, wanted: ReviewQuery) -> sa.Select[*tuple[Any, ...]]:
    facts = decisions.c
    request, later = history_events.alias("request").c, history_events.alias("later").c
    answered = sa.and_(later.kind.in_(_ANSWERS), later.at >= request.at)
    asked_again = sa.and_(
        later.kind == REQUESTED,
        sa.tuple_(later.at, later.event_id) > sa.tuple_(request.at, request.event_id),
    )
    followed = sa.exists().where(
        later.tenant == escape(tenant),
        later.workflow_id == request.workflow_id,
        sa.or_(answered, asked_again),
    )
    asked = SELECT_DECISIONS.add_columns(request.at.label("since"), request.body.label("request")).where(
        request.tenant == escape(tenant),
        request.kind == REQUESTED,
        facts.tenant == escape(tenant),
        facts.decision_id == request.decision_id,
        ~followed,
    )
    return _oldest_first(asked, tenant, request.at, after, wanted)


def _oldest_first(
    asked: sa.Select[*tuple[Any, ...]],
    tenant: str,
    since: sa.ColumnElement[datetime],
    after: Position | None,
    wanted: ReviewQuery,
) -> sa.Select[*tuple[Any, ...]]:
    facts, identity = decisions.c, decisions.c.decision_id
    ordered = asked.order_by(since, identity)
    if wanted.playbook is not None:
        ordered = ordered.where(facts.playbook_id == escape(wanted.playbook))
    if wanted.decision_id is not None:
        ordered = ordered.where(identity == wanted.decision_id)
    if wanted.before is not None:
        ordered = ordered.where(since < wanted.before)
    if wanted.queue is not None:
        ordered = ordered.where(queue_of(tenant, facts.workflow_id, since) == escape(wanted.queue))
    if after is None:
        return ordered
    place = sa.tuple_(sa.literal(after.decided_at, since.type), sa.literal(after.decision_id, identity.type))
    return ordered.where(sa.tuple_(since, identity) > place)


def _by_decision(decision: Decision) -> OpenReview:
    branch = decision.branch
    route, reasons = (None, ()) if branch is None else (branch.route, branch.reasons)
    return OpenReview(decision, decision.decided_at, route, reasons)


def _by_event(row: Mapping[str, Any]) -> OpenReview:
    asked = cast("Mapping[str, JSON]", decode(row["request"]))
    route = asked.get("route")
    return OpenReview(
        decision_of(row),
        utc(row["since"]),
        route if isinstance(route, str) else None,
        _texts(asked.get("reasons")),
    )


def _texts(value: JSON) -> tuple[str, ...]:
    return tuple(str(one) for one in value) if isinstance(value, list) else ()
