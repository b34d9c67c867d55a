"""What the history holds besides decisions: events of other kinds, and accepted source events. Pure."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Literal, TypeAlias

from classifier.values import JSON, canonical_json

EventKind: TypeAlias = Literal[
    "review_requested",
    "review",
    "review_claimed",
    "review_released",
    "review_escalated",
    "review_defaulted",
    "delivery",
    "stop",
    "erasure",
    "retention",
    "hold",
    "seal",
    "applied",
    "stale",
    "loop",
    "approval",
    "label",
    "dead_letter",
    "replay",
    "drop",
]

ERASABLE = frozenset({"reason"})
"""What people write in their own words: under these keys of a body, and kept where it can be erased."""

_NAMESPACE = uuid.UUID("5a2f1c1e-0d3b-5d55-8a41-2f0f6f4c9d02")


@dataclass(frozen=True, slots=True, kw_only=True)
class HistoryEvent:
    """Something that happened to a run and is not a decision: append-only, exactly once by `event_id`.

    Attributes:
        event_id: From where it happened (`event_id_of`), the same for every attempt.
        at: When it was scheduled, the same for every attempt; UTC.
        tenant: Whose it is.
        kind: What kind of thing.
        workflow_id: The run it belongs to.
        run_id: Its run id.
        decision_id: The decision it is about, where there is one.
        actor: Who did it: a person's name for a review, a destination for a delivery.
        body: The facts, as JSON; never content, but under the keys in `ERASABLE`.
    """

    event_id: uuid.UUID
    at: datetime
    tenant: str
    kind: EventKind
    workflow_id: str
    run_id: str
    decision_id: uuid.UUID | None = None
    actor: str | None = None
    body: Mapping[str, JSON] = field(default_factory=dict[str, JSON])


def event_id_of(tenant: str, kind: EventKind, *coordinates: str) -> uuid.UUID:
    """The id of an event that happened at these coordinates."""
    return uuid.uuid5(_NAMESPACE, canonical_json([tenant, kind, *coordinates]).decode("ascii"))


@dataclass(frozen=True, slots=True)
class SourceEvent:
    """An event of the outside world, by what makes it unique."""

    tenant: str
    source: str
    id: str


@dataclass(frozen=True, slots=True)
class AcceptedEvent:
    """A source event and the run that was started for it."""

    event: SourceEvent
    workflow_id: str
    run_id: str
    accepted_at: datetime
