"""One workflow per event: decide, then deliver, or wait for a person and deliver what they chose.

Routes on what `classifier.decide` recorded; no threshold and no policy is in here.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any, assert_never

from temporalio import workflow
from temporalio.exceptions import ActivityError, ApplicationError, is_cancelled_exception

from activities.messages import (
    DELIVER,
    RECORD_REVIEW,
    REQUEST_REVIEW,
    Delivered,
    Delivery,
    ReviewRecord,
    ReviewRequest,
)
from activities.review_messages import NOTE_REVIEW, ReviewEvent, ReviewNote
from classifier.decision import Branch
from classifier.decision_json import branch_from_json
from classifier.temporal.messages import DecideRequest
from classifier.temporal.workflow import decide
from workflows.dead_letters import DEAD_LETTERS, DeadLetters, Fault, fault_in, fault_of
from workflows.messages import (
    CLAIM,
    CLASSIFIER,
    DEADLINE,
    DECIDED,
    RELEASE,
    REVIEW,
    STATUS,
    TRIAGE,
    ReviewChoice,
    ReviewClaim,
    ReviewRelease,
    TriageRequest,
    TriageStatus,
)
from workflows.options import (
    DELIVERY_ATTEMPT,
    DELIVERY_OVERALL,
    DELIVERY_RETRY,
    DELIVERY_SILENCE,
    RECORD_ATTEMPT,
    RECORD_RETRY,
)
from workflows.reviewing import Desk

_STOPS_ARE_RECORDED = "stops-are-recorded"


@workflow.defn(name=TRIAGE)
class TriageWorkflow(DeadLetters):
    """Brings one event to its destination, over a person's desk where the answers are not sure enough."""

    @workflow.init
    def __init__(self, request: TriageRequest) -> None:
        self._request = request
        self._status = TriageStatus("deciding")
        self._desk = Desk()
        self._tries = self._deliveries = 0

    @workflow.run
    async def run(self, request: TriageRequest) -> TriageStatus:
        """Ends when the event is delivered, or dropped."""
        try:
            return await self._triage(request)
        except (asyncio.CancelledError, ActivityError) as error:
            if is_cancelled_exception(error) and workflow.patched(_STOPS_ARE_RECORDED):
                await self._stopped()
            raise

    async def _triage(self, request: TriageRequest) -> TriageStatus:
        branch = await self._decide(request)
        while branch is not None:
            match branch.action:
                case "route":
                    failure = await self._deliver(branch.route or "", CLASSIFIER)
                case "review":
                    choice = await self._reviewed(branch)
                    failure = await self._deliver(choice.route, choice.by)
                case _:
                    assert_never(branch.action)
            if failure is None:
                break
            branch = await self._request_review(self._status.route, failure)
        await workflow.wait_condition(workflow.all_handlers_finished)
        return self._status

    @workflow.update(name=REVIEW)
    async def review(self, choice: ReviewChoice) -> TriageStatus:
        """A person's choice for an event that waits; gives back where it was delivered."""
        self._desk.choice = choice
        await workflow.wait_condition(
            lambda: self._desk.choice is not choice and self._status.state != "delivering"
        )
        return self._status

    @review.validator
    def check_review(self, choice: ReviewChoice) -> None:
        """Refuses a choice that cannot be carried out, before it enters the history."""
        self._desk.check_choice(choice, self._status)

    @workflow.update(name=CLAIM)
    async def claim(self, claim: ReviewClaim) -> TriageStatus:
        """Somebody is at work on it: nobody else claims it or decides until that runs out."""
        facts = self._desk.claim(claim)
        self._show_desk()
        await self._note("review_claimed", claim.by, facts)
        return self._status

    @claim.validator
    def check_claim(self, claim: ReviewClaim) -> None:
        """Refuses a second one at the same time, before it enters the history."""
        self._desk.check_claim(claim, self._status)

    @workflow.update(name=RELEASE)
    async def release(self, release: ReviewRelease) -> TriageStatus:
        """Whoever claimed it gives it back."""
        facts = self._desk.release()
        self._show_desk()
        await self._note("review_released", release.by, facts)
        return self._status

    @release.validator
    def check_release(self, release: ReviewRelease) -> None:
        """Refuses who has not claimed it, before it enters the history."""
        self._desk.check_release(release.by, self._status)

    @workflow.update(name=DECIDED)
    async def decided(self) -> TriageStatus:
        """Where the event goes, as soon as that is decided; for senders that wait for it."""
        await workflow.wait_condition(lambda: self._status.state != "deciding")
        return self._status

    @workflow.query(name=STATUS)
    def status(self) -> TriageStatus:
        """Where the event stands."""
        return self._status

    async def _decide(self, request: TriageRequest) -> Branch | None:
        """What becomes of the event; None where nothing does, since it was dropped."""
        question = DecideRequest(
            states=[request.event.get("data")],
            playbook=request.playbook,
            context=request.context,
            message=request.event["id"],
        )
        while isinstance(made := await self._branch(question), Fault):
            self._tries += 1
            if not await self._dead_letter("decide", replace(made, attempts=self._tries)):
                return None
        return made

    async def _branch(self, question: DecideRequest) -> Branch | Fault:
        try:
            result = await decide(question)
        except (ActivityError, ApplicationError) as error:
            if is_cancelled_exception(error) or not workflow.patched(DEAD_LETTERS):
                raise
            return fault_of(error)
        (decided,) = result.decisions
        self._desk.learn(result.routes, result.review)
        self._status = replace(self._status, decision_id=decided.decision_id)
        fault = fault_in(decided)
        if fault is not None and workflow.patched(DEAD_LETTERS):
            return fault
        if decided.branch is None:
            return await self._request_review(None, "error:NO_BRANCH")
        return branch_from_json(decided.branch)

    async def _request_review(self, route: str | None, reason: str) -> Branch:
        """What the decision does not say is in the history before the event is seen to wait."""
        request = ReviewRequest(
            tenant=self._request.tenant,
            decision_id=self._status.decision_id or "",
            route=route,
            reasons=[reason],
            at=workflow.now().isoformat(),
        )
        await workflow.execute_activity(
            REQUEST_REVIEW, request, start_to_close_timeout=RECORD_ATTEMPT, retry_policy=RECORD_RETRY
        )
        return Branch("review", route, (reason,))

    async def _reviewed(self, branch: Branch) -> ReviewChoice:
        """Waits for a person, for days if need be; the choice is in the history before it is acted on.

        Where the playbook says so a deadline asks others, or chooses.
        """
        self._status = replace(self._status, state="review", route=branch.route, reasons=list(branch.reasons))
        self._desk.open()
        self._show_desk()
        while (step := await self._desk.next_step()) is not None:
            if step.route is not None:
                self._desk.take_default(step.route)
                facts = {"route": step.route, "suggested": branch.route}
                await self._note("review_defaulted", DEADLINE, facts)
            elif step.queue is not None:
                facts = self._desk.escalate(step.queue)
                self._show_desk()
                await self._note("review_escalated", DEADLINE, facts)
        choice = self._desk.choice
        assert choice is not None
        if choice.by != DEADLINE:
            await self._record_review(branch, choice)
        return choice

    async def _record_review(self, branch: Branch, choice: ReviewChoice) -> None:
        record = ReviewRecord(
            tenant=self._request.tenant,
            decision_id=self._status.decision_id or "",
            route=choice.route,
            suggested=branch.route,
            by=choice.by,
            reason=choice.reason,
            at=workflow.now().isoformat(),
        )
        await workflow.execute_activity(
            RECORD_REVIEW, record, start_to_close_timeout=RECORD_ATTEMPT, retry_policy=RECORD_RETRY
        )

    async def _stopped(self) -> None:
        """That nobody is waited for any more is in the history before the run closes, cancelled as it is."""
        facts = {"state": self._status.state}
        self._desk.choice = None
        self._status = replace(self._status, state="stopped")
        await self._note("stop", None, facts)
        await workflow.wait_condition(workflow.all_handlers_finished)

    async def _note(self, kind: ReviewEvent, by: str | None, facts: dict[str, Any]) -> None:
        note = ReviewNote(
            tenant=self._request.tenant,
            kind=kind,
            decision_id=self._status.decision_id,
            by=by,
            at=workflow.now().isoformat(),
            facts=facts,
        )
        await workflow.execute_activity(
            NOTE_REVIEW, note, start_to_close_timeout=RECORD_ATTEMPT, retry_policy=RECORD_RETRY
        )

    def _show_desk(self) -> None:
        """What the status says of the review."""
        lease, due = self._desk.lease, self._desk.due
        self._status = replace(
            self._status,
            claimed_by=None if lease is None else lease.by,
            claimed_until=None if lease is None else lease.until.isoformat(),
            queue=self._desk.queue,
            due=None if due is None else due.isoformat(),
        )

    async def _deliver(self, route: str, decided_by: str) -> str | None:
        """Delivers, again and again where somebody replays what came to nothing, or gives up with them."""
        self._status = replace(
            self._status, state="delivering", route=route, decided_by=decided_by, reasons=[]
        )
        self._desk.close()
        self._show_desk()
        self._deliveries += 1
        delivery = Delivery(
            playbook=self._request.playbook,
            route=route,
            event=self._request.event,
            tenant=self._request.tenant,
            decision_id=self._status.decision_id or "",
            decided_by=decided_by,
            at=workflow.now().isoformat(),
            number=self._deliveries,
        )
        while isinstance(made := await self._handed_over(delivery), Fault):
            if not workflow.patched(DEAD_LETTERS):
                return "delivery_failed"
            if not await self._dead_letter("deliver", made):
                return None
            delivery = replace(delivery, at=workflow.now().isoformat(), replayed=True)
        self._status = replace(self._status, state="delivered", destination=made.destination)
        return None

    async def _handed_over(self, delivery: Delivery) -> Delivered | Fault:
        try:
            delivered: Delivered = await workflow.execute_activity(
                DELIVER,
                delivery,
                result_type=Delivered,
                start_to_close_timeout=DELIVERY_ATTEMPT,
                schedule_to_close_timeout=DELIVERY_OVERALL,
                heartbeat_timeout=DELIVERY_SILENCE,
                retry_policy=DELIVERY_RETRY,
            )
        except ActivityError as error:
            if is_cancelled_exception(error):
                raise
            return fault_of(error)
        return delivered
