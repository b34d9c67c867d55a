"""A playbook: what to ask about an event, when to trust it, where to send it. Pure declaration.

Gates and the route function run in the activity `classifier.decide`, so their result is in the workflow's
history: a changed threshold never breaks the replay of a running workflow.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Generic, TypeAlias, TypeVar

from classifier.addresses import web_address
from classifier.answers import Answers
from classifier.classifier import Classifier
from classifier.decision import Branch
from classifier.errors import ClassifierError, ConfigurationError, PolicyError
from classifier.gates import closed_gates
from classifier.review_rules import ReviewRules
from classifier.shadow import Shadow
from classifier.values import JSON, State
from classifier.webhook_signing import secrets_in

A = TypeVar("A", bound=Answers)

LONGEST_ANSWER = 240.0
"""Seconds that a webhook may be given; an attempt to deliver has more."""
MAX_REASON = 100
TEXT_KEYS = ("text", "body", "message", "content")


@dataclass(frozen=True, slots=True)
class Review:
    """What a route function returns to hand an event to a person.

    Attributes:
        reason: A stable code chosen by the author of the policy, never text of a message or a model.
        suggestion: The route it would have taken, if any.
    """

    reason: str
    suggestion: str | None = None


RouteFunction: TypeAlias = Callable[[A], "str | Review | Awaitable[str | Review]"]


@dataclass(frozen=True, slots=True)
class Outbox:
    """Deliver by appending a line to a JSONL file.

    Attributes:
        path: Relative paths are under the state folder.
    """

    path: str


@dataclass(frozen=True, slots=True)
class Webhook:
    """Deliver by HTTP POST with an `Idempotency-Key`.

    Attributes:
        url: Where to post.
        token_variable: Name of the environment variable that holds a bearer token; None sends none.
        timeout: Seconds until it has answered, at most 240; then Temporal tries again.
        secret_variable: Name of the environment variable that holds the secret to sign with, as Standard
            Webhooks has it, or several while they change; None signs nothing.
    """

    url: str
    token_variable: str | None = None
    timeout: float = 10.0
    secret_variable: str | None = None

    def problems(self) -> Iterable[str]:
        """What is wrong with it, one sentence each; repeats no address, which may hold a secret."""
        if web_address(self.url) is None:
            yield "a webhook's url must begin with http:// or https:// and name a host"
        if not 0 < self.timeout <= LONGEST_ANSWER:
            yield f"a webhook's timeout must be more than 0 and at most {LONGEST_ANSWER:.0f} seconds"


@dataclass(frozen=True, slots=True)
class StartWorkflow:
    """Deliver by starting another workflow on the same Temporal, once, with what a webhook would be sent.

    Attributes:
        type: The workflow's type.
        task_queue: Where its workers poll.
        prefix: What its id begins with; the rest is the idempotency key.
    """

    type: str
    task_queue: str
    prefix: str = "delivery-"


Destination: TypeAlias = Outbox | Webhook | StartWorkflow


@dataclass(frozen=True, slots=True)
class Coalescing:
    """Merge the events of one subject that come close together: one run sees the latest of them.

    Attributes:
        quiet: The run starts when nothing has come for so long.
        longest: However much comes, no event waits longer than this.
    """

    quiet: timedelta
    longest: timedelta


@dataclass(frozen=True, kw_only=True)
class Playbook(Generic[A]):
    """What to ask, when to trust it, where to send it.

    Attributes:
        id: Unique in an app.
        classifier: The classifier that is asked, or its key or id.
        routes: The closed set of places to send to; anything else the route function says goes to review.
        route: From typed answers to one of `routes`, or a `Review`; may be async.
        gates: Lowest probability per question; below it a person decides.
        destinations: Where each route delivers; "*" is for all that are not named.
        state: From an event's data to what is asked about; by default text under `text`, `body`, `message`
            or `content`, else the data as it is.
        event_types: The CloudEvents types it takes; empty for all.
        policy_version: The author's name for this policy, recorded with every decision.
        ordered: Its events are states of their subject: an older one never follows a newer one.
        coalescing: How long events of one subject are gathered for one run; implies `ordered`.
        own_actors: Who acts on our behalf elsewhere; what these cause starts no run.
        review: How long an event waits for a person, and what happens then; None waits for ever.
        shadow: What decides beside it, on record and without effect.
    """

    id: str
    classifier: Classifier[A] | str
    routes: tuple[str, ...]
    route: RouteFunction[A]
    destinations: Mapping[str, Destination]
    gates: Mapping[str, float]
    state: Callable[[JSON], State] | None = None
    event_types: tuple[str, ...] = ()
    policy_version: str | None = None
    ordered: bool = False
    coalescing: Coalescing | None = None
    own_actors: tuple[str, ...] = ()
    review: ReviewRules | None = None
    shadow: Shadow[Any] | None = None

    async def branch(self, answers: Any) -> Branch:
        """What becomes of an event with these answers.

        Raises:
            PolicyError: The route function raised, or returned neither a route nor a `Review`.
        """
        return self.branch_for(await self._routed(answers), answers)

    def branch_for(self, chosen: str | Review, answers: Any) -> Branch:
        """What becomes of an event for which the route function chose this."""
        closed = closed_gates(self.gates, answers)
        if isinstance(chosen, Review):
            return Branch("review", chosen.suggestion, (_code(chosen.reason), *closed))
        if chosen not in self.routes:
            return Branch("review", None, ("not_in_set", *closed))
        return Branch("review", chosen, closed) if closed else Branch("route", chosen)

    def state_of(self, data: JSON) -> State:
        """What is asked about an event with this data; blank text where it says nothing.

        Raises:
            PolicyError: The playbook's own `state` function raised.
        """
        if self.state is None:
            return text_of_event(data)
        try:
            return self.state(data)
        except Exception as error:
            raise PolicyError(
                f"the state function of playbook {self.id!r} raised {type(error).__name__}"
            ) from error

    def destination(self, route: str) -> Destination | None:
        """Where `route` delivers, or None."""
        return self.destinations.get(route) or self.destinations.get("*")

    def problems(self) -> Iterable[str]:
        """What is wrong with the declaration by itself, one sentence each."""
        if not self.id.strip():
            yield "a playbook's id must not be blank"
        if not self.routes:
            yield f"playbook {self.id!r} has no routes"
        yield from self._destination_problems()
        together = self.coalescing
        if together is not None and not timedelta(0) < together.quiet <= together.longest:
            yield f"playbook {self.id!r} coalesces: quiet must be more than nothing and at most longest"
        if self.review is not None:
            yield from (f"playbook {self.id!r}: {problem}" for problem in self.review.problems(self.routes))
        if self.shadow is not None:
            yield from self.shadow.problems(self)

    def unset(self, environ: Mapping[str, str]) -> Iterable[str]:
        """Which variables its destinations miss, one sentence each; repeats no secret."""
        for destination in dict.fromkeys(self.destinations.values()):
            if not isinstance(destination, Webhook):
                continue
            token = destination.token_variable
            if token and not environ.get(token):
                yield f"playbook {self.id!r}: {token} is not set; a webhook's token is in it"
            if destination.secret_variable:
                try:
                    secrets_in(destination.secret_variable, environ.get(destination.secret_variable))
                except ConfigurationError as error:
                    yield f"playbook {self.id!r}: {error}"

    def _destination_problems(self) -> Iterable[str]:
        for route in self.routes:
            if self.destination(route) is None:
                yield f"playbook {self.id!r} has no destination for route {route!r}; add it, or '*' for all"
        for route in self.destinations:
            if route != "*" and route not in self.routes:
                yield f"playbook {self.id!r} delivers {route!r}, which is not one of its routes"
        for destination in dict.fromkeys(self.destinations.values()):
            if isinstance(destination, Webhook):
                yield from (f"playbook {self.id!r}: {problem}" for problem in destination.problems())

    async def _routed(self, answers: Any) -> str | Review:
        try:
            chosen: Any = await asyncio.to_thread(self.route, answers)
            if inspect.isawaitable(chosen):
                chosen = await chosen
        except ClassifierError:
            raise
        except Exception as error:
            raise PolicyError(
                f"the route function of playbook {self.id!r} raised {type(error).__name__}"
            ) from error
        if not isinstance(chosen, str | Review):
            kind = type(chosen).__name__
            raise PolicyError(
                f"the route function of playbook {self.id!r} returned a {kind}, not a route or Review"
            )
        return chosen


def text_of_event(data: JSON) -> State:
    """The text of an event's data: itself, or what is under `text`, `body`, `message` or `content`.

    An object without any of these is asked about as it is; nothing at all is blank text.
    """
    if data is None:
        return ""
    if isinstance(data, Mapping):
        texts = (data.get(key) for key in TEXT_KEYS)
        return next((text for text in texts if isinstance(text, str)), data)
    return str(data) if isinstance(data, bool | int | float) else data


def _code(reason: str) -> str:
    if not reason.strip() or len(reason) > MAX_REASON:
        raise ConfigurationError(f"a review's reason is a short code of at most {MAX_REASON} characters")
    return reason
