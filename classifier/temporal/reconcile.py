"""What Temporal's histories hold and the store does not: what runs that were ended left behind.

A run does not close before its records are in, unless it is terminated or times out. What it had decided
while the store was away is then in its history alone: in results of `classifier.decide`, in inputs of
`classifier.record`, and wherever else the caller says that decisions travel. Nor could it say that it ended,
so that nobody waits for it any more.
"""

from __future__ import annotations

import uuid
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, TypeAlias

from temporalio.api.common.v1 import Payloads
from temporalio.api.history.v1 import HistoryEvent
from temporalio.client import Client, WorkflowExecution
from temporalio.converter import DataConverter
from temporalio.service import RPCError, RPCStatusCode

from classifier.audit.records import EventKind, event_id_of
from classifier.audit.records import HistoryEvent as Happened
from classifier.audit.store import DecisionStore, EventStore
from classifier.decision import Decision
from classifier.decision_json import decision_from_json
from classifier.errors import ClassifierError, StoreUnavailable
from classifier.temporal.messages import DECIDE, RECORD, DecideRequest, DecideResult, RecordRequest
from classifier.temporal.travel import unpacked

UNREADABLE = "UNREADABLE"
"""Why a run could not be looked at, where no error of ours says it."""

ENDED_EARLY = ("Terminated", "TimedOut", "Failed")
STOP: EventKind = "stop"

_ENDS = {
    "workflow_execution_terminated_event_attributes": "terminated",
    "workflow_execution_timed_out_event_attributes": "timed_out",
    "workflow_execution_failed_event_attributes": "failed",
}

Bodies: TypeAlias = Iterable[Mapping[str, Any]]
Reading: TypeAlias = Callable[[Any], Bodies]
"""From a value in a history to the decisions in it, whole, in JSON."""
TenantOf: TypeAlias = Callable[[Any], str]
"""From a workflow's input to whose it is."""


@dataclass(frozen=True, slots=True)
class Carriers:
    """What is looked for besides what our own activities left.

    Attributes:
        results: Activities, by type, whose results hold decisions.
        signals: Signals, by name, whose input holds decisions.
        stops: Workflows, by type, whose end is to be on record, since somebody may wait for them.
    """

    results: Mapping[str, Reading] = field(default_factory=dict[str, Reading])
    signals: Mapping[str, Reading] = field(default_factory=dict[str, Reading])
    stops: Mapping[str, TenantOf] = field(default_factory=dict[str, TenantOf])


@dataclass(frozen=True, slots=True)
class End:
    """How a run ended whose end is to be on record."""

    tenant: str
    how: str
    at: datetime


@dataclass(frozen=True, slots=True)
class Left:
    """What a run left behind.

    Attributes:
        decisions: Those in its history; the store may have them all.
        lost: Failures that were to be recorded for activities that had died, and were not.
        end: How it ended, where that is to be on record.
    """

    decisions: tuple[Decision, ...] = ()
    lost: int = 0
    end: End | None = None


@dataclass(frozen=True, slots=True)
class Reconciled:
    """What became of one run.

    Attributes:
        workflow_id: The run.
        run_id: The run.
        found: Decisions that its history holds as not yet recorded.
        missing: Those among them that the store did not have; they are there now, unless nothing was to be
            changed.
        lost: As `Left` says.
        stopped: Whether its end was not on record; it is now, unless nothing was to be changed.
        problem: Why it could not be reconciled; the code of an error.
    """

    workflow_id: str
    run_id: str
    found: int = 0
    missing: tuple[uuid.UUID, ...] = ()
    lost: int = 0
    stopped: bool = False
    problem: str | None = None


class Reconciler:
    """Brings decisions from histories into a store; to do it again is safe, the first that is stored stays.

    Args:
        client: Its data converter reads the histories, encrypted ones too.
        store: Where decisions belong.
        carriers: What else is looked for.
        events: Where the ends of runs belong; None where they are nobody's business.
        dry_run: Only says what is missing.
    """

    def __init__(
        self,
        client: Client,
        store: DecisionStore,
        carriers: Carriers = Carriers(),
        *,
        events: EventStore | None = None,
        dry_run: bool = False,
    ) -> None:
        self._client = client
        self._store = store
        self._carriers = carriers
        self._events = events
        self._dry_run = dry_run

    async def count(self, since: datetime | None) -> int:
        """How many runs ended early, as far as Temporal's visibility knows yet."""
        return (await self._client.count_workflows(ended_early(since))).count

    def runs(self, since: datetime | None) -> AsyncIterator[WorkflowExecution]:
        """Runs that ended early at or after this time, as far as Temporal remembers."""
        return self._client.list_workflows(ended_early(since))

    async def reconcile(self, workflow_id: str, run_id: str) -> Reconciled:
        """Stores what one run decided and could not record.

        Raises:
            StoreUnavailable: The store did not answer in time.
        """
        try:
            handle = self._client.get_workflow_handle(workflow_id, run_id=run_id)
            events = [event async for event in handle.fetch_history_events()]
            left = await left_in(events, self._client.data_converter, self._carriers)
            missing = await self._missing(left.decisions)
            if not self._dry_run and missing:
                await self._store.record(missing)
            stopped = left.end is not None and await self._stopped(workflow_id, run_id, left.end)
        except StoreUnavailable:
            raise
        except ClassifierError as error:
            return Reconciled(workflow_id, run_id, problem=error.code)
        except (RuntimeError, TypeError, ValueError, LookupError):  # what converters raise
            return Reconciled(workflow_id, run_id, problem=UNREADABLE)
        except RPCError as error:
            if error.status != RPCStatusCode.NOT_FOUND:
                raise
            return Reconciled(workflow_id, run_id)  # its retention ended meanwhile
        ids = tuple(decision.decision_id for decision in missing)
        return Reconciled(workflow_id, run_id, len(left.decisions), ids, left.lost, stopped)

    async def _stopped(self, workflow_id: str, run_id: str, end: End) -> bool:
        """Sees to it that the end is on record; whether it was not."""
        if self._events is None:
            return False
        known = await self._events.last_facts(end.tenant, workflow_id, STOP)
        if known is not None and known.get("run") == run_id:
            return False
        if not self._dry_run:
            stop = Happened(
                event_id=event_id_of(end.tenant, STOP, workflow_id, run_id),
                at=end.at,
                tenant=end.tenant,
                kind=STOP,
                workflow_id=workflow_id,
                run_id=run_id,
                body={"state": end.how, "run": run_id},
            )
            await self._events.record_events([stop])
        return True

    async def _missing(self, decisions: Sequence[Decision]) -> list[Decision]:
        places: dict[tuple[str, datetime], list[Decision]] = defaultdict(list)
        for decision in decisions:
            places[decision.tenant, decision.decided_at].append(decision)
        missing: list[Decision] = []
        for (tenant, at), group in places.items():
            stored = await self._store.find(tenant, at, [decision.decision_id for decision in group])
            missing += [decision for decision in group if decision.decision_id not in stored]
        return missing


def ended_early(since: datetime | None) -> str:
    """The query of such runs."""
    statuses = ", ".join(f"'{status}'" for status in ENDED_EARLY)
    query = f"ExecutionStatus IN ({statuses})"
    if since is None:
        return query
    return f"{query} AND CloseTime >= '{since.astimezone(UTC).isoformat()}'"


async def left_in(
    events: Iterable[HistoryEvent], converter: DataConverter, carriers: Carriers = Carriers()
) -> Left:
    """What a history holds of decisions that may not be recorded.

    Args:
        events: All of a run's, in order.
        converter: What reads its payloads.
        carriers: What else carries decisions.
    """
    reader = _Reader(converter, carriers)
    for event in events:
        await reader.read(event)
    return Left(tuple(reader.decisions.values()), len(reader.lost), reader.end)


class _Reader:
    def __init__(self, converter: DataConverter, carriers: Carriers) -> None:
        self._converter = converter
        self._carriers = carriers
        self._scheduled: dict[int, tuple[str, Payloads]] = {}
        self._recording: dict[int, set[uuid.UUID]] = {}
        self.decisions: dict[uuid.UUID, Decision] = {}
        self.lost: set[int] = set()
        self.end: End | None = None
        self._tenant: str | None = None

    async def read(self, event: HistoryEvent) -> None:
        """Takes what an event holds."""
        match event.WhichOneof("attributes"):
            case "activity_task_scheduled_event_attributes":
                scheduled = event.activity_task_scheduled_event_attributes
                await self._read_scheduled(event.event_id, scheduled.activity_type.name, scheduled.input)
            case "activity_task_completed_event_attributes":
                completed = event.activity_task_completed_event_attributes
                await self._read_result(completed.scheduled_event_id, completed.result)
            case "workflow_execution_signaled_event_attributes":
                signaled = event.workflow_execution_signaled_event_attributes
                await self._read_with(self._carriers.signals.get(signaled.signal_name), signaled.input)
            case "workflow_execution_started_event_attributes":
                started = event.workflow_execution_started_event_attributes
                tenant_of = self._carriers.stops.get(started.workflow_type.name)
                if tenant_of is not None:
                    self._tenant = tenant_of(await self._decoded(started.input, None))
            case str(name) if name in _ENDS and self._tenant is not None:
                self.end = End(self._tenant, _ENDS[name], event.event_time.ToDatetime(UTC))
            case _:
                pass

    async def _read_scheduled(self, event_id: int, name: str, given: Payloads) -> None:
        if name != RECORD:
            self._scheduled[event_id] = (name, given)
            return
        request: RecordRequest = await self._decoded(given, RecordRequest)
        self._recording[event_id] = self._take(request.pending)
        if request.lost is not None:
            self.lost.add(event_id)

    async def _read_result(self, scheduled: int, result: Payloads) -> None:
        self.lost.discard(scheduled)
        # What was recorded may have been forgotten since, and must not come back.
        for decision_id in self._recording.pop(scheduled, ()):
            self.decisions.pop(decision_id, None)
        name, given = self._scheduled.pop(scheduled, ("", Payloads()))
        if name != DECIDE:
            await self._read_with(self._carriers.results.get(name), result)
            return
        decided: DecideResult = await self._decoded(result, DecideResult)
        if decided.pending:
            request: DecideRequest = await self._decoded(given, DecideRequest)
            self._take(unpacked(body, request) for body in decided.pending)

    async def _read_with(self, reading: Reading | None, given: Payloads) -> None:
        if reading is not None:
            self._take(reading(await self._decoded(given, None)))

    async def _decoded(self, payloads: Payloads, kind: type[Any] | None) -> Any:
        [value, *_] = await self._converter.decode(payloads.payloads, None if kind is None else [kind])
        return value

    def _take(self, bodies: Bodies) -> set[uuid.UUID]:
        found = [decision_from_json(body) for body in bodies]
        for decision in found:
            self.decisions.setdefault(decision.decision_id, decision)
        return {decision.decision_id for decision in found}


def pending_of(result: Any) -> Collection[Mapping[str, Any]]:
    """The decisions of a result that lists them whole under `pending`."""
    found: Collection[Mapping[str, Any]] = result["pending"]
    return found
