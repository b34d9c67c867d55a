"""What crosses Temporal: activity names, inputs and results. Pure and sandbox-safe.

Fields are plain JSON, so that any data converter and any language can read them.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

DECIDE = "classifier.decide"
RECORD = "classifier.record"

MAX_INPUT_BYTES = 1_960_000
"""Temporal refuses a payload over 2 MiB again and again, so a request is measured before it is scheduled."""


@dataclass(frozen=True)
class DecideRequest:
    """Input of `classifier.decide`: ask a classifier, or run a playbook, over one or many states.

    Attributes:
        states: What to ask about; one decision each, in this order.
        classifier: The classifier to ask; exactly one of this and `playbook`.
        playbook: The playbook to run.
        context: The caller's request context.
        decided_at: ISO 8601; the same for every attempt. Absent outside a workflow: the activity's schedule.
        failures_allowed: How many failed model calls are one too many.
        thread: The conversation it belongs to.
        resource: The person or thing it is about.
        message: The message it is about.
    """

    states: list[Any]
    classifier: str | None = None
    playbook: str | None = None
    context: dict[str, Any] = field(default_factory=dict[str, Any])
    decided_at: str | None = None
    failures_allowed: int = 3
    thread: str | None = None
    resource: str | None = None
    message: str | None = None


@dataclass(frozen=True)
class Decided:
    """One decision as a workflow acts on it.

    Attributes:
        decision_id: Its row in the history.
        outcome: "allowed", "filtered" or "aborted".
        answers: By question id; None where the call failed.
        branch: What a playbook decided: action, route, reasons.
        failure: Code and message of a failed call.
        recorded: Whether the row is durable already.
    """

    decision_id: str
    outcome: str
    answers: dict[str, Any] | None
    branch: dict[str, Any] | None = None
    failure: dict[str, str] | None = None
    recorded: bool = True


@dataclass(frozen=True)
class DecideResult:
    """Result of `classifier.decide`.

    Attributes:
        decisions: One per state.
        routes: The closed set of the playbook at the time of the decision.
        pending: Decisions that are not stored yet, in full; `classifier.record` takes them.
    """

    decisions: list[Decided]
    routes: list[str] = field(default_factory=list[str])
    pending: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])


@dataclass(frozen=True)
class RecordRequest:
    """Input of `classifier.record`: store what could not be stored where it was decided.

    Attributes:
        pending: Decisions in full, from a `DecideResult`.
        lost: The request of a `classifier.decide` that died without a result; its failure is recorded.
        activity_id: The activity that died.
        code: Why it died.
    """

    pending: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    lost: DecideRequest | None = None
    activity_id: str = ""
    code: str = ""
