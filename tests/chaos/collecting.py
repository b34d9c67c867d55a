"""Collects the facts after a run: every history of Temporal, every row of the database, every log."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar, cast

from temporalio.api.enums.v1 import EventType, WorkflowTaskFailedCause
from temporalio.api.history.v1 import HistoryEvent as TemporalEvent
from temporalio.client import Client, WorkflowExecution

from activities.chat_messages import Event
from classifier.answers import ChoiceAnswer
from classifier.audit.history import History
from classifier.audit.postgres import PostgresStore
from classifier.audit.query import DecisionQuery
from classifier.audit.records import SourceEvent
from classifier.decision import Decision
from classifier.temporal.messages import DECIDE, RECORD
from tests.agents.support import shown
from tests.chaos.facts import Branched, Happened, Log, Row, Run, Said, Sent
from tests.chaos.traffic import SOURCE, said_of
from workflows.agent_client import Thread
from workflows.messages import STATUS, TRIAGE, TriageStatus
from workflows.readers import Readers

T = TypeVar("T")
R = TypeVar("R")
AT_ONCE = 16
PAGE = 1000
TELLING = {DECIDE, RECORD}
_SCHEDULED = EventType.EVENT_TYPE_ACTIVITY_TASK_SCHEDULED
_COMPLETED = EventType.EVENT_TYPE_ACTIVITY_TASK_COMPLETED
_TIMED_OUT = EventType.EVENT_TYPE_WORKFLOW_TASK_TIMED_OUT
_FAILED = EventType.EVENT_TYPE_WORKFLOW_TASK_FAILED
_AT_ODDS = {
    WorkflowTaskFailedCause.WORKFLOW_TASK_FAILED_CAUSE_NON_DETERMINISTIC_ERROR,
    WorkflowTaskFailedCause.WORKFLOW_TASK_FAILED_CAUSE_WORKFLOW_WORKER_UNHANDLED_FAILURE,
}


async def each_of(things: Iterable[T], ask: Callable[[T], Awaitable[R]]) -> list[R]:
    """What is answered about each, a few at a time."""
    room = asyncio.Semaphore(AT_ONCE)

    async def one(thing: T) -> R:
        async with room:
            return await ask(thing)

    return await asyncio.gather(*(one(thing) for thing in things))


async def runs_of(client: Client, queue: str) -> tuple[Run, ...]:
    """Every run of a triage workflow on a queue, as Temporal tells it."""
    query = f"TaskQueue = '{queue}' AND WorkflowType = '{TRIAGE}'"
    found = [execution async for execution in client.list_workflows(query, page_size=PAGE)]
    return tuple(await each_of(found, lambda execution: _run(client, execution)))


async def _run(client: Client, execution: WorkflowExecution) -> Run:
    handle = client.get_workflow_handle(execution.id, run_id=execution.run_id, result_type=TriageStatus)
    described = await handle.describe()
    status = described.status.name if described.status is not None else "UNKNOWN"
    said: TriageStatus | None = None
    if status == "COMPLETED":
        said = await handle.result()
    elif status == "RUNNING":
        said = await handle.query(STATUS, result_type=TriageStatus)
    history = await handle.fetch_history()
    return Run(
        workflow=execution.id,
        run=execution.run_id,
        status=status,
        state=None if said is None else said.state,
        route=None if said is None else said.route,
        decision=None if said is None else said.decision_id,
        branched=tuple(_branched(history.events)),
        lost=sum(event.event_type == _TIMED_OUT for event in history.events),
        broken=tuple(_broken(history.events)),
    )


def _broken(events: Iterable[TemporalEvent]) -> Iterable[str]:
    for event in events:
        if event.event_type == _FAILED:
            cause = event.workflow_task_failed_event_attributes.cause
            if cause in _AT_ODDS:
                yield WorkflowTaskFailedCause.Name(cause).removeprefix("WORKFLOW_TASK_FAILED_CAUSE_")


def _branched(events: Iterable[TemporalEvent]) -> Iterable[Branched]:
    """What the activities that decide told; not what an earlier attempt may have decided otherwise."""
    scheduled: dict[int, str] = {}
    for event in events:
        if event.event_type == _SCHEDULED:
            scheduled[event.event_id] = event.activity_task_scheduled_event_attributes.activity_type.name
        elif event.event_type == _COMPLETED:
            completed = event.activity_task_completed_event_attributes
            if scheduled[completed.scheduled_event_id] in TELLING:
                result: dict[str, Any] = json.loads(completed.result.payloads[0].data)
                if not result.get("unsure"):
                    yield from (_told(each) for each in result["decisions"])


def _told(decided: Mapping[str, Any]) -> Branched:
    branch: Mapping[str, Any] = decided["branch"] or {}
    return Branched(decided["decision_id"], branch.get("action"), branch.get("route"))


async def rows_of(history: History, tenant: str) -> tuple[Row, ...]:
    """Every decision of a tenant."""
    found: list[Row] = []
    cursor: str | None = None
    while True:
        page = await history.page(DecisionQuery(tenant=tenant), PAGE, cursor)
        found += [_row(decision) for decision in page.decisions]
        cursor = page.next_cursor
        if cursor is None:
            return tuple(found)


def _row(decision: Decision) -> Row:
    at, branch = decision.coordinates, decision.branch
    answer = (decision.answers or {}).get("shelf")
    return Row(
        decision=str(decision.decision_id),
        workflow=at.workflow_id,
        place=(at.workflow_id, at.run_id, at.activity_id, decision.ordinal),
        phase=decision.phase,
        text=str(decision.state),
        answer=answer.choice if isinstance(answer, ChoiceAnswer) else None,
        failed=decision.failure is not None,
        outcome=decision.outcome,
        action=None if branch is None else branch.action,
        route=None if branch is None else branch.route,
    )


async def happened_in(history: History, tenant: str, workflows: Iterable[str]) -> tuple[Happened, ...]:
    """Everything else that the history has of these workflows."""
    found = await each_of(workflows, lambda workflow: history.events(tenant, workflow))
    return tuple(
        Happened(
            event.workflow_id,
            event.kind,
            str(event.event_id),
            cast("str | None", event.body.get("route")),
            event.actor,
        )
        for events in found
        for event in events
    )


async def remembered(store: PostgresStore, tenant: str, sent: Sequence[Sent]) -> dict[str, str]:
    """What the database knows of events: the workflow of each."""
    known: dict[str, str] = {}
    for begin in range(0, len(sent), PAGE):
        names = [SourceEvent(tenant, SOURCE, each.event) for each in sent[begin : begin + PAGE]]
        accepted = await store.accepted(names)
        known |= {source.id: each.workflow_id for source, each in accepted.items()}
    return known


async def kept_in(threads: Iterable[Thread]) -> tuple[Said, ...]:
    """Every turn that threads keep."""
    found = await each_of(threads, lambda thread: thread.transcript())
    names = [thread.workflow_id for thread in threads]
    return tuple(said_of(name, turn) for name, turns in zip(names, found, strict=True) for turn in turns)


async def seen_in(client: Client, kept: Sequence[Said]) -> dict[tuple[str, str], list[Event]]:
    """The events of every turn, as a reader gets them who comes now."""
    readers = Readers(client)
    seen: dict[tuple[str, str], list[Event]] = {}
    try:
        for thread in sorted({said.thread for said in kept}):
            missing = {said.message for said in kept if said.thread == thread}
            async for each in readers.events(thread):
                turn = each.event["turn"]
                seen.setdefault((thread, turn), []).append(each.event)
                if each.event["type"] == "ended":
                    missing.discard(turn)
                if not missing:
                    break
    finally:
        await readers.aclose()
    return seen


def endings_of(seen: Mapping[tuple[str, str], list[Event]]) -> dict[tuple[str, str], int]:
    """How many terminal events each turn had."""
    return {name: sum(event["type"] == "ended" for event in events) for name, events in seen.items()}


def screens_of(seen: Mapping[tuple[str, str], list[Event]]) -> dict[tuple[str, str], str]:
    """What is on the screen of each turn's reader at the end."""
    return {name: shown(events) for name, events in seen.items()}


def log_of(name: str, path: Path, forbidden: Mapping[str, str]) -> Log:
    """What a process wrote, and which of the forbidden things are in it."""
    text = path.read_bytes() if path.exists() else b""
    return Log(name, len(text), tuple(what for what, words in forbidden.items() if words.encode() in text))
