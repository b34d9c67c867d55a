"""Who is at work on a review until when, and whom its deadlines asked: the newest of what is on record."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, cast

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from classifier.audit.escape import decode, escape, unescape, unescape_optional
from classifier.audit.records import EventKind
from classifier.audit.rows import utc
from classifier.audit.tables import history_events
from classifier.values import JSON

CLAIMED: EventKind = "review_claimed"
RELEASED: EventKind = "review_released"
ESCALATED: EventKind = "review_escalated"


@dataclass(frozen=True, slots=True)
class Claim:
    """Who took a review on, and until when nobody else decides."""

    by: str
    until: datetime


@dataclass(frozen=True, slots=True)
class Desk:
    """Where a review lies.

    Attributes:
        claim: The last claim that was not given back; it may have run out.
        queue: Whom a deadline asked last; None while none has passed.
    """

    claim: Claim | None = None
    queue: str | None = None

    def held(self, now: datetime) -> Claim | None:
        """The claim that still lasts."""
        return self.claim if self.claim is not None and self.claim.until > now else None

    def after(self, kind: EventKind, by: str | None, facts: Mapping[str, JSON]) -> Desk:
        """The desk when this has happened."""
        if kind == ESCALATED:
            return replace(self, queue=str(facts.get("queue")))
        if kind == RELEASED:
            return replace(self, claim=None)
        return replace(self, claim=Claim(by or "", datetime.fromisoformat(str(facts.get("until")))))


async def desks_of(
    connection: AsyncConnection, tenant: str, waiting: Mapping[str, datetime]
) -> Mapping[str, Desk]:
    """The desks of workflows that wait since these times; what was before is of an earlier review."""
    found = dict.fromkeys(waiting, Desk())
    for workflow, at, kind, actor, body in _in_order(await connection.execute(_events(tenant, waiting))):
        if at >= waiting[workflow]:
            found[workflow] = found[workflow].after(kind, actor, body)
    return found


def queue_of(
    tenant: str, workflow: sa.ColumnElement[str], since: sa.ColumnElement[datetime]
) -> sa.ScalarSelect[Any]:
    """Whom a deadline asked last."""
    events = history_events.alias("escalated").c
    return (
        sa.select(events.body["queue"].astext)
        .where(
            events.tenant == escape(tenant),
            events.workflow_id == workflow,
            events.kind == ESCALATED,
            events.at >= since,
        )
        .order_by(events.at.desc(), events.body["number"].as_integer().desc())
        .limit(1)
        .scalar_subquery()
    )


def _events(tenant: str, workflows: Iterable[str]) -> sa.Select[*tuple[Any, ...]]:
    events = history_events.c
    wanted = sa.any_(sa.literal([escape(one) for one in workflows], sa.ARRAY(sa.Text)))
    return sa.select(events.workflow_id, events.at, events.kind, events.actor, events.body).where(
        events.tenant == escape(tenant),
        events.workflow_id == wanted,
        events.kind.in_((CLAIMED, RELEASED, ESCALATED)),
    )


def _in_order(rows: Iterable[Any]) -> list[tuple[str, datetime, EventKind, str | None, Mapping[str, JSON]]]:
    """As they happened: those of one moment by the number that the run gave them."""
    happened = [
        (
            unescape(workflow),
            utc(at),
            kind,
            unescape_optional(actor),
            cast("Mapping[str, JSON]", decode(body)),
        )
        for workflow, at, kind, actor, body in rows
    ]
    return sorted(happened, key=lambda one: (one[1], cast("int", one[4].get("number", 0))))
