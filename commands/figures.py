"""`classifier history stats`: figures about decisions, as tables with bars or as JSON."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, replace
from datetime import UTC, date, datetime, timedelta
from itertools import groupby

from rich.console import Console

from classifier.audit.query import DecisionQuery
from classifier.audit.statistics import Every, Health, Spending, Statistics, Volume
from classifier.values import JSON
from commands.look import bounds_of, time_of
from commands.show import bar, print_json, say, table
from worker import Settings, opened

_LOOKS_BACK = {"hour": timedelta(hours=24), "day": timedelta(days=7)}
_FORMATS = {"hour": "%Y-%m-%d %H:00", "day": "%Y-%m-%d"}


async def stats(settings: Settings, query: DecisionQuery, *, every: Every, as_json: bool) -> None:
    """Prints how many, what became of them, how fast, and at what cost."""
    if query.since is None:
        query = replace(query, since=(query.until or datetime.now(UTC)) - _LOOKS_BACK[every])
    async with opened(settings, temporal=False) as service, Statistics(service.database_url) as statistics:
        volumes = await statistics.volumes(query, every)
        health = await statistics.health(query)
        spendings = await statistics.spendings(query)
    if as_json:
        print_json(_as_json(query, every, volumes, health, spendings))
        return
    console = Console()
    say(console, f"{_period(query)}, tenant {query.tenant}")
    console.print(table(f"Decisions by {every}", _VOLUME_COLUMNS, list(_volume_rows(volumes, every))))
    console.print(table("Calls", _HEALTH_COLUMNS, [_health_row(one) for one in health]))
    console.print(table("Tokens and cost by day", _SPENDING_COLUMNS, _spending_rows(spendings)))


_VOLUME_COLUMNS = ("", "what", "#decisions", "", "#filtered", "#aborted", "#to a person")
_HEALTH_COLUMNS = ("what", "classifier", "#calls", "#p50 ms", "#p95 ms", "#p99 ms", "#refused", "#failed")
_SPENDING_COLUMNS = ("", "model", "#decisions", "#tokens in", "#tokens out", "", "#US dollars")


def _period(query: DecisionQuery) -> str:
    since = "the beginning" if query.since is None else time_of(query.since)
    return f"From {since} to {'now' if query.until is None else time_of(query.until)}"


def _volume_rows(volumes: Sequence[Volume], every: Every) -> Iterable[tuple[str, ...]]:
    groups = [list(group) for _, group in groupby(volumes, key=lambda one: (one.start, one.decider))]
    totals = [sum(one.count for one in group) for group in groups]
    largest = max(totals, default=0)
    for group, total in zip(groups, totals, strict=True):
        share = {one.outcome: one.share for one in group}
        yield (
            group[0].start.strftime(_FORMATS[every]),
            group[0].decider.name,
            str(total),
            bar(total / largest),
            _percent(share.get("filtered", 0.0)),
            _percent(share.get("aborted", 0.0)),
            _percent(sum(one.reviews for one in group) / total),
        )


def _health_row(health: Health) -> tuple[str, ...]:
    return (
        health.decider.name,
        health.decider.classifier,
        str(health.count),
        *(_number(value) for value in (health.p50_ms, health.p95_ms, health.p99_ms)),
        _percent(health.refusal_rate),
        _percent(health.failure_rate),
    )


def _spending_rows(spendings: Sequence[Spending]) -> list[tuple[str, ...]]:
    most = max((one.input_tokens + one.output_tokens for one in spendings), default=0)
    return [
        (
            one.day.isoformat(),
            one.model or "",
            str(one.count),
            str(one.input_tokens),
            str(one.output_tokens),
            bar((one.input_tokens + one.output_tokens) / most if most else 0.0),
            _money(one),
        )
        for one in spendings
    ]


def _money(spending: Spending) -> str:
    if spending.cost is None:
        return "unknown"
    return f"{spending.cost:.4f}{' or more' if spending.unpriced else ''}"


def _percent(share: float) -> str:
    return f"{share:.1%}" if share else ""


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.0f}"


def _as_json(
    query: DecisionQuery,
    every: Every,
    volumes: Iterable[Volume],
    health: Iterable[Health],
    spendings: Iterable[Spending],
) -> dict[str, JSON]:
    return {
        "tenant": query.tenant,
        **bounds_of(query),
        "every": every,
        "volumes": [_plain(one) for one in volumes],
        "health": [
            {**_plain(one), "refusal_rate": one.refusal_rate, "failure_rate": one.failure_rate}
            for one in health
        ],
        "spendings": [_plain(one) for one in spendings],
    }


def _plain(figure: Volume | Health | Spending) -> dict[str, JSON]:
    return {
        name: value.isoformat() if isinstance(value, date) else value
        for name, value in asdict(figure).items()
    }
