"""The activities behind a subject's order: what was applied and what came too late is in the history."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Literal, cast, get_args

from temporalio import activity

from activities.subject_messages import APPLY, NOTE, Apply, Note, Version, VersionKind
from classifier.audit.records import AcceptedEvent, HistoryEvent, SourceEvent, event_id_of
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
            await self._store.record_events([_applied(state)])
            await self._store.accept(_accepted(state))
        except ClassifierError as error:
            raise as_application_error(error) from None
        return True

    @activity.defn(name=NOTE)
    async def note(self, note: Note) -> None:
        """Writes into the history what the workflow noticed."""
        subject = note.subject
        body: dict[str, JSON] = {"source": subject.source, "subject": subject.name, "events": note.events}
        workflow_id, run_id, activity_id = _place()
        event = HistoryEvent(
            event_id=event_id_of(subject.tenant, note.kind, workflow_id, run_id, activity_id),
            at=datetime.fromisoformat(note.at),
            tenant=subject.tenant,
            kind=note.kind,
            workflow_id=workflow_id,
            run_id=run_id,
            body=body | note.facts,
        )
        try:
            await self._store.record_events([event])
        except ClassifierError as error:
            raise as_application_error(error) from None

    async def _newest(self, state: Apply) -> Version | None:
        facts = await self._store.last_facts(state.subject.tenant, _place()[0], "applied") or {}
        kind, value = facts.get("kind"), facts.get("version")
        if kind in get_args(VersionKind) and isinstance(value, str):
            return Version(cast("VersionKind", kind), value)
        return None


def _place() -> tuple[str, str, str]:
    info = activity.info()
    return info.workflow_id or "", info.workflow_run_id or "", info.activity_id


def _applied(state: Apply) -> HistoryEvent:
    return _event(state, "applied", {"events": state.merged, "run": state.run, **_version(state.version)})


def _stale(state: Apply, newest: Version | None) -> HistoryEvent:
    facts: dict[str, JSON] = {"events": state.merged, "newest": newest.value if newest else None}
    return _event(state, "stale", facts | _version(state.version))


def _version(version: Version | None) -> dict[str, JSON]:
    return {} if version is None else {"kind": version.kind, "version": version.value}


def _event(state: Apply, kind: Literal["applied", "stale"], facts: dict[str, JSON]) -> HistoryEvent:
    subject = state.subject
    workflow_id, run_id, activity_id = _place()
    return HistoryEvent(
        event_id=event_id_of(subject.tenant, kind, workflow_id, run_id, activity_id),
        at=datetime.fromisoformat(state.at),
        tenant=subject.tenant,
        kind=kind,
        workflow_id=workflow_id,
        run_id=run_id,
        body={"source": subject.source, "subject": subject.name, **facts},
    )


def _accepted(state: Apply) -> list[AcceptedEvent]:
    workflow_id, run_id, _ = _place()
    tenant, source = state.subject.tenant, state.subject.source
    moment = datetime.now(UTC)
    return [
        AcceptedEvent(SourceEvent(tenant, source, name), workflow_id, run_id, moment)
        for name in dict.fromkeys(state.merged)
    ]
