"""The client's side of reviews: what a person wants to do reaches the run, or why it cannot comes back."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final

from temporalio.client import (
    Client,
    WorkflowUpdateFailedError,
    WorkflowUpdateHandle,
    WorkflowUpdateRPCTimeoutOrCancelledError,
    WorkflowUpdateStage,
)
from temporalio.exceptions import ApplicationError
from temporalio.service import RPCError, RPCStatusCode

from classifier.decision import Decision
from classifier.errors import ClassifierError
from workflows.messages import (
    CLAIM,
    DECIDED,
    RELEASE,
    REVIEW,
    STILL_DECIDING,
    USUAL_LEASE,
    ReviewChoice,
    ReviewClaim,
    ReviewRelease,
    TriageStatus,
)

PATIENCE = timedelta(seconds=15)
"""How long a run may take to accept something; delivering a choice takes as long as it takes."""

ENDED: Final = "ENDED"
NO_WORKER: Final = "NO_WORKER"
REFUSED: Final = "REFUSED"


class ReviewRefused(ClassifierError):
    """A run does not take what a person wants to do; `code` says why, in the words of `workflows.messages`.

    Args:
        code: Why; `ENDED` where there is no run any more, `NO_WORKER` where none answered in time.
        message: The same for people.
    """

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


@dataclass(frozen=True, slots=True)
class Reviewer:
    """Acts on events that wait, in the name of a person.

    Every method gives the status of the run, or None where the run has accepted it and is not done with it
    `within` so many seconds; it does it all the same. All raise `ReviewRefused`.

    Args:
        client: Where the runs are.
        name: The person's.
        patience: How long a run may take to accept something.
        within: Seconds after which the rest is not waited for any more; None waits for as long as it takes.
    """

    client: Client
    name: str
    patience: timedelta = PATIENCE
    within: float | None = None

    async def claim(self, decision: Decision, lasting: timedelta = USUAL_LEASE) -> TriageStatus | None:
        """Takes a review on, or goes on with it."""
        return await self._done(decision, CLAIM, ReviewClaim(self.name, lasting.total_seconds()))

    async def release(self, decision: Decision) -> TriageStatus | None:
        """Gives a review back."""
        return await self._done(decision, RELEASE, ReviewRelease(self.name))

    async def decide(self, decision: Decision, route: str, reason: str | None = None) -> TriageStatus | None:
        """Chooses where an event goes, and gives where it went; delivering it may take its time."""
        return await self._done(decision, REVIEW, ReviewChoice(route, self.name, reason))

    async def _done(self, decision: Decision, what: str, given: object) -> TriageStatus | None:
        try:
            return await self._asked(decision, what, given)
        except ReviewRefused as refused:
            if refused.code != STILL_DECIDING:
                raise
        # The decision is on record, so it is seen to wait, a moment before its run knows of it.
        await self._accepted(decision, DECIDED, wait_for=WorkflowUpdateStage.COMPLETED)
        return await self._asked(decision, what, given)

    async def _asked(self, decision: Decision, what: str, given: object) -> TriageStatus | None:
        update = await self._accepted(decision, what, given)
        limit = asyncio.timeout(self.within)
        try:
            async with limit:
                return await _answer(update)
        except (TimeoutError, WorkflowUpdateRPCTimeoutOrCancelledError):  # the SDK turns one into the other
            if not limit.expired():
                raise
            return None

    async def _accepted(
        self,
        decision: Decision,
        what: str,
        *given: object,
        wait_for: WorkflowUpdateStage = WorkflowUpdateStage.ACCEPTED,
    ) -> WorkflowUpdateHandle[TriageStatus]:
        at = decision.coordinates
        handle = self.client.get_workflow_handle(at.workflow_id, run_id=at.run_id)
        try:
            update: WorkflowUpdateHandle[TriageStatus] = await handle.start_update(  # pyright: ignore[reportUnknownMemberType] - an overload of the SDK is untyped
                what,
                args=given,
                wait_for_stage=wait_for,
                result_type=TriageStatus,
                rpc_timeout=self.patience,
            )
        except WorkflowUpdateFailedError as error:
            raise _refused(error) from error
        except WorkflowUpdateRPCTimeoutOrCancelledError as error:
            seconds = self.patience.total_seconds()
            raise ReviewRefused(NO_WORKER, f"no worker took it in {seconds:.0f} s") from error
        except RPCError as error:
            if error.status != RPCStatusCode.NOT_FOUND:
                raise
            raise _ended() from error
        return update


async def _answer(update: WorkflowUpdateHandle[TriageStatus]) -> TriageStatus:
    try:
        return await update.result()
    except WorkflowUpdateFailedError as error:
        raise _refused(error) from error
    except RPCError as error:
        if error.status != RPCStatusCode.NOT_FOUND:
            raise
        raise _ended() from error


def _ended() -> ReviewRefused:
    return ReviewRefused(ENDED, "the run has ended; nothing waits")


def _refused(error: WorkflowUpdateFailedError) -> ReviewRefused:
    cause: Any = error.cause
    if isinstance(cause, ApplicationError):
        return ReviewRefused(cause.type or REFUSED, cause.message)
    return ReviewRefused(REFUSED, "the run did not take it")
