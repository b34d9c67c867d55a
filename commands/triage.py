"""`classifier triage`: lines of events in, decided and delivered or waiting for a person, counted."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from temporalio.client import Client, WorkflowExecutionDescription, WorkflowExecutionStatus
from temporalio.service import RPCError, RPCStatusCode

from classifier.audit.history import History
from classifier.audit.waiting import Settled
from classifier.errors import ClassifierError
from classifier.values import JSON, State
from commands.reading import batches
from workflows.events import Choosing, Incoming, Rejected, read_event
from workflows.intake import Intake, Started

BATCH = 50
IN_FLIGHT = 300
POLL = 0.2
STALLED_AFTER = 15.0


class RunsEndedError(ClassifierError):
    """Runs ended without a result: terminated, failed or cancelled by somebody."""

    code = "RUNS_ENDED"


class Progress(Protocol):
    """Where progress is shown."""

    def advance(self, done: int) -> None:
        """So many more lines are done."""
        ...


@dataclass(kw_only=True)
class Summary:
    """What became of a file of events.

    Attributes:
        events: Lines that were read.
        started: New runs.
        repeats: Events that had a run already.
        resumed: Those of them whose run was still under way and has been followed to its end.
        rejected: Lines that hold no event.
        routes: Events delivered meanwhile, by route.
        reviews: Events that wait for a person.
        reasons: Why they wait; one event may have several reasons.
        dead_letters: Events that could not be handled, by why.
        dropped: Such events that somebody has given up meanwhile.
        decisions: Rows in the history for the runs that were followed.
        seconds: From the first line to the last settled event.
    """

    events: int = 0
    started: int = 0
    repeats: int = 0
    resumed: int = 0
    rejected: list[Rejected] = field(default_factory=list[Rejected])
    routes: Counter[str] = field(default_factory=Counter[str])
    reviews: int = 0
    reasons: Counter[str] = field(default_factory=Counter[str])
    dead_letters: Counter[str] = field(default_factory=Counter[str])
    dropped: int = 0
    decisions: int = 0
    seconds: float = 0.0

    @property
    def per_second(self) -> float:
        """New events a second."""
        return self.started / self.seconds if self.seconds else 0.0

    def to_json(self) -> dict[str, JSON]:
        """For machines."""
        return {
            "events": self.events,
            "started": self.started,
            "repeats": self.repeats,
            "resumed": self.resumed,
            "rejected": [{"line": rejected.line, "reason": rejected.reason} for rejected in self.rejected],
            "routes": dict(self.routes.most_common()),
            "reviews": self.reviews,
            "reasons": dict(self.reasons.most_common()),
            "dead_letters": dict(self.dead_letters.most_common()),
            "dropped": self.dropped,
            "decisions": self.decisions,
            "seconds": round(self.seconds, 3),
            "events_per_second": round(self.per_second, 1),
        }


class TriageRun:
    """Feeds events to Temporal, a bounded number at a time, and follows them in the history.

    Args:
        intakes: Start runs, by the key of the playbook that decides.
        history: Says how far they are.
        client: Asked about runs that do not move.
        tenant: Whose events they are.
        choose: Which playbook decides on an event.
        progress: Where progress is shown.
        tell: Is given a line for people where nothing moves.
        patience: Seconds in which nothing moves before that is looked into.
    """

    def __init__(
        self,
        *,
        intakes: Mapping[str, Intake],
        history: History,
        client: Client,
        tenant: str,
        choose: Choosing,
        progress: Progress,
        tell: Callable[[str], None],
        patience: float = STALLED_AFTER,
    ) -> None:
        self._intakes = intakes
        self._history = history
        self._client = client
        self._tenant = tenant
        self._choose = choose
        self._progress = progress
        self._tell = tell
        self._patience = patience
        self._open: set[str] = set()
        self._moved = 0.0
        self.summary = Summary()

    async def run(self, lines: Iterable[bytes]) -> Summary:
        """Returns when every event is delivered, waits for a person, or cannot be handled.

        Raises:
            RunsEndedError: Some runs were ended by somebody.
            StoreUnavailable: The history does not answer.
        """
        began = self._moved = time.monotonic()
        async for batch in batches(lines, BATCH):
            await self._accept(list(self._read(batch)))
            while len(self._open) > IN_FLIGHT - BATCH:
                await self._follow()
        while self._open:
            await self._follow()
        self.summary.seconds = time.monotonic() - began
        return self.summary

    def _read(self, batch: Sequence[tuple[int, bytes]]) -> Iterator[Incoming]:
        for number, line in batch:
            self.summary.events += 1
            read = read_event(line, number, self._tenant, self._state_of)
            if isinstance(read, Rejected):
                self.summary.rejected.append(read)
                self._progress.advance(1)
            else:
                yield read

    async def _accept(self, incoming: list[Incoming]) -> None:
        repeats: list[Started] = []
        for started in await self._taken_in(incoming):
            if started.kind == "new":
                self.summary.started += 1
                self._open.add(started.workflow_id)
            else:
                repeats.append(started)
        self.summary.repeats += len(repeats)
        alone = {started.workflow_id for started in repeats if not started.gathered}
        unfinished = await self._unfinished(alone - self._open)
        self.summary.resumed += len(unfinished)
        self._open |= unfinished
        self._progress.advance(len(repeats) - len(unfinished))

    async def _taken_in(self, incoming: list[Incoming]) -> list[Started]:
        by_playbook: dict[str, list[Incoming]] = {}
        for each in incoming:
            by_playbook.setdefault(self._choose(each.event["type"])[0], []).append(each)
        return [
            started
            for key, events in by_playbook.items()
            for started in await self._intakes[key].accept(events)
        ]

    def _state_of(self, event: Mapping[str, Any]) -> State:
        return self._choose(event["type"])[1].state_of(event.get("data"))

    async def _unfinished(self, repeats: set[str]) -> set[str]:
        """Runs of an earlier time that was cut short; this time they are followed to their end."""
        known = await self._history.settled(self._tenant, repeats)
        unsettled = sorted(run for run in repeats if run not in known or not _is_settled(known[run]))
        described = await asyncio.gather(*map(self._described, unsettled))
        return {run.id for run in described if run and run.status == WorkflowExecutionStatus.RUNNING}

    async def _described(self, workflow_id: str) -> WorkflowExecutionDescription | None:
        """None where Temporal has forgotten the run."""
        try:
            return await self._client.get_workflow_handle(workflow_id).describe()
        except RPCError as error:
            if error.status == RPCStatusCode.NOT_FOUND:
                return None
            raise

    async def _follow(self) -> None:
        known = await self._history.settled(self._tenant, list(self._open))
        settled = {run: where for run, where in known.items() if _is_settled(where)}
        for workflow_id, where in settled.items():
            self._count(where)
            self._open.discard(workflow_id)
        if settled:
            self._moved = time.monotonic()
            self._progress.advance(len(settled))
        else:
            await self._look_for_ended()
            await asyncio.sleep(POLL)

    def _count(self, where: Settled) -> None:
        self.summary.decisions += where.action is not None
        if where.delivered:
            self.summary.routes[where.route or "-"] += 1
        elif where.dead is not None:
            self.summary.dead_letters[where.dead] += 1
        elif where.dropped:
            self.summary.dropped += 1
        else:
            self.summary.reviews += 1
            self.summary.reasons.update(where.reasons)

    async def _look_for_ended(self) -> None:
        if time.monotonic() - self._moved < self._patience:
            return
        self._moved = time.monotonic()
        followed = sorted(self._open)
        described = await asyncio.gather(*map(self._described, followed))
        good = {WorkflowExecutionStatus.RUNNING, WorkflowExecutionStatus.COMPLETED}
        alive = {run.id: run.task_queue for run in described if run and run.status in good}
        lost = [run for run in followed if run not in alive]
        if lost:
            raise RunsEndedError(f"{len(lost)} runs ended without a delivery, the first is {lost[0]}")
        first = followed[0]
        self._tell(
            f"{len(followed)} events are under way and nothing has moved for {self._patience:.0f} s,"
            f" the first is {first} on task queue {alive[first]!r}; does a worker poll that,"
            " with this database, and do its models answer? After Ctrl-C the same command goes on with them"
        )


def _is_settled(where: Settled) -> bool:
    return where.delivered or where.waiting or where.dead is not None or where.dropped
