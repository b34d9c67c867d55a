"""`classifier history`: lists and shows what was decided."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from datetime import UTC, datetime

from rich.console import Console
from rich.text import Text

from classifier.audit.export import strict
from classifier.audit.history import History
from classifier.audit.query import DecisionQuery
from classifier.audit.records import HistoryEvent
from classifier.decision import Decision
from classifier.decision_json import decision_to_json
from classifier.errors import ConfigurationError
from classifier.values import JSON, as_text
from commands.show import entry, print_json, said, say, table
from worker import Settings, opened

_SHORT = 60
_LONG = 2_000


async def list_decisions(
    settings: Settings, query: DecisionQuery, *, cursor: str | None, limit: int, as_json: bool
) -> None:
    """One page, newest first.

    Raises:
        ConfigurationError: The cursor is damaged, or of another tenant or filter.
    """
    async with opened(settings, temporal=False) as service, History(service.database_url) as history:
        page = await history.page(query, limit, cursor)
    if as_json:
        decisions: list[JSON] = [strict(decision_to_json(decision)) for decision in page.decisions]
        print_json({"decisions": decisions, "next_cursor": page.next_cursor, **bounds_of(query)})
        return
    console = Console()
    console.print(Text("Decisions, newest first", style="bold"))
    for decision in page.decisions:
        head = f"{decision.decision_id}  {time_of(decision.decided_at)}  {name_of(decision)}"
        entry(console, head, [became(decision), answers_of(decision)])
    if page.next_cursor is not None:
        bounds = "".join(f"--{name} {value} " for name, value in bounds_of(query).items() if value)
        say(console, f"more: {bounds}--cursor {page.next_cursor}")


async def show_decision(settings: Settings, decision_id: str, *, tenant: str, as_json: bool) -> None:
    """Everything about one decision, and what followed.

    Raises:
        ConfigurationError: There is none with this id.
    """
    wanted = identity(decision_id)
    async with opened(settings, temporal=False) as service, History(service.database_url) as history:
        decision = await history.get(tenant, wanted)
        if decision is None:
            raise ConfigurationError(f"tenant {tenant!r} has no decision {decision_id}")
        events = await history.events(tenant, decision.coordinates.workflow_id)
    if as_json:
        followed: list[JSON] = [event_json(event) for event in events]
        print_json(strict({**decision_to_json(decision), "events": followed}))
        return
    console = Console()
    console.print(table(f"Decision {decision.decision_id}", ["", ""], list(_facts(decision))))
    answers = decision.answers or {}
    console.print(
        table("Answers", ["question", "answer"], [(name, said(answer)) for name, answer in answers.items()])
    )
    if events:
        rows = [(time_of(event.at), event.kind, event.actor or "", brief(event.body)) for event in events]
        console.print(table("What followed", ["at", "what", "by", "facts"], rows))


def identity(text: str) -> uuid.UUID:
    """A decision's id.

    Raises:
        ConfigurationError: It is not one.
    """
    try:
        return uuid.UUID(text)
    except ValueError as error:
        raise ConfigurationError(
            f"{text!r} is not a decision's id; `classifier history list` prints them"
        ) from error


def became(decision: Decision) -> str:
    """What policy made of it, in a few words."""
    if decision.branch is None:
        return (
            decision.outcome if decision.failure is None else f"{decision.outcome}, {decision.failure.code}"
        )
    branch = decision.branch
    reasons = f" ({', '.join(branch.reasons)})" if branch.reasons else ""
    return f"{branch.action} {branch.route or ''}".strip() + reasons


def name_of(decision: Decision) -> str:
    """What decided, by the most telling of its ids."""
    return decision.playbook_id or decision.processor_id or decision.classifier_id


def answers_of(decision: Decision) -> str:
    """The answers in a few words each."""
    answers = decision.answers or {}
    return ", ".join(f"{name}: {said(answer)}" for name, answer in answers.items())


def bounds_of(query: DecisionQuery) -> dict[str, JSON]:
    """The times of a query as they were meant, since an age such as 7d means another the next time."""
    moments = {"since": query.since, "until": query.until}
    return {name: None if at is None else at.isoformat() for name, at in moments.items()}


def _facts(decision: Decision) -> list[tuple[str, str]]:
    at, usage, ids = decision.coordinates, decision.usage, decision.ids
    facts: list[tuple[str, object]] = [
        ("text", beginning(as_text(decision.state), _LONG)),
        ("text before", decision.original and beginning(decision.original, _LONG)),
        ("normalised", ", ".join(decision.normalised)),
        ("decided at", time_of(decision.decided_at)),
        ("became", became(decision)),
        ("outcome", decision.outcome),
        ("mode", None if decision.mode == "enforce" else decision.mode),
        ("shadow of", decision.shadow_of),
        ("gates", ", ".join(f"{name} >= {least}" for name, least in decision.gates.items())),
        ("playbook", decision.playbook_id),
        ("policy version", decision.policy_version),
        ("processor", decision.processor_id),
        ("classifier", decision.classifier_id),
        ("question set", decision.question_set[:16]),
        ("model asked for", decision.requested_model),
        ("model that answered", decision.resolved_model),
        ("provider", decision.provider),
        ("provider's request", decision.provider_request_id),
        ("took", f"{decision.duration_ms:.0f} ms, asked {decision.attempts} times"),
        ("tokens", usage.total_tokens),
        (
            "cut",
            decision.truncation
            and f"{decision.truncation.sent} of {decision.truncation.original} characters",
        ),
        ("warnings", "; ".join(decision.warnings)),
        ("failure", decision.failure and f"{decision.failure.code}: {decision.failure.message}"),
        ("tripwire", decision.tripwire and decision.tripwire.reason),
        ("message", ids.message),
        ("thread", ids.thread),
        ("resource", ids.resource),
        ("trace", ids.trace),
        ("workflow", at.workflow_id),
        ("run", at.run_id),
    ]
    return [(name, str(value)) for name, value in facts if value not in {None, ""}]


def event_json(event: HistoryEvent) -> dict[str, JSON]:
    """An event of the history, for machines."""
    return {
        "event_id": str(event.event_id),
        "at": event.at.isoformat(),
        "kind": event.kind,
        "actor": event.actor,
        "workflow_id": event.workflow_id,
        "body": dict(event.body),
    }


def brief(body: Mapping[str, JSON]) -> str:
    """An event's facts, on one line."""
    return ", ".join(f"{name} {as_text(value)}" for name, value in body.items() if value is not None)


def time_of(at: datetime) -> str:
    """A time in UTC, to the second."""
    return at.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%SZ")


def beginning(text: str, most: int) -> str:
    """A text, or so much of its beginning and how much more there is."""
    more = len(text) - most
    return text if more <= 0 else f"{text[:most]}… ({more:,} more characters; --json has them)"


def shortened(text: str) -> str:
    """The beginning of a text, on one line."""
    line = " ".join(text.split())
    return line if len(line) <= _SHORT else line[: _SHORT - 1] + "…"
