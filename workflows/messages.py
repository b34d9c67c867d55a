"""Inputs, updates and results of the workflows. Pure and sandbox-safe; plain JSON fields."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Literal

from classifier.values import digest

TRIAGE = "classifier.triage"
REVIEW = "review"
STATUS = "status"
DECIDED = "decided"
CLAIM = "claim"
RELEASE = "release"

CLASSIFIER = "classifier"
DEADLINE = "deadline"
"""Who decides where no person does."""

USUAL_LEASE = timedelta(minutes=15)
MAX_LEASE = timedelta(hours=24)

NOT_IN_REVIEW = "NOT_IN_REVIEW"
STILL_DECIDING = "STILL_DECIDING"
UNKNOWN_ROUTE = "UNKNOWN_ROUTE"
NO_REVIEWER = "NO_REVIEWER"
REVIEW_HELD = "REVIEW_HELD"
NOT_CLAIMED = "NOT_CLAIMED"
BAD_LEASE = "BAD_LEASE"
"""Why a run refuses what a person wants to do."""


@dataclass(frozen=True)
class TriageRequest:
    """Input of the triage workflow.

    Attributes:
        event: A CloudEvent as JSON.
        playbook: What decides on it.
        tenant: Whose event it is.
        context: The request context that reaches policy and record.
    """

    event: dict[str, Any]
    playbook: str
    tenant: str
    context: dict[str, Any] = field(default_factory=dict[str, Any])


@dataclass(frozen=True)
class ReviewChoice:
    """What a person decides about an event that waits.

    Attributes:
        route: One of the playbook's routes.
        by: Who decides.
        reason: Why, in the person's words.
    """

    route: str
    by: str
    reason: str | None = None


@dataclass(frozen=True)
class ReviewClaim:
    """Somebody is at work on an event that waits; nobody else claims it or decides meanwhile.

    Attributes:
        by: Who it is; claiming again goes on with it from now.
        seconds: For how long.
    """

    by: str
    seconds: float = USUAL_LEASE.total_seconds()


@dataclass(frozen=True)
class ReviewRelease:
    """Whoever claimed an event gives it back."""

    by: str


@dataclass(frozen=True)
class TriageStatus:
    """Where an event stands, as the `status` query and the workflow's result give it.

    Attributes:
        state: "deciding", "review" (waits for a person), "delivering", "delivered", "stopped", "dead_letter"
            (waits for somebody who replays or drops it), or "dropped".
        route: Where it goes or went.
        reasons: Why it waits, as stable codes.
        decision_id: The decision it rests on.
        decided_by: "classifier", "deadline", or the name of a person.
        destination: Where it was delivered.
        claimed_by: Who claimed the review last.
        claimed_until: ISO 8601; until when nobody else decides.
        queue: Who was asked when a deadline had passed.
        due: ISO 8601; when the next deadline is.
    """

    state: Literal["deciding", "review", "delivering", "delivered", "stopped", "dead_letter", "dropped"]
    route: str | None = None
    reasons: list[str] = field(default_factory=list[str])
    decision_id: str | None = None
    decided_by: str | None = None
    destination: str | None = None
    claimed_by: str | None = None
    claimed_until: str | None = None
    queue: str | None = None
    due: str | None = None


def triage_workflow_id(tenant: str, source: str, event_id: str) -> str:
    """The one workflow of an event; 39 characters, whatever the source calls things."""
    return f"triage-{digest([tenant, source, event_id])[:32]}"
