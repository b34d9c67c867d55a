"""The name and the input of the activity that keeps what happens to reviews. Pure; plain JSON fields."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

NOTE_REVIEW = "triage.note_review"

ReviewEvent: TypeAlias = Literal[
    "review_claimed", "review_released", "review_escalated", "review_defaulted", "stop"
]


@dataclass(frozen=True)
class ReviewNote:
    """Input of `triage.note_review`: something that happened to an event, other than a person's choice.

    Attributes:
        tenant: Whose event it is.
        kind: What happened.
        decision_id: The decision it is about; None where there is none yet.
        by: Who did it; None where nobody did.
        at: ISO 8601; the same for every attempt.
        facts: What else there is to say.
    """

    tenant: str
    kind: ReviewEvent
    decision_id: str | None
    by: str | None
    at: str
    facts: dict[str, Any] = field(default_factory=dict[str, Any])
