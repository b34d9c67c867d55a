"""One workflow per event: decide, then deliver, or wait for a person and deliver what they chose.

Routes on what `classifier.decide` recorded; no threshold and no policy is in here.
"""

from __future__ import annotations

from dataclasses import replace
from typing import assert_never

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
from classifier.decision import Branch
from classifier.decision_json import branch_from_json
from classifier.temporal.messages import DecideRequest
from classifier.temporal.workflow import decide
from workflows.messages import DECIDED, REVIEW, STATUS, TRIAGE, ReviewChoice, TriageRequest, TriageStatus
from workflows.options import (
    DELIVERY_ATTEMPT,
    DELIVERY_OVERALL,
    DELIVERY_RETRY,
    RECORD_ATTEMPT,
    RECORD_RETRY,
)

_CLASSIFIER = "classifier"


@workflow.defn(name=TRIAGE)
class TriageWorkflow:
    """Brings one event to its destination, over a person's desk where the answers are not sure enough."""

    @workflow.init
    def __init__(self, request: TriageRequest) -> None:
        self._request = request
        self._status = TriageStatus("deciding")
        self._routes: list[str] = []
        self._choice: ReviewChoice | None = None

    @workflow.run
    async def run(self, request: TriageRequest) -> TriageStatus:
        """Ends when the event is delivered."""
        branch = await self._decide(request)
        while True:
            match branch.action:
                case "route":
                    failure = await self._deliver(branch.route or "", _CLASSIFIER)
                case "review":
                    choice = await self._reviewed(branch)
                    failure = await self._deliver(choice.route, choice.by)
                case _:
                    assert_never(branch.action)
            if failure is None:
                await workflow.wait_condition(workflow.all_handlers_finished)
                return self._status
            branch = await self._request_review(self._status.route, failure)

    @workflow.update(name=REVIEW)
    async def review(self, choice: ReviewChoice) -> TriageStatus:
        """A person's choice for an event that waits; gives back where it was delivered."""
        self._choice = choice
        await workflow.wait_condition(
            lambda: self._choice is not choice and self._status.state != "delivering"
        )
        return self._status

    @review.validator
    def check_review(self, choice: ReviewChoice) -> None:
        """Refuses a choice that cannot be carried out, before it enters the history."""
        if self._status.state != "review" or self._choice is not None:
            raise ApplicationError(
                f"the event does not wait for a review, it is {self._status.state}", type="NOT_IN_REVIEW"
            )
        if choice.route not in self._routes:
            known = ", ".join(self._routes)
            raise ApplicationError(
                f"there is no route {choice.route!r}; routes: {known}", type="UNKNOWN_ROUTE"
            )
        if not choice.by.strip():
            raise ApplicationError("a review says who decided", type="NO_REVIEWER")

    @workflow.update(name=DECIDED)
    async def decided(self) -> TriageStatus:
        """Where the event goes, as soon as that is decided; for senders that wait for it."""
        await workflow.wait_condition(lambda: self._status.state != "deciding")
        return self._status

    @workflow.query(name=STATUS)
    def status(self) -> TriageStatus:
        """Where the event stands."""
        return self._status

    async def _decide(self, request: TriageRequest) -> Branch:
        question = DecideRequest(
            states=[request.event.get("data")],
            playbook=request.playbook,
            context=request.context,
            message=request.event["id"],
        )
        result = await decide(question)
        (decided,) = result.decisions
        self._routes = result.routes
        self._status = replace(self._status, decision_id=decided.decision_id)
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
        """Waits for a person, for days if need be; the choice is in the history before it is acted on."""
        self._status = replace(self._status, state="review", route=branch.route, reasons=list(branch.reasons))
        await workflow.wait_condition(lambda: self._choice is not None)
        assert self._choice is not None
        choice = self._choice
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
        return choice

    async def _deliver(self, route: str, decided_by: str) -> str | None:
        """Delivers; a receiver that refuses for good is a reason for a person to look."""
        self._status = replace(
            self._status, state="delivering", route=route, decided_by=decided_by, reasons=[]
        )
        self._choice = None
        delivery = Delivery(
            playbook=self._request.playbook,
            route=route,
            event=self._request.event,
            tenant=self._request.tenant,
            decision_id=self._status.decision_id or "",
            decided_by=decided_by,
            at=workflow.now().isoformat(),
        )
        try:
            delivered = await workflow.execute_activity(
                DELIVER,
                delivery,
                result_type=Delivered,
                start_to_close_timeout=DELIVERY_ATTEMPT,
                schedule_to_close_timeout=DELIVERY_OVERALL,
                retry_policy=DELIVERY_RETRY,
            )
        except ActivityError as error:
            if is_cancelled_exception(error):
                raise
            return "delivery_failed"
        self._status = replace(self._status, state="delivered", destination=delivered.destination)
        return None
