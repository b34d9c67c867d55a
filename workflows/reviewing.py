"""What a run knows of its review: who is at work on it until when, and what its deadlines do.

Deterministic: times are the workflow's, and the rules came with the decision.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, NoReturn, TypeGuard

from temporalio import workflow
from temporalio.exceptions import ApplicationError

from workflows.messages import (
    BAD_LEASE,
    CLASSIFIER,
    DEADLINE,
    MAX_LEASE,
    NO_REVIEWER,
    NOT_CLAIMED,
    NOT_IN_REVIEW,
    REVIEW_HELD,
    STILL_DECIDING,
    UNKNOWN_ROUTE,
    ReviewChoice,
    ReviewClaim,
    TriageStatus,
)


@dataclass(frozen=True, slots=True)
class Lease:
    """Who is at work on a review, and until when nobody else is."""

    by: str
    until: datetime


@dataclass(frozen=True, slots=True)
class Step:
    """What happens when the time has come: others are asked, or a route is taken.

    Attributes:
        after: How long after the step before.
        queue: Who is asked.
        route: Which way is taken.
    """

    after: timedelta
    queue: str | None
    route: str | None


def steps_of(review: Sequence[dict[str, Any]]) -> tuple[Step, ...]:
    """The rules that came with a decision."""
    return tuple(
        Step(timedelta(seconds=each["after"]), each.get("queue"), each.get("route")) for each in review
    )


class Desk:
    """Where an event lies while it waits for a person.

    Attributes:
        choice: What somebody has chosen, until it is carried out.
        lease: Who took it on last; it may have run out.
        queue: Who was asked last, where a deadline has passed.
    """

    def __init__(self) -> None:
        self.choice: ReviewChoice | None = None
        self.lease: Lease | None = None
        self.queue: str | None = None
        self._routes: Sequence[str] = ()
        self._steps: Sequence[Step] = ()
        self._left: list[Step] = []
        self._fires: datetime | None = None
        self._number = 0

    def learn(self, routes: Sequence[str], review: Sequence[dict[str, Any]]) -> None:
        """Takes the closed set of routes and the rules that came with the decision."""
        self._routes = routes
        self._steps = steps_of(review)

    def open(self) -> None:
        """The event begins to wait, for the first time or again; its time begins to run."""
        self.lease = self.queue = None
        self._left = list(self._steps)
        self._fires = self._left[0].after + workflow.now() if self._left else None

    def close(self) -> None:
        """The event does not wait any more."""
        self.choice = self.lease = self._fires = None

    @property
    def due(self) -> datetime | None:
        """When the next step is, unless somebody is at work on it then."""
        return self._fires

    async def next_step(self) -> Step | None:
        """Waits for a person's choice, and gives None; or for a step whose time has come.

        A choice that came in the same moment wins, and so does somebody who took it on.
        """
        while self.choice is None:
            due = self._holds_until()
            if due is None:
                await workflow.wait_condition(lambda: self.choice is not None)
            elif due <= workflow.now():
                return self._pop()
            else:
                await self._until(due)
        return None

    def take_default(self, route: str) -> None:
        """A deadline takes this route."""
        self.choice = ReviewChoice(route, DEADLINE)

    def check_choice(self, choice: ReviewChoice, status: TriageStatus) -> None:
        """Refuses a choice that cannot be carried out.

        Raises:
            ApplicationError: `type` says why.
        """
        self._check_waits(status)
        if choice.route not in self._routes:
            known = ", ".join(self._routes)
            _refuse(UNKNOWN_ROUTE, f"there is no route {choice.route!r}; routes: {known}")
        _check_name(choice.by, "a review says who decided")
        self._check_free(choice.by)

    def check_claim(self, claim: ReviewClaim, status: TriageStatus) -> None:
        """Refuses somebody who cannot take it on; errors as for `check_choice`."""
        self._check_waits(status)
        _check_name(claim.by, "a claim says who makes it")
        if not 0 < claim.seconds <= MAX_LEASE.total_seconds():
            hours = MAX_LEASE.total_seconds() / 3600
            _refuse(BAD_LEASE, f"a claim lasts more than nothing and at most {hours:.0f} hours")
        self._check_free(claim.by)

    def check_release(self, by: str, status: TriageStatus) -> None:
        """Refuses somebody who has not taken it on; errors as for `check_choice`."""
        self._check_waits(status)
        self._check_free(by)
        if not _is_live(self.lease):
            _refuse(NOT_CLAIMED, "nobody has claimed the review, or the claim has run out")

    def claim(self, claim: ReviewClaim) -> dict[str, Any]:
        """Somebody takes it on, or goes on with it; the facts of that."""
        self.lease = Lease(claim.by, workflow.now() + timedelta(seconds=claim.seconds))
        return self._facts(until=self.lease.until.isoformat())

    def release(self) -> dict[str, Any]:
        """Whoever took it on gives it back; the facts of that."""
        self.lease = None
        return self._facts()

    def escalate(self, queue: str) -> dict[str, Any]:
        """Others are asked; the facts of that."""
        self.queue = queue
        return self._facts(queue=queue)

    def _facts(self, **facts: Any) -> dict[str, Any]:
        """With a number, since several things may happen at one time of the workflow's clock."""
        self._number += 1
        return {**facts, "number": self._number}

    async def _until(self, due: datetime) -> None:
        """Waits, at most until then, for a choice or for whoever took it on to give it back."""
        with contextlib.suppress(TimeoutError):
            await workflow.wait_condition(lambda: self._is_earlier_than(due), timeout=due - workflow.now())

    def _pop(self) -> Step:
        step = self._left.pop(0)
        self._fires = self._left[0].after + workflow.now() if self._left else None
        return step

    def _holds_until(self) -> datetime | None:
        if self._fires is None or self.lease is None:
            return self._fires
        return max(self._fires, self.lease.until)

    def _is_earlier_than(self, due: datetime) -> bool:
        """Whether there is something to do before `due`: a choice, or a claim that was given back."""
        now_due = self._holds_until()
        return self.choice is not None or (now_due is not None and now_due < due)

    def _check_waits(self, status: TriageStatus) -> None:
        if status.state == "deciding":
            _refuse(STILL_DECIDING, "the event is still being decided on")
        why = None
        if self.choice is not None:
            why = _chosen(self.choice.by, self.choice.route)
        elif status.state != "review":
            decided = status.decided_by and _chosen(status.decided_by, status.route)
            why = f"it is {status.state}" + (f", and {decided}" if decided else "")
        if why is not None:
            _refuse(NOT_IN_REVIEW, f"the event does not wait for a review: {why}")

    def _check_free(self, by: str) -> None:
        if _is_live(self.lease) and self.lease.by != by:
            until = self.lease.until.strftime("%Y-%m-%d %H:%M:%SZ")
            _refuse(REVIEW_HELD, f"somebody else has claimed the review, until {until} at the latest")


def _chosen(by: str, route: str | None) -> str:
    whom = {DEADLINE: "its deadline", CLASSIFIER: "the classifier"}.get(by, "somebody")
    return f"{whom} has chosen {route!r}"


def _is_live(lease: Lease | None) -> TypeGuard[Lease]:
    return lease is not None and lease.until > workflow.now()


def _check_name(by: str, complaint: str) -> None:
    if not by.strip():
        _refuse(NO_REVIEWER, complaint)
    if by in {CLASSIFIER, DEADLINE}:
        _refuse(NO_REVIEWER, f"{by!r} is what the history calls something else than a person")


def _refuse(code: str, message: str) -> NoReturn:
    raise ApplicationError(message, type=code)
