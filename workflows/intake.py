"""Starts one triage workflow per event, each event once. The client's side; no workflow imports this.

Identity is tenant, source and event id. Temporal refuses a second run while it remembers the first; the
history remembers for good, since a run does not close before it wrote its event down itself.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Literal, TypeAlias

from temporalio.client import Client
from temporalio.common import WorkflowIDReusePolicy
from temporalio.exceptions import WorkflowAlreadyStartedError

from classifier.audit.records import AcceptedEvent, SourceEvent
from classifier.audit.store import EventStore
from classifier.context import TENANT_KEY
from workflows.events import Incoming
from workflows.messages import TRIAGE, TriageRequest, TriageStatus, triage_workflow_id

Kind: TypeAlias = Literal["new", "repeat"]


@dataclass(frozen=True, slots=True)
class Started:
    """What became of an event: a new run, or the run it already has."""

    source: SourceEvent
    workflow_id: str
    kind: Kind


class Intake:
    """Accepts events for one playbook.

    Args:
        client: Where workflows are started.
        store: Where accepted events are remembered.
        task_queue: The queue the workers poll.
        playbook: What decides on the events.
    """

    def __init__(self, client: Client, store: EventStore, *, task_queue: str, playbook: str) -> None:
        self._client = client
        self._store = store
        self._task_queue = task_queue
        self._playbook = playbook

    async def accept(self, incoming: Sequence[Incoming]) -> list[Started]:
        """Starts what is new, all at the same time; the runs exist durably when this returns.

        Raises:
            StoreUnavailable: The store did not answer; some runs may exist, accepting again is safe.
            temporalio.service.RPCError: Temporal did not answer; likewise.
        """
        unique = {event.source: event for event in reversed(incoming)}
        known = await self._store.accepted(list(unique))
        fresh = [event for source, event in reversed(unique.items()) if source not in known]
        started = await asyncio.gather(*(self._start(event) for event in fresh))
        await self._store.accept([accepted for accepted, _ in started])
        kinds: dict[SourceEvent, Kind] = {accepted.event: kind for accepted, kind in started}
        return [self._seen(event, kinds) for event in incoming]

    async def _start(self, incoming: Incoming) -> tuple[AcceptedEvent, Kind]:
        source = incoming.source
        workflow_id = triage_workflow_id(source.tenant, source.source, source.id)
        request = TriageRequest(incoming.event, self._playbook, source.tenant, {TENANT_KEY: source.tenant})
        try:
            handle = await self._client.start_workflow(
                TRIAGE,
                request,
                id=workflow_id,
                task_queue=self._task_queue,
                id_reuse_policy=WorkflowIDReusePolicy.REJECT_DUPLICATE,
                result_type=TriageStatus,
                request_eager_start=True,
            )
        except WorkflowAlreadyStartedError as error:
            return AcceptedEvent(source, workflow_id, error.run_id or "", datetime.now(UTC)), "repeat"
        return AcceptedEvent(source, workflow_id, handle.result_run_id or "", datetime.now(UTC)), "new"

    def _seen(self, event: Incoming, kinds: dict[SourceEvent, Kind]) -> Started:
        """The first line of a new event is new; whatever comes after it is a repeat."""
        source = event.source
        kind = kinds.get(source, "repeat")
        kinds[source] = "repeat"
        return Started(source, triage_workflow_id(source.tenant, source.source, source.id), kind)
