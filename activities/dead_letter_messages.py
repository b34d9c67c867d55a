"""Names and inputs of the activities behind dead letters. Pure and sandbox-safe; plain JSON fields."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

KEEP_DEAD_LETTER = "triage.dead_letter"
ANSWER_DEAD_LETTER = "triage.answer_dead_letter"

Stage: TypeAlias = Literal["decide", "deliver"]
Answer: TypeAlias = Literal["replay", "drop"]


@dataclass(frozen=True)
class DeadLetter:
    """Input of `triage.dead_letter`: an event that could not be handled, and nothing of what it says.

    Attributes:
        tenant: Whose event it is.
        source: The event's own source.
        event: The event's own id.
        type: The event's own type.
        playbook: What was to decide on it.
        stage: What came to nothing: "decide" or "deliver".
        code: Why, as a stable code.
        attempts: How often it was tried; None where nobody could count.
        status: What a receiver answered, where there was one.
        route: Where it was to be delivered.
        decided_by: "classifier", or the name of the person who chose the route.
        decision_id: The decision it rests on, if any was recorded.
        at: ISO 8601; since when it lies there.
    """

    tenant: str
    source: str
    event: str
    type: str
    playbook: str
    stage: Stage
    code: str
    attempts: int | None
    status: int | None
    route: str | None
    decided_by: str | None
    decision_id: str | None
    at: str


@dataclass(frozen=True)
class DeadLetterAnswer:
    """Input of `triage.answer_dead_letter`: what somebody made of a dead letter.

    Attributes:
        letter: Which one.
        answer: "replay" tries again, "drop" gives the event up.
        by: Who says so.
        reason: Why, in the person's words.
        at: ISO 8601; when it was said.
    """

    letter: DeadLetter
    answer: Answer
    by: str
    reason: str | None
    at: str
