"""`classifier review`: what waits for a person, who is at work on it, and the person's choice."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta

from rich.console import Console

from classifier.ages import age
from classifier.audit.export import strict
from classifier.audit.history import History
from classifier.audit.query import Position
from classifier.audit.records import HistoryEvent
from classifier.audit.waiting import OpenReview, ReviewQuery
from classifier.decision import Branch, Decision
from classifier.decision_json import decision_to_json
from classifier.errors import ConfigurationError
from classifier.values import JSON, as_text
from commands.look import became, brief, event_json, identity, shortened, time_of
from commands.show import print_json, program, said, say, table
from commands.working import a_worker
from worker import Settings, app_of, opened
from workflows.messages import DEADLINE
from workflows.review_client import ENDED, NO_WORKER, PATIENCE, Reviewer, ReviewRefused

_PAGE = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class Listing:
    """Which of those that wait are listed.

    Attributes:
        tenant: Whose.
        playbook: Only this playbook's.
        queue: Only those that a deadline handed to this queue.
        older_than: Only those that wait for so long, such as 2h.
        limit: How many at most.
    """

    tenant: str
    playbook: str | None = None
    queue: str | None = None
    older_than: str | None = None
    limit: int = 20


async def list_reviews(settings: Settings, listing: Listing, *, as_json: bool) -> None:
    """Events that wait, oldest first.

    Raises:
        ConfigurationError: The age cannot be read.
    """
    now = datetime.now(UTC)
    before = None if listing.older_than is None else now - age(listing.older_than)
    wanted = ReviewQuery(playbook=listing.playbook, queue=listing.queue, before=before)
    async with opened(settings, temporal=False) as service, History(service.database_url) as history:
        waiting = await _waiting(history, listing, wanted)
    if as_json:
        listed: list[JSON] = [strict(_as_json(one, now)) for one in waiting]
        print_json({"waiting": listed})
        return
    console = Console()
    rows = [_row(one, now) for one in waiting]
    columns = ["=decision", "#waits", "at work", "text", "why"]
    console.print(table("Waiting for a person, oldest first", columns, rows))
    if waiting:
        example = f"{program()} review decide {waiting[0].decision.decision_id} --route ROUTE --by NAME"
        say(console, f"\ndecide: {example}")


async def show_review(settings: Settings, decision_id: str, *, tenant: str, as_json: bool) -> None:
    """All about one that waits, or waited.

    Raises:
        ConfigurationError: There is no such decision.
    """
    async with opened(settings, temporal=False) as service, History(service.database_url) as history:
        decision = await _decision(history, tenant, decision_id)
        wanted = ReviewQuery(decision_id=decision.decision_id)
        waiting = await history.open_reviews(tenant, 1, wanted=wanted)
        events = await history.events(tenant, decision.coordinates.workflow_id)
    routes = _routes(settings, decision)
    now = datetime.now(UTC)
    if as_json:
        body: dict[str, JSON] = {
            **decision_to_json(decision),
            "review": waiting[0].to_json(now) if waiting else None,
            "routes": list(routes),
            "events": [event_json(event) for event in events],
        }
        print_json(strict(body))
        return
    console = Console()
    facts = [("text", as_text(decision.state)), *_facts(decision, waiting, events, now)]
    facts.append(("routes", ", ".join(routes)))
    console.print(table(f"Review of {decision.decision_id}", ["", ""], [each for each in facts if each[1]]))
    answers = [(name, said(answer)) for name, answer in (decision.answers or {}).items()]
    console.print(table("Answers", ["question", "answer"], answers))
    rows = [(time_of(event.at), event.kind, event.actor or "", brief(event.body)) for event in events]
    if rows:
        console.print(table("What followed", ["at", "what", "by", "facts"], rows))


async def claim_review(
    settings: Settings, decision_id: str, *, tenant: str, by: str, lasting: str, as_json: bool
) -> None:
    """Takes a review on for a while, or goes on with it.

    Raises:
        ConfigurationError: There is no such decision, or the time cannot be read.
        ReviewRefused: Its run does not wait, or somebody else is at work on it.
    """
    length = age(lasting)
    async with _acting(settings, decision_id, tenant, by, PATIENCE) as (reviewer, decision):
        status = await reviewer.claim(decision, length)
    assert status is not None  # it was waited for
    assert status.claimed_until is not None
    if as_json:
        print_json({"decision_id": decision_id, "by": by, "until": status.claimed_until})
    else:
        until = time_of(datetime.fromisoformat(status.claimed_until))
        say(Console(), f"{decision_id} is {by}'s until {until}")


async def release_review(
    settings: Settings, decision_id: str, *, tenant: str, by: str, as_json: bool
) -> None:
    """Gives a review back; errors as for `claim_review`."""
    async with _acting(settings, decision_id, tenant, by, PATIENCE) as (reviewer, decision):
        await reviewer.release(decision)
    if as_json:
        print_json({"decision_id": decision_id, "by": by, "until": None})
    else:
        say(Console(), f"{decision_id} is anybody's again")


async def decide_review(
    settings: Settings,
    decision_id: str,
    *,
    tenant: str,
    route: str,
    by: str,
    reason: str | None,
    as_json: bool,
    patience: timedelta = PATIENCE,
) -> None:
    """Sends a person's choice to the run that waits, and says where the event went.

    Raises:
        ConfigurationError: There is no such decision, its run has ended, or no worker took the choice within
            `patience`.
        ReviewRefused: Its run does not wait, somebody else is at work on it, or there is no such route.
    """
    async with _acting(settings, decision_id, tenant, by, patience) as (reviewer, decision):
        status = await reviewer.decide(decision, route, reason)
    assert status is not None  # it was waited for
    if as_json:
        print_json({"decision_id": decision_id, "route": status.route, "state": status.state, "by": by})
        return
    where = status.destination or f"not yet delivered: {', '.join(status.reasons) or status.state}"
    say(Console(), f"{decision_id} → {status.route} ({where}), decided by {by}")


@contextlib.asynccontextmanager
async def _acting(
    settings: Settings, decision_id: str, tenant: str, by: str, patience: timedelta
) -> AsyncGenerator[tuple[Reviewer, Decision]]:
    """Somebody who acts on the run of a decision, with a worker that hears them."""
    async with (
        opened(settings) as service,
        History(service.database_url) as history,
        a_worker(service, app_of(settings)),
    ):
        decision = await _decision(history, tenant, decision_id)
        try:
            yield Reviewer(service.client, by, patience), decision
        except ReviewRefused as error:
            if error.code == NO_WORKER:
                raise ConfigurationError(
                    f"no worker on the queue {settings.task_queue!r} took the choice in "
                    f"{patience.total_seconds():.0f} s; start one with `{program()} worker`, "
                    f"then see with `{program()} review list` whether the event still waits"
                ) from error
            if error.code != ENDED:
                raise
            events = await history.events(tenant, decision.coordinates.workflow_id)
            end = _end(events)
            raise ConfigurationError(
                f"the run of decision {decision.decision_id} has ended; nothing waits{end and f': {end}'}"
            ) from error


async def _decision(history: History, tenant: str, decision_id: str) -> Decision:
    decision = await history.get(tenant, identity(decision_id))
    if decision is None:
        raise ConfigurationError(f"tenant {tenant!r} has no decision {decision_id}")
    return decision


async def _waiting(history: History, listing: Listing, wanted: ReviewQuery) -> list[OpenReview]:
    found: list[OpenReview] = []
    after: Position | None = None
    while len(found) < listing.limit:
        size = min(_PAGE, listing.limit - len(found))
        page = await history.open_reviews(listing.tenant, size, after, wanted)
        found += page
        if len(page) < size:
            break
        after = page[-1].position
    return found


def _routes(settings: Settings, decision: Decision) -> Sequence[str]:
    """What can be chosen, as the app says now; nothing where it does not know the playbook."""
    playbooks = {playbook.id: playbook for _, playbook in app_of(settings).playbooks}
    found = playbooks.get(decision.playbook_id or "")
    return () if found is None else found.routes


def _facts(
    decision: Decision, waiting: Sequence[OpenReview], events: Sequence[HistoryEvent], now: datetime
) -> list[tuple[str, str]]:
    playbook = ("playbook", decision.playbook_id or "")
    if not waiting:
        return [playbook, ("became", became(decision)), ("waits", f"no: {_end(events) or 'never did'}")]
    (one,) = waiting
    return [
        playbook,
        ("waits", f"{_age(one.since, now)}, since {time_of(one.since)}"),
        ("suggested", one.route or ""),
        ("why", ", ".join(one.reasons)),
        ("queue", one.desk.queue or ""),
        ("at work", _at_work(one, now)),
    ]


def _end(events: Sequence[HistoryEvent]) -> str:
    """What happened last, in a few words; empty where nothing did."""
    for event in reversed(events):
        match event.kind:
            case "review_defaulted":
                return f"its deadline chose {event.body.get('route')}"
            case "review":
                return f"{event.actor} chose {event.body.get('route')}"
            case "stop":
                return f"it was stopped at {time_of(event.at)}"
            case "delivery" if event.actor != DEADLINE:
                return f"it was delivered to {event.body.get('route')}, as {event.actor} decided"
            case _:
                pass
    return ""


def _as_json(one: OpenReview, now: datetime) -> dict[str, JSON]:
    return {**decision_to_json(one.decision), "review": one.to_json(now)}


def _row(one: OpenReview, now: datetime) -> tuple[str, ...]:
    decision = one.decision
    why = replace(decision, branch=Branch("review", one.route, one.reasons))
    at_work = "\n".join(each for each in (one.desk.queue, _at_work(one, now)) if each)
    age = _age(one.since, now)
    return str(decision.decision_id), age, at_work, shortened(as_text(decision.state)), became(why)


def _at_work(one: OpenReview, now: datetime) -> str:
    held = one.desk.held(now)
    return "" if held is None else f"{held.by} until {time_of(held.until)}"


def _age(since: datetime, now: datetime) -> str:
    seconds = int((now - since).total_seconds())
    for unit, size in (("d", 86_400), ("h", 3_600), ("m", 60)):
        if seconds >= size:
            return f"{seconds // size}{unit}"
    return f"{max(seconds, 0)}s"
