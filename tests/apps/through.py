"""A store in front of another one, for those that change one thing about it."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from datetime import datetime

from classifier.audit.records import AcceptedEvent, EventKind, HistoryEvent, SourceEvent
from classifier.audit.store import AuditStore
from classifier.decision import Decision
from classifier.values import JSON


class Through:
    """Passes everything on."""

    def __init__(self, store: AuditStore) -> None:
        self._store = store

    async def find(
        self, tenant: str, decided_at: datetime, decision_ids: Sequence[uuid.UUID]
    ) -> Mapping[uuid.UUID, Decision]:
        return await self._store.find(tenant, decided_at, decision_ids)

    async def record(self, decisions: Sequence[Decision]) -> Sequence[Decision]:
        return await self._store.record(decisions)

    async def record_events(self, events: Sequence[HistoryEvent]) -> None:
        await self._store.record_events(events)

    async def accept(self, accepted: Sequence[AcceptedEvent]) -> None:
        await self._store.accept(accepted)

    async def accepted(self, events: Sequence[SourceEvent]) -> Mapping[SourceEvent, AcceptedEvent]:
        return await self._store.accepted(events)

    async def last_facts(self, tenant: str, workflow_id: str, kind: EventKind) -> Mapping[str, JSON] | None:
        return await self._store.last_facts(tenant, workflow_id, kind)
