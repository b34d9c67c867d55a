"""Names, inputs and results of the service's own activities. Pure and sandbox-safe; plain JSON fields."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

DELIVER = "triage.deliver"
REQUEST_REVIEW = "triage.request_review"
RECORD_REVIEW = "triage.record_review"


@dataclass(frozen=True)
class Delivery:
    """Input of `triage.deliver`: hand an event over to where its route leads.

    Attributes:
        playbook: Whose destinations apply.
        route: One of its routes.
        event: The CloudEvent as JSON.
        tenant: Whose event it is.
        decision_id: The decision it was routed by.
        decided_by: "classifier", or the name of the person who chose.
        at: ISO 8601; the same for every attempt.
        number: Which delivery of its run it is, which makes the key; None takes the activity's id for that.
        replayed: Whether it was tried before, in another activity.
    """

    playbook: str
    route: str
    event: dict[str, Any]
    tenant: str
    decision_id: str
    decided_by: str
    at: str
    number: int | None = None
    replayed: bool = False


@dataclass(frozen=True)
class Delivered:
    """Result of `triage.deliver`: where it went, and the key by which the receiver knows a repeat."""

    destination: str
    idempotency_key: str


@dataclass(frozen=True)
class ReviewRequest:
    """Input of `triage.request_review`: an event waits for a person, and not because its decision said so.

    Attributes:
        tenant: Whose event it is.
        decision_id: The decision it rests on.
        route: What was tried, if anything.
        reasons: Why it waits, as stable codes.
        at: ISO 8601; since when it waits.
    """

    tenant: str
    decision_id: str
    route: str | None
    reasons: list[str]
    at: str


@dataclass(frozen=True)
class ReviewRecord:
    """Input of `triage.record_review`: what a person decided, for the history.

    Attributes:
        tenant: Whose event it is.
        decision_id: The decision that asked for a review.
        route: What the person chose.
        suggested: What the classifier would have chosen, if anything.
        by: Who decided.
        reason: Why, in the person's words.
        at: ISO 8601; when the choice arrived.
    """

    tenant: str
    decision_id: str
    route: str
    suggested: str | None
    by: str
    reason: str | None
    at: str
