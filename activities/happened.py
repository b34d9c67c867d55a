"""What an activity has done or seen, as an event of the history."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from datetime import datetime

from temporalio import activity

from classifier.audit.records import EventKind, HistoryEvent, event_id_of
from classifier.audit.store import EventStore
from classifier.errors import ClassifierError
from classifier.temporal.failures import as_application_error
from classifier.values import JSON


def happened(
    kind: EventKind,
    facts: Mapping[str, JSON],
    *,
    tenant: str,
    at: str,
    actor: str | None = None,
    decision_id: str | None = None,
) -> HistoryEvent:
    """The event of the running activity, under an id that all its attempts share.

    Args:
        kind: What happened.
        facts: What there is to say of it.
        tenant: Whose event it is.
        at: ISO 8601; the same for every attempt.
        actor: Who did it.
        decision_id: The decision it follows.
    """
    info = activity.info()
    workflow_id, run_id = info.workflow_id or "", info.workflow_run_id or ""
    return HistoryEvent(
        event_id=event_id_of(tenant, kind, workflow_id, run_id, info.activity_id),
        at=datetime.fromisoformat(at),
        tenant=tenant,
        kind=kind,
        workflow_id=workflow_id,
        run_id=run_id,
        decision_id=None if decision_id is None else uuid.UUID(decision_id),
        actor=actor,
        body=facts,
    )


async def keep(store: EventStore, event: HistoryEvent) -> None:
    """Writes it into the history.

    Raises:
        ApplicationError: The store does not take it; Temporal tries again.
    """
    try:
        await store.record_events([event])
    except ClassifierError as error:
        raise as_application_error(error) from None
