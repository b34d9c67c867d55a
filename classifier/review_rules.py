"""What becomes of an event that waits for a person for too long. Pure declaration.

The rules travel as data with the decision, so a run keeps those it was decided under, whatever the app says
by then.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from datetime import timedelta
from typing import TypeAlias, TypedDict

LONGEST_DEADLINE = timedelta(days=365)
LONGEST_QUEUE = 100


@dataclass(frozen=True, slots=True)
class TakeRoute:
    """At the deadline the event goes where this says, on record as decided by its deadline.

    Attributes:
        route: One of the playbook's routes.
    """

    route: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Escalate:
    """At the deadline others are asked; whoever may decide still may.

    Attributes:
        queue: What those others call their queue, as `review list --queue` takes it.
        deadline: How long they have; None for as long as it takes.
        then: What happens after that.
    """

    queue: str
    deadline: timedelta | None = None
    then: Then | None = None


Then: TypeAlias = TakeRoute | Escalate


class ReviewStep(TypedDict, total=False):
    """What happens when its time has come, as it travels.

    Attributes:
        after: Seconds since the step before, or since the event began to wait.
        queue: Who is asked then, or else
        route: which way is taken.
    """

    after: float
    queue: str
    route: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ReviewRules:
    """How long a person has, and what happens then.

    A person who is at work on it has taken it on (`review claim`), and is not overtaken: while that lasts, no
    deadline passes.

    Attributes:
        deadline: How long the event waits for a person.
        then: What happens after that.
    """

    deadline: timedelta
    then: Then

    def steps(self) -> list[ReviewStep]:
        """The rules as data, one step after the other."""
        found: list[ReviewStep] = []
        deadline: timedelta | None = self.deadline
        then: Then | None = self.then
        while deadline is not None and then is not None:
            after = deadline.total_seconds()
            if isinstance(then, TakeRoute):
                found.append({"after": after, "route": then.route})
                break
            found.append({"after": after, "queue": then.queue})
            deadline, then = then.deadline, then.then
        return found

    def problems(self, routes: Collection[str]) -> Iterable[str]:
        """What is wrong with them for a playbook with these routes, as ends of a sentence."""
        yield from _problems(self.deadline, self.then, routes)


def _problems(deadline: timedelta, then: Then, routes: Collection[str]) -> Iterable[str]:
    if not timedelta(0) < deadline <= LONGEST_DEADLINE:
        yield f"a review's deadline is more than nothing and at most {LONGEST_DEADLINE.days} days"
    match then:
        case TakeRoute(route=route):
            if route not in routes:
                yield f"the review's deadline takes {route!r}, which is not one of its routes"
        case Escalate(queue=queue, deadline=more, then=after):
            if not queue.strip() or len(queue) > LONGEST_QUEUE:
                yield f"a review's queue has a name of at most {LONGEST_QUEUE} characters"
            if (more is None) != (after is None):
                yield f"the review's queue {queue!r} has a deadline without what happens then, or the reverse"
            elif more is not None and after is not None:
                yield from _problems(more, after, routes)
