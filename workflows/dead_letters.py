"""What a triage run does with an event that cannot be handled: it keeps it until somebody says what to do.

A run that waits so costs nothing. Replaying tries the stage again that came to nothing, a delivery under
the same idempotency key; dropping ends the run. Both are in the history before they are acted on.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Literal, cast

from temporalio import exceptions as temporal_errors
from temporalio import workflow
from temporalio.exceptions import ActivityError, ApplicationError, FailureError, is_cancelled_exception

from activities.dead_letter_messages import (
    ANSWER_DEAD_LETTER,
    KEEP_DEAD_LETTER,
    Answer,
    DeadLetter,
    DeadLetterAnswer,
    Stage,
)
from classifier.errors import ConfigurationError, PolicyError
from classifier.temporal.messages import Decided
from classifier.temporal.requests import code_of
from workflows.messages import TriageRequest, TriageStatus
from workflows.options import RECORD_ATTEMPT, RECORD_RETRY
from workflows.subject_messages import DEAD, SUBJECT_PREFIX

REPLAY = "replay"
DROP = "drop"

DEAD_LETTERS = "dead-letters"
"""The patch: runs from before it ask a person about content instead."""

NOT_A_DEAD_LETTER = "NOT_A_DEAD_LETTER"
NOBODY = "NO_NAME"
"""Why a run refuses to be replayed or dropped."""

NO_BRANCH = "NO_BRANCH"

_NOT_A_PERSONS = {PolicyError.code, ConfigurationError.code}
"""Faults of the app: who reviews content can do nothing about them, and who mends them can replay."""

_TRIES_AGAIN: dict[Stage, Literal["deciding", "delivering"]] = {"decide": "deciding", "deliver": "delivering"}


@dataclass(frozen=True)
class DeadLetterOrder:
    """What is to become of a dead letter.

    Attributes:
        by: Who says so.
        reason: Why, in the person's words.
    """

    by: str
    reason: str | None = None


@dataclass(frozen=True, slots=True)
class Fault:
    """Why a stage came to nothing for good.

    Attributes:
        code: A stable code.
        attempts: How often it was tried; None where nobody could count.
        status: What a receiver answered, where there was one.
    """

    code: str
    attempts: int | None = None
    status: int | None = None


def fault_of(error: ActivityError | ApplicationError) -> Fault:
    """The fault in what an activity ended with; of one that ran out of time, that of its last attempt."""
    cause: BaseException | None = error.cause if isinstance(error, ActivityError) else error
    while isinstance(cause, temporal_errors.TimeoutError) and cause.cause is not None:
        cause = cause.cause
    facts = cause.details[0] if isinstance(cause, ApplicationError) and cause.details else None
    known = cast("dict[str, Any]", facts) if isinstance(facts, dict) else {}
    return Fault(code_of(cause), _count(known.get("attempts")), _count(known.get("status")))


def fault_in(decided: Decided) -> Fault | None:
    """The fault that a recorded decision holds, if it is none for a reviewer of content."""
    code = None if decided.failure is None else decided.failure["code"]
    if code in _NOT_A_PERSONS:
        return Fault(code)
    return Fault(code or NO_BRANCH) if decided.branch is None else None


class DeadLetters:
    """The part of a triage run that holds what it cannot handle."""

    _request: TriageRequest
    _status: TriageStatus
    _order: tuple[Answer, DeadLetterOrder] | None = None
    _takes_orders = False
    """Also before it is seen to wait: whoever reads the history may know of it a moment earlier."""

    @workflow.update(name=REPLAY)
    async def replay(self, order: DeadLetterOrder) -> TriageStatus:
        """Tries again what came to nothing; gives back where the event stands after that."""
        return await self._carried_out("replay", order)

    @replay.validator
    def check_replay(self, order: DeadLetterOrder) -> None:
        """Refuses what is no dead letter, before it enters the history."""
        self._check_order(order)

    @workflow.update(name=DROP)
    async def drop(self, order: DeadLetterOrder) -> TriageStatus:
        """Gives the event up; the run ends."""
        return await self._carried_out("drop", order)

    @drop.validator
    def check_drop(self, order: DeadLetterOrder) -> None:
        """Refuses what is no dead letter, before it enters the history."""
        self._check_order(order)

    async def _dead_letter(self, stage: Stage, fault: Fault) -> bool:
        """Keeps the event until somebody says what becomes of it; whether it is to be tried again."""
        letter = self._letter(stage, fault)
        self._takes_orders = True
        await workflow.execute_activity(
            KEEP_DEAD_LETTER, letter, start_to_close_timeout=RECORD_ATTEMPT, retry_policy=RECORD_RETRY
        )
        self._status = replace(self._status, state="dead_letter", reasons=[fault.code])
        await _tell_the_subject()
        await workflow.wait_condition(lambda: self._order is not None)
        assert self._order is not None
        self._takes_orders = False
        answer, order = self._order
        await workflow.execute_activity(
            ANSWER_DEAD_LETTER,
            DeadLetterAnswer(letter, answer, order.by, order.reason, workflow.now().isoformat()),
            start_to_close_timeout=RECORD_ATTEMPT,
            retry_policy=RECORD_RETRY,
        )
        again = answer == "replay"
        self._status = replace(self._status, state=_TRIES_AGAIN[stage] if again else "dropped", reasons=[])
        self._order = None
        return again

    def _letter(self, stage: Stage, fault: Fault) -> DeadLetter:
        event, status = self._request.event, self._status
        return DeadLetter(
            tenant=self._request.tenant,
            source=event["source"],
            event=event["id"],
            type=event.get("type", ""),
            playbook=self._request.playbook,
            stage=stage,
            code=fault.code,
            attempts=fault.attempts,
            status=fault.status,
            route=status.route,
            decided_by=status.decided_by,
            decision_id=status.decision_id,
            at=workflow.now().isoformat(),
        )

    async def _carried_out(self, answer: Answer, order: DeadLetterOrder) -> TriageStatus:
        given = self._order = (answer, order)
        await workflow.wait_condition(lambda: self._is_over(given))
        return self._status

    def _is_over(self, given: tuple[Answer, DeadLetterOrder]) -> bool:
        state = self._status.state
        return state == "stopped" or (self._order is not given and state not in _TRIES_AGAIN.values())

    def _check_order(self, order: DeadLetterOrder) -> None:
        if self._order is not None or not self._takes_orders or self._status.state == "stopped":
            state = "being answered" if self._order is not None else self._status.state
            raise ApplicationError(f"the event is no dead letter, it is {state}", type=NOT_A_DEAD_LETTER)
        if not order.by.strip():
            raise ApplicationError("the record says who replays or drops a dead letter", type=NOBODY)


async def _tell_the_subject() -> None:
    """The next state of the same subject does not wait for this one."""
    parent, run = workflow.info().parent, workflow.info().workflow_id
    if parent is None or not parent.workflow_id.startswith(SUBJECT_PREFIX):
        return
    try:
        await workflow.get_external_workflow_handle(parent.workflow_id).signal(DEAD, run)
    except FailureError as error:
        if is_cancelled_exception(error):
            raise
        workflow.logger.info("the workflow of the subject has ended, so nothing waits for this run")


def _count(given: object) -> int | None:
    return given if isinstance(given, int) else None
