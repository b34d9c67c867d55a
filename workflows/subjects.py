"""One workflow per subject that events are about: gathers them, keeps their order, stops loops.

An older state never follows a newer one, a burst becomes one run that sees the latest state, and a loop
becomes one run now and then. It ends when nothing has come for a while; what has to outlive it is in the
history, where the next one asks.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any, Literal

from temporalio import workflow
from temporalio.common import WorkflowIDReusePolicy
from temporalio.exceptions import WorkflowAlreadyStartedError
from temporalio.workflow import ChildWorkflowHandle, ParentClosePolicy

from activities.subject_messages import APPLY, NOTE, Apply, Note, Version
from classifier.context import TENANT_KEY
from classifier.values import digest
from workflows.messages import TRIAGE, TriageRequest, TriageStatus, triage_workflow_id
from workflows.options import RECORD_ATTEMPT, RECORD_RETRY
from workflows.subject_messages import DEAD, OFFER, SUBJECT, Offer, SubjectRequest

IDLE = timedelta(minutes=2)
MINUTE = timedelta(minutes=1)
SETTLES_WITHIN = timedelta(seconds=30)
"""How long a newer state waits for the run before it; one that waits for a person holds up nothing."""
MAX_MERGED = 500
MAX_MERGED_CHARACTERS = 32_000
"""With more, a run starts at once: the ids travel in its request context."""
SEEN = 500
RUNS_PER_HISTORY = 500

MERGED_KEY = "merged_events"
SUBJECT_KEY = "subject"


@workflow.defn(name=SUBJECT)
class SubjectWorkflow:
    """Turns the events of one subject into runs, one after the other."""

    @workflow.init
    def __init__(self, request: SubjectRequest) -> None:
        self._subject = request.subject
        self._newest: Version | None = request.newest
        self._latest: Offer | None = request.latest
        self._merged = list(request.merged)
        self._began = datetime.fromisoformat(request.began) if request.began else workflow.now()
        self._arrived = workflow.now()
        self._stale = list(request.stale)
        self._seen = list(request.seen)
        self._starts = [datetime.fromisoformat(start) for start in request.starts]
        self._run: ChildWorkflowHandle[Any, TriageStatus] | None = None
        self._runs = 0
        self._dead: str | None = None

    @workflow.run
    async def run(self, request: SubjectRequest) -> None:
        """Ends when nothing has come for a while."""
        del request
        while await self._something_comes():
            if self._latest is not None:
                await self._quiet()
                await self._wait_for_the_run_before()
                await self._wait_out_a_loop()
                await self._decide()
            await self._note_what_is_stale()
            if self._runs >= RUNS_PER_HISTORY or workflow.info().is_continue_as_new_suggested():
                workflow.continue_as_new(self._carried())

    @workflow.signal(name=OFFER)
    def offer(self, offer: Offer) -> None:
        """Takes an event in: as the latest state, as one merged into it, or as one that is too late."""
        event_id = offer.event["id"]
        if event_id in self._merged or event_id in self._stale or digest(event_id) in self._seen:
            return
        if offer.version is not None and offer.version.is_older_than(self._newest):
            self._stale.append(event_id)
            return
        self._arrived = workflow.now()
        self._merged.append(event_id)
        if self._latest is None:
            self._began = workflow.now()
        elif offer.version is not None and offer.version.is_older_than(self._latest.version):
            self._stale.append(event_id)
            return
        self._latest = offer

    @workflow.signal(name=DEAD)
    def dead(self, run: str) -> None:
        """A run of ours cannot handle its event for now; nobody waits for it any longer."""
        self._dead = run

    async def _something_comes(self) -> bool:
        return await _within(IDLE, lambda: self._latest is not None or bool(self._stale))

    async def _quiet(self) -> None:
        """Until nothing has come for a while, or the first event has waited long enough."""
        while self._latest is not None and not self._is_full():
            quiet = self._arrived + timedelta(seconds=self._latest.quiet)
            longest = self._began + timedelta(seconds=self._latest.longest)
            left = min(quiet, longest) - workflow.now()
            if left <= timedelta(0):
                return
            await _within(left, self._is_full)

    def _is_full(self) -> bool:
        return len(self._merged) >= MAX_MERGED or sum(map(len, self._merged)) >= MAX_MERGED_CHARACTERS

    async def _wait_for_the_run_before(self) -> None:
        run = self._run
        if run is not None:
            await _within(SETTLES_WITHIN, lambda: run.done() or run.id == self._dead)

    async def _wait_out_a_loop(self) -> None:
        """Holds everything back where there were too many runs within a minute; nothing is lost."""
        assert self._latest is not None
        cap = self._latest.runs_a_minute
        self._starts = [start for start in self._starts if workflow.now() - start < MINUTE]
        if len(self._starts) < cap:
            return
        await self._note("loop", list(self._merged), {"runs_a_minute": cap})
        await workflow.sleep(self._starts[-cap] + MINUTE - workflow.now())

    async def _decide(self) -> None:
        """Starts the run for the latest state, unless the history knows of a newer one."""
        latest, merged = self._latest, self._merged
        assert latest is not None
        self._latest, self._merged = None, []
        self._remember(merged)
        event = latest.event
        run = triage_workflow_id(self._subject.tenant, event["source"], event["id"])
        applies = await workflow.execute_activity(
            APPLY,
            Apply(self._subject, event["id"], latest.version, merged, run, workflow.now().isoformat()),
            result_type=bool,
            start_to_close_timeout=RECORD_ATTEMPT,
            retry_policy=RECORD_RETRY,
        )
        if applies:
            self._newest = latest.version or self._newest
            await self._start(latest, merged, run)

    async def _start(self, latest: Offer, merged: list[str], run: str) -> None:
        tenant = self._subject.tenant
        context = {TENANT_KEY: tenant, SUBJECT_KEY: self._subject.name, MERGED_KEY: merged}
        request = TriageRequest(latest.event, self._subject.playbook, tenant, context)
        self._starts.append(workflow.now())
        self._runs += 1
        try:
            self._run = await workflow.start_child_workflow(
                TRIAGE,
                request,
                id=run,
                result_type=TriageStatus,
                parent_close_policy=ParentClosePolicy.ABANDON,
                id_reuse_policy=WorkflowIDReusePolicy.REJECT_DUPLICATE,
            )
            self._run.add_done_callback(_look_at_the_end)
        except WorkflowAlreadyStartedError:
            workflow.logger.info("the event has a run already")

    async def _note_what_is_stale(self) -> None:
        stale, self._stale = self._stale, []
        if stale:
            await self._note("stale", stale, {"newest": self._newest.value if self._newest else None})
            self._remember(stale)

    def _remember(self, events: list[str]) -> None:
        self._seen = [*self._seen, *map(digest, events)][-SEEN:]

    async def _note(self, kind: Literal["stale", "loop"], events: list[str], facts: dict[str, Any]) -> None:
        note = Note(self._subject, kind, events, workflow.now().isoformat(), facts)
        await workflow.execute_activity(
            NOTE, note, start_to_close_timeout=RECORD_ATTEMPT, retry_policy=RECORD_RETRY
        )

    def _carried(self) -> SubjectRequest:
        return SubjectRequest(
            subject=self._subject,
            newest=self._newest,
            latest=self._latest,
            merged=self._merged,
            began=self._began.isoformat(),
            stale=self._stale,
            seen=self._seen,
            starts=[start.isoformat() for start in self._starts],
        )


async def _within(limit: timedelta, condition: Callable[[], bool]) -> bool:
    """Waits for the condition; whether it came true in time."""
    try:
        await workflow.wait_condition(condition, timeout=limit)
    except TimeoutError:
        return condition()
    return True


def _look_at_the_end(run: ChildWorkflowHandle[Any, TriageStatus]) -> None:
    """However a run ends, that is its own affair; a failure nobody looks at would be logged as ours."""
    if not run.cancelled():
        run.exception()
