"""The seams to where decisions are kept. Pure.

`classifier.audit.postgres` implements them over PostgreSQL, `classifier.audit.memory` in memory; one
contract suite holds both.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Protocol

from classifier.audit.records import AcceptedEvent, EventKind, HistoryEvent, SourceEvent
from classifier.decision import Decision
from classifier.values import JSON


class DecisionStore(Protocol):
    """Keeps decisions, each exactly once: the first that was recorded is the one acted on."""

    async def find(
        self, tenant: str, decided_at: datetime, decision_ids: Sequence[uuid.UUID]
    ) -> Mapping[uuid.UUID, Decision]:
        """The stored ones among `decision_ids`.

        Raises:
            StoreUnavailable: The store did not answer in time.
        """
        ...

    async def record(self, decisions: Sequence[Decision]) -> Sequence[Decision]:
        """Stores each decision unless its id is taken, and gives back what is stored, in the same order.

        All are durable when this returns. The decisions may belong to several tenants.

        Raises:
            DecisionMismatch: An id is taken by a decision of another processor, phase or state.
            StoreUnavailable: The store did not answer in time; some may be stored, calling again is safe.
        """
        ...


class EventStore(Protocol):
    """Keeps what else happened, and which source events were accepted."""

    async def record_events(self, events: Sequence[HistoryEvent]) -> None:
        """Stores each event unless its id is taken; errors as for `DecisionStore.record`."""
        ...

    async def accept(self, accepted: Sequence[AcceptedEvent]) -> None:
        """Remembers which run each source event got; the first one stays."""
        ...

    async def accepted(self, events: Sequence[SourceEvent]) -> Mapping[SourceEvent, AcceptedEvent]:
        """The already accepted ones among `events`."""
        ...

    async def last_facts(self, tenant: str, workflow_id: str, kind: EventKind) -> Mapping[str, JSON] | None:
        """The body of the newest event of this kind that happened to this workflow; errors as for `find`."""
        ...


class AuditStore(DecisionStore, EventStore, Protocol):
    """Everything the service writes."""
