"""Verdicts as workflow code gets them. Pure; sandbox-safe."""

from __future__ import annotations

import uuid
from collections.abc import Iterable
from typing import cast

from temporalio.exceptions import ApplicationError

from classifier.answers import Answers, answers_from_json
from classifier.decision import DecisionFailure, Mode, Outcome, Tripwire
from classifier.temporal.messages import Decided
from classifier.verdict import Judgement, Tripped, Verdict


class TripwireError(ApplicationError):
    """A processor aborted. Fails a workflow for good; nobody retries it.

    Its `type` is "TRIPWIRE"; its details are one object with reason, metadata, processor_id and decision_id,
    so that callers in any language can read it (`tripwire_of` in Python).

    Attributes:
        tripwire: Reason and metadata, both written by the application.
        processor_id: Which processor.
        judgements: Everything that was decided until then, the abort included.
    """

    def __init__(self, tripped: Tripped) -> None:
        self.tripwire = tripped.tripwire
        self.processor_id = tripped.processor_id
        self.judgements = tripped.judgements
        details = {
            "reason": tripped.tripwire.reason,
            "metadata": tripped.tripwire.metadata,
            "processor_id": tripped.processor_id,
            "decision_id": str(tripped.judgements[-1].decision_id),
        }
        super().__init__(str(tripped), details, type=Tripped.code, non_retryable=True)


class WorkflowVerdict(Verdict):
    """A verdict whose abort fails the workflow, instead of a task of it that would be tried again."""

    def raise_if_aborted(self) -> None:
        """Does nothing unless a processor aborted.

        Raises:
            TripwireError: With the tripwire and every completed judgement.
        """
        try:
            super().raise_if_aborted()
        except Tripped as tripped:
            raise TripwireError(tripped) from None


def tripwire_of(error: BaseException) -> Tripwire | None:
    """The tripwire that a workflow failed with: of a `WorkflowFailureError`, or of any cause of it."""
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, ApplicationError) and cause.type == Tripped.code and cause.details:
            details = cause.details[0]
            return Tripwire(details["reason"], details["metadata"])
        cause = cause.__cause__
    return None


def judgements_of(decisions: Iterable[Decided]) -> tuple[Judgement, ...]:
    """The judgements of processors, as far as the first abort that counts."""
    judgements: list[Judgement] = []
    for decided in decisions:
        judgements.append(_judgement(decided))
        if judgements[-1].effect == "aborted":
            break
    return tuple(judgements)


def _judgement(decided: Decided) -> Judgement:
    answers, failure, tripwire = decided.answers, decided.failure, decided.tripwire
    return Judgement(
        processor_id=decided.processor or "",
        position=decided.position,
        message_id=decided.message,
        decision_id=uuid.UUID(decided.decision_id),
        outcome=cast("Outcome", decided.outcome),
        answers=None if answers is None else Answers(answers_from_json(answers)),
        failure=None if failure is None else DecisionFailure(failure["code"], failure["message"]),
        tripwire=None if tripwire is None else Tripwire(tripwire["reason"], tripwire["metadata"]),
        mode=cast("Mode", decided.mode),
    )
