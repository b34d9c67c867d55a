"""`classifier history`: lists and shows what was decided."""

from __future__ import annotations

import re
import uuid
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from rich.console import Console

from classifier.audit.history import History
from classifier.audit.query import AnswerCondition, DecisionQuery
from classifier.audit.records import HistoryEvent
from classifier.decision import Decision
from classifier.decision_json import decision_to_json
from classifier.errors import ConfigurationError
from classifier.values import JSON, as_text
from commands.show import print_json, said, say, table
from worker import Settings, opened

_AGE = re.compile(r"(\d+)([smhdw])")
_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days", "w": "weeks"}
_SHORT = 60


async def list_decisions(
    settings: Settings,
    *,
    tenant: str,
    filters: Mapping[str, Any],
    where: Sequence[str],
    cursor: str | None,
    limit: int,
    as_json: bool,
) -> None:
    """One page, newest first.

    Raises:
        ConfigurationError: A filter or the cursor is malformed.
    """
    given = {name: value for name, value in filters.items() if value is not None}
    for name in ("since", "until"):
        if name in given:
            given[name] = moment(given[name])
    conditions = tuple(AnswerCondition.parse(text) for text in where)
    query = DecisionQuery(tenant=tenant, answers=conditions, **given)
    async with opened(settings, temporal=False) as service, History(service.database_url) as history:
        page = await history.page(query, limit, cursor)
    if as_json:
        decisions: list[JSON] = [decision_to_json(decision) for decision in page.decisions]
        print_json({"decisions": decisions, "next_cursor": page.next_cursor})
        return
    console = Console()
    rows = [_row(decision) for decision in page.decisions]
    console.print(
        table("Decisions, newest first", ["decision", "decided at", "what", "answers", "became"], rows)
    )
    if page.next_cursor is not None:
        say(console, f"more: --cursor {page.next_cursor}")


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
        followed: list[JSON] = [_event_json(event) for event in events]
        print_json({**decision_to_json(decision), "events": followed})
        return
    console = Console()
    console.print(table(f"Decision {decision.decision_id}", ["", ""], list(_facts(decision))))
    answers = decision.answers or {}
    console.print(
        table("Answers", ["question", "answer"], [(name, said(answer)) for name, answer in answers.items()])
    )
    if events:
        rows = [(_time(event.at), event.kind, event.actor or "", _brief(event.body)) for event in events]
        console.print(table("What followed", ["at", "what", "by", "facts"], rows))


def moment(text: str, now: datetime | None = None) -> datetime:
    """A point in time: ISO 8601 with its offset, or an age such as 30m, 12h, 7d.

    Raises:
        ConfigurationError: It is neither.
    """
    age = _AGE.fullmatch(text.strip())
    try:
        if age is not None:
            return (now or datetime.now(UTC)) - timedelta(**{_UNITS[age[2]]: int(age[1])})
        return datetime.fromisoformat(text)
    except (ValueError, OverflowError) as error:
        raise ConfigurationError(
            f"{text!r} is no time; write 2026-11-02T08:00:00Z or an age such as 7d"
        ) from error


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


def _row(decision: Decision) -> tuple[str, ...]:
    answers = decision.answers or {}
    return (
        str(decision.decision_id),
        _time(decision.decided_at),
        decision.playbook_id or decision.processor_id or decision.classifier_id,
        "\n".join(f"{name}: {said(answer)}" for name, answer in answers.items()),
        became(decision),
    )


def _facts(decision: Decision) -> list[tuple[str, str]]:
    at, usage, ids = decision.coordinates, decision.usage, decision.ids
    facts: list[tuple[str, object]] = [
        ("text", as_text(decision.state)),
        ("decided at", _time(decision.decided_at)),
        ("became", became(decision)),
        ("outcome", decision.outcome),
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


def _event_json(event: HistoryEvent) -> dict[str, JSON]:
    return {
        "event_id": str(event.event_id),
        "at": event.at.isoformat(),
        "kind": event.kind,
        "actor": event.actor,
        "workflow_id": event.workflow_id,
        "body": dict(event.body),
    }


def _brief(body: Mapping[str, JSON]) -> str:
    return ", ".join(f"{name} {as_text(value)}" for name, value in body.items() if value is not None)


def _time(at: datetime) -> str:
    return at.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%SZ")


def shortened(text: str) -> str:
    """The beginning of a text, on one line."""
    line = " ".join(text.split())
    return line if len(line) <= _SHORT else line[: _SHORT - 1] + "…"
