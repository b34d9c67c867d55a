"""The activities behind a subject's order: what was applied and what came too late is in the history."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import cast, get_args

from temporalio import activity

from activities.happened import happened, keep
from activities.subject_messages import APPLY, NOTE, Apply, Note, Subject, Version, VersionKind
from classifier.audit.records import AcceptedEvent, EventKind, HistoryEvent, SourceEvent
from classifier.audit.store import EventStore
from classifier.errors import ClassifierError
from classifier.temporal.failures import as_application_error
from classifier.values import JSON


class SubjectActivities:
    """Keeps what is known of subjects for longer than their workflows live.

    Args:
        store: Where it is kept.
    """

    def __init__(self, store: EventStore) -> None:
        self._store = store

    @activity.defn(name=APPLY)
    async def apply(self, state: Apply) -> bool:
        """Whether this state may be decided on; an older one than was applied before is noted as stale.

        Its events are remembered as accepted, whether or not the one who signalled them still could.
        """
        try:
            newest = await self._newest(state)
            if state.version is not None and state.version.is_older_than(newest):
                await self._store.record_events([_stale(state, newest)])
                return False
            applied = _applied(state)
            await self._store.record_events([applied])
            await self._store.accept(_accepted(state, applied))
        except ClassifierError as error:
            raise as_application_error(error) from None
        return True

    @activity.defn(name=NOTE)
    async def note(self, note: Note) -> None:
        """Writes into the history what the workflow noticed."""
        await keep(
            self._store, _event(note.kind, note.subject, note.at, {"events": note.events, **note.facts})
        )

    async def _newest(self, state: Apply) -> Version | None:
        workflow_id = activity.info().workflow_id or ""
        facts = await self._store.last_facts(state.subject.tenant, workflow_id, "applied") or {}
        kind, value = facts.get("kind"), facts.get("version")
        if kind in get_args(VersionKind) and isinstance(value, str):
            return Version(cast("VersionKind", kind), value)
        return None


def _applied(state: Apply) -> HistoryEvent:
    facts: dict[str, JSON] = {"events": state.merged, "run": state.run}
    return _event("applied", state.subject, state.at, facts | _version(state.version))


def _stale(state: Apply, newest: Version | None) -> HistoryEvent:
    facts: dict[str, JSON] = {"events": state.merged, "newest": newest.value if newest else None}
    return _event("stale", state.subject, state.at, facts | _version(state.version))


def _version(version: Version | None) -> dict[str, JSON]:
    return {} if version is None else {"kind": version.kind, "version": version.value}


def _event(kind: EventKind, subject: Subject, at: str, facts: Mapping[str, JSON]) -> HistoryEvent:
    body = {"source": subject.source, "subject": subject.name, **facts}
    return happened(kind, body, tenant=subject.tenant, at=at)


def _accepted(state: Apply, applied: HistoryEvent) -> list[AcceptedEvent]:
    tenant, source = state.subject.tenant, state.subject.source
    moment = datetime.now(UTC)
    return [
        AcceptedEvent(SourceEvent(tenant, source, name), applied.workflow_id, applied.run_id, moment)
        for name in dict.fromkeys(state.merged)
    ]
