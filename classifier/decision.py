"""The record of one classifier call and what policy made of it. Pure.

A decision is identified by where it was made, never by when or in which attempt, so a retry finds it again.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Literal, TypeAlias

from classifier.answers import Answer
from classifier.result import Truncation, Usage
from classifier.values import JSON, State, canonical_json

Outcome: TypeAlias = Literal["allowed", "filtered", "aborted"]
Phase: TypeAlias = Literal["input", "output", "stream", "step"]
ProcessorMode: TypeAlias = Literal["enforce", "monitor"]
Mode: TypeAlias = Literal["enforce", "monitor", "shadow"]

MAX_PROCESSORS = 1024
"""In one chain; a decision's ordinal holds the message and the processor."""

SHADOW = "-shadow"
"""What the name of the activity that decides beside another one ends with."""

_NAMESPACE = uuid.UUID("8d0b4b52-3f6e-5c8c-9a53-4b6c7c0f7a11")


@dataclass(frozen=True, slots=True)
class Coordinates:
    """Where a decision is made; the same for every attempt.

    Attributes:
        tenant: Whose decision it is; part of the id, so tenants cannot collide.
        namespace: Temporal namespace, or empty outside Temporal.
        workflow_id: The workflow, or the caller's key outside a workflow.
        run_id: The run of that workflow, or empty.
        activity_id: The activity, or empty.
    """

    tenant: str
    namespace: str = ""
    workflow_id: str = ""
    run_id: str = ""
    activity_id: str = ""

    def decision_id(self, ordinal: int) -> uuid.UUID:
        """The id of the decision number `ordinal` (message, processor) made here."""
        parts: list[JSON] = [
            self.tenant,
            self.namespace,
            self.workflow_id,
            self.run_id,
            self.activity_id,
            ordinal,
        ]
        return uuid.uuid5(_NAMESPACE, canonical_json(parts).decode("ascii"))


def ordinal_of(position: int, place: int) -> int:
    """The number of the decision on the message at `position` by the processor at `place` of its chain."""
    return position * MAX_PROCESSORS + place


def position_of(ordinal: int) -> int:
    """The position of the message that a processor's decision is about."""
    return ordinal // MAX_PROCESSORS


@dataclass(frozen=True, slots=True)
class Ids:
    """What a decision belongs to; None where unknown."""

    thread: str | None = None
    resource: str | None = None
    message: str | None = None
    trace: str | None = None
    span: str | None = None


@dataclass(frozen=True, slots=True)
class Tripwire:
    """Reason and metadata of an abort, both written by the application."""

    reason: str
    metadata: JSON = None


@dataclass(frozen=True, slots=True)
class DecisionFailure:
    """Why there are no answers: a code of `classifier.errors` and a message free of content."""

    code: str
    message: str


@dataclass(frozen=True, slots=True)
class Branch:
    """What policy made of the answers, as the workflow matches on it.

    Attributes:
        action: "route" (deliver), "review" (a person decides).
        route: Where to; for "review", where it would have gone, if anything could be said.
        reasons: Stable codes, "low_probability:department" for example; empty for a clean route.
    """

    action: Literal["route", "review"]
    route: str | None
    reasons: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """One row of the audit history.

    Attributes:
        decision_id: From the coordinates and the ordinal.
        decided_at: When the work was scheduled, the same for every attempt; UTC.
        ordinal: Position among the decisions of one activity: (message, processor).
        phase: "step" is a plain classification, outside a processor.
        outcome: A failed call that was let through is "allowed" with `failure`.
        answers: None where the call failed.
        duration_ms: From the first attempt to the answer, retries included; 0 where nobody measured it.
        attempts: How often the model was asked; 0 where the activity that asked was lost.
        question_set: Hash of the questions.
        policy_version: The application's name for its policy, where it gives one.
        gates: Thresholds that were applied, by question.
        branch: What a playbook decided; None outside playbooks.
        state: The text sent, after truncation; erasable.
        original: The text before normalising, where that changed it; erasable.
        request_context: The caller's context; erasable.
        normalised: What was changed before judging ("nfkc", "format", "confusables").
        mode: "monitor" and "shadow" record what would have happened and change nothing; a shadow stands
            beside the decision of the same ordinal whose activity lacks the suffix `SHADOW`.
    """

    decision_id: uuid.UUID
    decided_at: datetime
    coordinates: Coordinates
    ordinal: int
    classifier_id: str
    phase: Phase
    outcome: Outcome
    state: State
    answers: Mapping[str, Answer] | None
    question_set: str
    duration_ms: float
    attempts: int
    processor_id: str | None = None
    playbook_id: str | None = None
    failure: DecisionFailure | None = None
    tripwire: Tripwire | None = None
    branch: Branch | None = None
    gates: Mapping[str, float] = field(default_factory=dict[str, float])
    ids: Ids = Ids()
    request_context: Mapping[str, JSON] = field(default_factory=dict[str, JSON])
    policy_version: str | None = None
    provider: str | None = None
    requested_model: str | None = None
    resolved_model: str | None = None
    provider_request_id: str | None = None
    usage: Usage = Usage()
    warnings: tuple[str, ...] = ()
    truncation: Truncation | None = None
    normalised: tuple[str, ...] = ()
    original: str | None = None
    mode: Mode = "enforce"
    metadata: Mapping[str, JSON] = field(default_factory=dict[str, JSON])

    @property
    def tenant(self) -> str:
        """Whose decision it is."""
        return self.coordinates.tenant

    @property
    def shadow_of(self) -> uuid.UUID | None:
        """The live decision that a shadow stands beside."""
        if self.mode != "shadow":
            return None
        activity = self.coordinates.activity_id.removesuffix(SHADOW)
        return replace(self.coordinates, activity_id=activity).decision_id(self.ordinal)
