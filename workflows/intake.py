"""Starts one triage workflow per event, each event once. The client's side; no workflow imports this.

Identity is tenant, source and event id. Temporal refuses a second run while it remembers the first; the
history remembers for good, since a run does not close before it wrote its event down itself.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Literal, TypeAlias

from temporalio.client import Client
from temporalio.common import Priority, WorkflowIDConflictPolicy, WorkflowIDReusePolicy
from temporalio.exceptions import WorkflowAlreadyStartedError
from temporalio.service import RPCError

from activities.subject_messages import Subject, version_of
from classifier.audit.records import AcceptedEvent, SourceEvent
from classifier.audit.store import EventStore
from classifier.context import TENANT_KEY
from classifier.values import digest
from workflows.events import Incoming
from workflows.messages import TRIAGE, TriageRequest, TriageStatus, triage_workflow_id
from workflows.subject_messages import (
    OFFER,
    SUBJECT,
    SUBJECT_PREFIX,
    Offer,
    SubjectRequest,
    subject_workflow_id,
)

Kind: TypeAlias = Literal["new", "repeat"]

MAX_FAIRNESS_KEY = 64
"""Bytes that Temporal takes."""


@dataclass(frozen=True, slots=True)
class Started:
    """What became of an event: a new run, or the run it already has.

    Attributes:
        source: The event's identity.
        workflow_id: Of its own run, or of its subject's workflow where events are gathered.
        kind: "new", or "repeat" where the event was known already.
        run_id: The first run's id, also when that is long gone.
    """

    source: SourceEvent
    workflow_id: str
    kind: Kind
    run_id: str = ""

    @property
    def gathered(self) -> bool:
        """Whether the workflow of its subject has it, which does not end with it."""
        return self.workflow_id.startswith(SUBJECT_PREFIX)


@dataclass(frozen=True, slots=True)
class Gathering:
    """How events of one subject are brought into order and together.

    Attributes:
        quiet: A run starts when nothing has come for so long.
        longest: No event waits longer than this.
        runs_a_minute: More than these are taken for a loop.
    """

    quiet: timedelta
    longest: timedelta
    runs_a_minute: int


class Intake:
    """Accepts events for one playbook.

    Args:
        client: Where workflows are started.
        store: Where accepted events are remembered.
        task_queue: The queue the workers poll.
        playbook: What decides on the events.
        gathering: Brings events with a `subject` to the workflow of that subject; None starts a run for each.
    """

    def __init__(
        self,
        client: Client,
        store: EventStore,
        *,
        task_queue: str,
        playbook: str,
        gathering: Gathering | None = None,
    ) -> None:
        self._client = client
        self._store = store
        self._task_queue = task_queue
        self._playbook = playbook
        self._gathering = gathering

    async def accept(self, incoming: Sequence[Incoming]) -> list[Started]:
        """Starts what is new, all at the same time; the runs exist durably when this returns.

        Raises:
            StoreUnavailable: The store did not answer; some runs may exist, accepting again is safe.
            temporalio.service.RPCError: Temporal did not answer; likewise.
        """
        accepted = await self.attempt(incoming)
        started = [each for each in accepted if isinstance(each, Started)]
        for each in accepted:
            if isinstance(each, RPCError):
                raise each
        return started

    async def attempt(self, incoming: Sequence[Incoming]) -> list[Started | RPCError]:
        """As `accept`, with the error in the place of each event that Temporal did not take.

        Raises:
            StoreUnavailable: The store did not answer; some runs may exist, accepting again is safe.
        """
        unique = {event.source: event for event in reversed(incoming)}
        known = dict(await self._store.accepted(list(unique)))
        fresh = [event for source, event in reversed(unique.items()) if source not in known]
        results = await asyncio.gather(*(self._take_in(event) for event in fresh))
        taken = [result for result in results if not isinstance(result, RPCError)]
        await self._store.accept([accepted for accepted, _ in taken])
        known |= {accepted.event: accepted for accepted, _ in taken}
        gathered = [
            accepted.event for accepted, _ in taken if accepted.workflow_id.startswith(SUBJECT_PREFIX)
        ]
        if gathered:  # another may have been first, and its answer is everybody's
            known |= await self._store.accepted(gathered)
        failed = {
            event.source: result
            for event, result in zip(fresh, results, strict=True)
            if isinstance(result, RPCError)
        }
        kinds: dict[SourceEvent, Kind] = {accepted.event: kind for accepted, kind in taken}
        return [failed.get(event.source) or _seen(known[event.source], kinds) for event in incoming]

    async def _take_in(self, incoming: Incoming) -> tuple[AcceptedEvent, Kind] | RPCError:
        subject = incoming.event.get("subject")
        try:
            if self._gathering is None or not subject:
                return await self._start(incoming)
            return await self._offer(incoming, subject, self._gathering)
        except RPCError as error:
            return error

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
                priority=_share_of(source.tenant),
            )
        except WorkflowAlreadyStartedError as error:
            return AcceptedEvent(source, workflow_id, error.run_id or "", datetime.now(UTC)), "repeat"
        return AcceptedEvent(source, workflow_id, handle.result_run_id or "", datetime.now(UTC)), "new"

    async def _offer(self, incoming: Incoming, name: str, gathering: Gathering) -> tuple[AcceptedEvent, Kind]:
        """Signals the subject's workflow, which is started where there is none, in one call."""
        source = incoming.source
        subject = Subject(source.tenant, self._playbook, source.source, name)
        offer = Offer(
            incoming.event,
            version_of(incoming.event),
            gathering.quiet.total_seconds(),
            gathering.longest.total_seconds(),
            gathering.runs_a_minute,
        )
        handle = await self._client.start_workflow(
            SUBJECT,
            SubjectRequest(subject),
            id=subject_workflow_id(subject),
            task_queue=self._task_queue,
            id_conflict_policy=WorkflowIDConflictPolicy.USE_EXISTING,
            start_signal=OFFER,
            start_signal_args=[offer],
            priority=_share_of(source.tenant),
        )
        return AcceptedEvent(source, handle.id, handle.result_run_id or "", datetime.now(UTC)), "new"


def _seen(accepted: AcceptedEvent, kinds: dict[SourceEvent, Kind]) -> Started:
    """The first line of a new event is new; whatever comes after it is a repeat."""
    source = accepted.event
    kind = kinds.get(source, "repeat")
    kinds[source] = "repeat"
    return Started(source, accepted.workflow_id, kind, accepted.run_id)


def _share_of(tenant: str) -> Priority:
    """Where much is waiting, each tenant has its share of the workers."""
    key = tenant if len(tenant.encode("utf-8", "replace")) <= MAX_FAIRNESS_KEY else digest(tenant)
    return Priority(fairness_key=key)
