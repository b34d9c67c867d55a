"""Inputs, updates and results of the workflows. Pure and sandbox-safe; plain JSON fields."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

from classifier.values import digest

TRIAGE = "classifier.triage"
REVIEW = "review"
STATUS = "status"
DECIDED = "decided"


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
class TriageStatus:
    """Where an event stands, as the `status` query and the workflow's result give it.

    Attributes:
        state: "deciding", "review" (waits for a person), "delivering" or "delivered".
        route: Where it goes or went.
        reasons: Why it waits, as stable codes.
        decision_id: The decision it rests on.
        decided_by: "classifier", or the name of a person.
        destination: Where it was delivered.
    """

    state: Literal["deciding", "review", "delivering", "delivered"]
    route: str | None = None
    reasons: list[str] = field(default_factory=list[str])
    decision_id: str | None = None
    decided_by: str | None = None
    destination: str | None = None


def triage_workflow_id(tenant: str, source: str, event_id: str) -> str:
    """The one workflow of an event; 39 characters, whatever the source calls things."""
    return f"triage-{digest([tenant, source, event_id])[:32]}"
