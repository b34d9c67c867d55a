"""Figures: counts and shares, percentiles, rates, tokens and cost, of one tenant alone."""

from __future__ import annotations

import math
from collections.abc import AsyncGenerator
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from classifier.answers import Refusal
from classifier.audit.postgres import PostgresStore
from classifier.audit.query import DecisionQuery
from classifier.audit.statistics import Decider, Health, Spending, Statistics, Volume
from classifier.decision import Branch, DecisionFailure, Ids
from classifier.result import Usage
from tests.classifier.audit.examples import NOW, decision

ALL = DecisionQuery(tenant="acme")
NOON = NOW.replace(hour=12, minute=0, second=0, microsecond=0)
TODAY = NOON.replace(hour=0)
GUARD = Decider("tickets", "guard", None)
PLAIN = Decider("tickets", None, None)


@pytest.fixture
async def statistics(database_url: str) -> AsyncGenerator[Statistics]:
    async with Statistics(database_url) as statistics:
        yield statistics


async def test_outcomes_are_counted_by_hour_and_decider_with_their_share(
    postgres_store: PostgresStore, statistics: Statistics
) -> None:
    written = [
        decision(f"w{number}", decided_at=NOON + timedelta(minutes=number), processor_id="guard")
        for number in range(3)
    ]
    written[0] = replace(written[0], outcome="aborted")
    late = decision("late", decided_at=NOON + timedelta(minutes=60), branch=Branch("review", None))
    await postgres_store.record([*written, late])
    assert await statistics.volumes(ALL, "hour") == (
        Volume(NOON, GUARD, "aborted", 1, 1 / 3, 0),
        Volume(NOON, GUARD, "allowed", 2, 2 / 3, 0),
        Volume(NOON + timedelta(hours=1), PLAIN, "allowed", 1, 1.0, 1),
    )
    assert [(one.start, one.count) for one in await statistics.volumes(ALL, "day")] == [
        (TODAY, 1),
        (TODAY, 2),
        (TODAY, 1),
    ]


async def test_days_are_those_of_utc(postgres_store: PostgresStore, statistics: Statistics) -> None:
    midnight = datetime.fromisoformat(f"{TODAY.date()}T00:30:00+05:30")
    await postgres_store.record([decision(decided_at=midnight)])
    [volume] = await statistics.volumes(ALL)
    assert volume.start == TODAY - timedelta(days=1)
    assert volume.start.tzinfo == UTC


async def test_percentiles_are_durations_that_occurred_and_rates_are_by_decider(
    postgres_store: PostgresStore, statistics: Statistics
) -> None:
    written = [
        decision(f"w{number}", duration_ms=float(number), processor_id="guard") for number in range(1, 101)
    ]
    written[0] = replace(written[0], answers=None, failure=DecisionFailure("MODEL_ERROR", ""))
    for number in range(5):
        written[number + 1] = replace(written[number + 1], answers={"topic": Refusal()})
    endless = decision("endless", duration_ms=math.inf)
    await postgres_store.record([*written, endless])
    guard, plain = await statistics.health(ALL)
    assert guard == Health(GUARD, 100, 50.0, 95.0, 99.0, refused=5, failed=1)
    assert (guard.refusal_rate, guard.failure_rate) == (0.05, 0.01)
    assert plain == Health(PLAIN, 1, None, None, None, refused=0, failed=0)


async def test_tokens_and_cost_are_by_day_and_model_and_say_what_is_unknown(
    postgres_store: PostgresStore, statistics: Statistics
) -> None:
    paid = decision("a", decided_at=NOON, resolved_model="jev-1", usage=Usage(100, 20, 0.25))
    free = decision("b", decided_at=NOON, requested_model="jev-1", usage=Usage(50, None, None))
    other = decision("c", decided_at=NOON - timedelta(days=1), resolved_model="x\0")
    await postgres_store.record([paid, free, other])
    assert await statistics.spendings(ALL) == (
        Spending("acme", TODAY.date() - timedelta(days=1), "x\0", 1, 0, 0, None, 1),
        Spending("acme", TODAY.date(), "jev-1", 2, 150, 20, 0.25, 1),
    )


async def test_filters_hold_for_figures(postgres_store: PostgresStore, statistics: Statistics) -> None:
    await postgres_store.record([decision("a", ids=Ids(thread="t-1")), decision("b")])
    thread = DecisionQuery(tenant="acme", thread="t-1")
    assert [one.count for one in await statistics.volumes(thread)] == [1]
    assert [one.count for one in await statistics.health(thread)] == [1]
    assert [one.count for one in await statistics.spendings(thread)] == [1]


async def test_sec_o05_no_figure_crosses_tenants(
    postgres_store: PostgresStore, statistics: Statistics
) -> None:
    await postgres_store.record([decision(tenant="globex", ids=Ids(thread="t-1"), usage=Usage(1, 1, 1.0))])
    for query in (ALL, DecisionQuery(tenant="acme", thread="t-1")):
        assert await statistics.volumes(query) == ()
        assert await statistics.health(query) == ()
        assert await statistics.spendings(query) == ()


@pytest.mark.parametrize(
    ("decider", "name"),
    [(PLAIN, "tickets"), (GUARD, "guard"), (Decider("tickets", None, "triage"), "triage")],
)
def test_a_decider_goes_by_the_most_telling_of_its_ids(decider: Decider, name: str) -> None:
    assert decider.name == name
