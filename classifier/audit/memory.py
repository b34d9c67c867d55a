"""The audit store in memory, for tests and for looking things over: the same contract, nothing kept. Pure."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime

from classifier.audit.query import DecisionQuery
from classifier.audit.records import AcceptedEvent, EventKind, HistoryEvent, SourceEvent
from classifier.decision import Decision
from classifier.errors import DecisionMismatch
from classifier.values import JSON


class MemoryStore:
    """Implements `classifier.audit.store.AuditStore`.

    Attributes:
        decisions: By time and id, in the order of arrival.
        history: By event id, in the order of arrival.
    """

    def __init__(self) -> None:
        self.decisions: dict[tuple[datetime, uuid.UUID], Decision] = {}
        self.history: dict[uuid.UUID, HistoryEvent] = {}
        self._accepted: dict[SourceEvent, AcceptedEvent] = {}

    async def find(
        self, tenant: str, decided_at: datetime, decision_ids: Sequence[uuid.UUID]
    ) -> Mapping[uuid.UUID, Decision]:
        """The stored ones among `decision_ids`."""
        moment = _utc(decided_at)
        found = {one: self.decisions.get((moment, one)) for one in decision_ids}
        return {one: kept for one, kept in found.items() if kept is not None and kept.tenant == tenant}

    async def record(self, decisions: Sequence[Decision]) -> Sequence[Decision]:
        """Stores each decision unless its id is taken, and gives back what is stored, in the same order.

        Raises:
            DecisionMismatch: An id is taken by a decision of another processor, phase or state.
        """
        stored = [
            self.decisions.setdefault((_utc(decision.decided_at), decision.decision_id), decision)
            for decision in decisions
        ]
        for kept, decision in zip(stored, decisions, strict=True):
            if _identity(kept) != _identity(decision):
                raise DecisionMismatch(
                    f"decision {decision.decision_id} is on record for another processor, phase or state"
                )
        return stored

    async def record_events(self, events: Sequence[HistoryEvent]) -> None:
        """Stores each event unless its id is taken."""
        for event in events:
            self.history.setdefault(event.event_id, event)

    async def accept(self, accepted: Sequence[AcceptedEvent]) -> None:
        """Remembers which run each source event got; the first one stays."""
        for item in accepted:
            self._accepted.setdefault(item.event, item)

    async def accepted(self, events: Sequence[SourceEvent]) -> Mapping[SourceEvent, AcceptedEvent]:
        """The already accepted ones among `events`."""
        return {event: self._accepted[event] for event in events if event in self._accepted}

    async def last_facts(self, tenant: str, workflow_id: str, kind: EventKind) -> Mapping[str, JSON] | None:
        """The body of the newest event of this kind that happened to this workflow."""
        place = (tenant, workflow_id, kind)
        found = [e for e in self.history.values() if (e.tenant, e.workflow_id, e.kind) == place]
        return max(found, key=lambda event: event.at).body if found else None

    def matching(self, query: DecisionQuery) -> list[Decision]:
        """The decisions that `query` asks for, newest first."""
        newest = sorted(self.decisions.items(), key=lambda item: item[0], reverse=True)
        return [decision for _, decision in newest if query.matches(decision)]


def _identity(decision: Decision) -> tuple[object, ...]:
    return decision.tenant, decision.processor_id, decision.phase, decision.state


def _utc(moment: datetime) -> datetime:
    return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)
