"""What crosses Temporal: activity names, inputs and results. Pure and sandbox-safe.

Fields are plain JSON, so that any data converter and any language can read them. We hand converters
dictionaries: what they do for each dataclass takes longer than everything else with a thousand decisions.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any

DECIDE = "classifier.decide"
RECORD = "classifier.record"
TIMEOUT = "TIMEOUT"
"""Why an activity was lost: an attempt, or all of them together, took too long."""

MAX_INPUT_BYTES = 1_960_000
"""Temporal refuses a payload over 2 MiB again and again, so a request is measured before it is scheduled."""


@dataclass(frozen=True)
class DecideRequest:
    """Input of `classifier.decide`: ask a classifier, run a playbook or its shadow, or run processors.

    Exactly one of `classifier`, `playbook`, `shadow` and `processors` is given.

    Attributes:
        states: What to ask about; one decision each, in this order. Processors take messages, as
            `classifier.messages.message_to_json` writes them.
        classifier: The classifier to ask, by key or id.
        playbook: The playbook to run.
        shadow: The playbook whose shadow to run, beside a decision that is there.
        answers: For a shadow: what that decision answers about each state.
        processors: The processors to run over the messages, in this order.
        phase: For processors: "input" or "output".
        context: The caller's request context.
        decided_at: ISO 8601; the same for every attempt. Absent outside a workflow: the activity's schedule.
        maybe_decided_at: Another time under which a local execution that left no trace may have recorded.
        look_first: Whether an activity of the same id may have recorded before.
        failures_allowed: How many failed model calls are one too many.
        thread: The conversation it belongs to.
        resource: The person or thing it is about.
        message: The message it is about.
        trace: The caller's trace and
        span: span; the ones that are open where it runs, where left out.
    """

    states: list[Any]
    classifier: str | None = None
    playbook: str | None = None
    shadow: str | None = None
    answers: list[dict[str, Any] | None] = field(default_factory=list[dict[str, Any] | None])
    processors: list[str] = field(default_factory=list[str])
    phase: str | None = None
    context: dict[str, Any] = field(default_factory=dict[str, Any])
    decided_at: str | None = None
    maybe_decided_at: str | None = None
    look_first: bool = False
    failures_allowed: int = 3
    thread: str | None = None
    resource: str | None = None
    message: str | None = None
    trace: str | None = None
    span: str | None = None


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
        processor: The id of the processor whose decision it is; absent from a step.
        position: Index of the message it is about.
        message: That message's id.
        tripwire: Reason and metadata of an abort.
        mode: "monitor" or "shadow" where the outcome was recorded and is not acted on.
    """

    decision_id: str
    outcome: str
    answers: dict[str, Any] | None
    branch: dict[str, Any] | None = None
    failure: dict[str, str] | None = None
    recorded: bool = True
    processor: str | None = None
    position: int = 0
    message: str | None = None
    tripwire: dict[str, Any] | None = None
    mode: str = "enforce"


@dataclass(frozen=True)
class DecideResult:
    """Result of `classifier.decide`.

    Attributes:
        decisions: One per state; of processors, those that were made, in order.
        routes: The closed set of the playbook at the time of the decision.
        review: Its rules for those who wait for a person, as `classifier.review_rules` writes them.
        pending: Decisions that are not stored yet, without what the request holds already; see `travel`.
        unsure: An earlier attempt may have recorded other decisions, and the store was away when it was
            asked; what `classifier.record` gives back is the one to act on.
        shadow_budget: Seconds for the shadow of the playbook; None where there is nothing for one to do.
    """

    decisions: list[Decided]
    routes: list[str] = field(default_factory=list[str])
    pending: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    unsure: bool = False
    shadow_budget: float | None = None
    review: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])


@dataclass(frozen=True)
class RecordRequest:
    """Input of `classifier.record`: store what could not be stored where it was decided.

    Attributes:
        pending: Decisions in full.
        lost: The request of a `classifier.decide` that died without a result; its failure is recorded.
        activity_id: The activity that died.
        code: Why it died.
    """

    pending: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    lost: DecideRequest | None = None
    activity_id: str = ""
    code: str = ""


def request_to_json(request: DecideRequest) -> dict[str, Any]:
    """What `classifier.decide` is given."""
    return dict(vars(request))


def record_to_json(request: RecordRequest) -> dict[str, Any]:
    """What `classifier.record` is given."""
    lost = None if request.lost is None else request_to_json(request.lost)
    return {**vars(request), "lost": lost}


def result_to_json(result: DecideResult) -> dict[str, Any]:
    """What both give back."""
    return {**vars(result), "decisions": [vars(each) for each in result.decisions]}


def result_from_json(body: Mapping[str, Any]) -> DecideResult:
    """The result that `body` describes; fields of later versions are left out."""
    known: dict[str, Any] = {name: body[name] for name in _RESULT if name in body}
    known["decisions"] = [
        Decided(**{name: each[name] for name in _DECIDED if name in each}) for each in known["decisions"]
    ]
    return DecideResult(**known)


_RESULT = tuple(each.name for each in fields(DecideResult))
_DECIDED = tuple(each.name for each in fields(Decided))
