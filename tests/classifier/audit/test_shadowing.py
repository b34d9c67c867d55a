"""Shadows against what they stand beside; and that nothing else in the history counts them."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from classifier.audit.history import History
from classifier.audit.postgres import PostgresStore
from classifier.audit.query import AnswerCondition, DecisionQuery
from classifier.audit.shadowing import Cell, Pair, Shadows, Side
from classifier.audit.statistics import Statistics
from classifier.decision import SHADOW, Branch, Decision, DecisionFailure
from classifier.errors import ConfigurationError
from classifier.result import Usage
from tests.classifier.audit.examples import NOW, decision

ALL = DecisionQuery(tenant="acme")
BILLING, CARDS = Branch("route", "billing␛"), Branch("route", "cards")
UNSURE = Branch("review", "cards", ("low_probability:topic",))
FAILURE = DecisionFailure("MODEL_TIMEOUT", "")


@pytest.fixture
async def shadows(database_url: str) -> AsyncGenerator[Shadows]:
    async with Shadows(database_url) as shadows:
        yield shadows


def pair(name: str, live: Branch, beside: Branch, **changes: Any) -> Sequence[Decision]:
    """A live decision of a playbook, and its shadow; `changes` are the shadow's."""
    plain = replace(
        decision(name, branch=live, duration_ms=10.0, usage=Usage(100, 1, 0.5)),
        playbook_id="tickets",
        policy_version="1",
    )
    at = replace(plain.coordinates, activity_id=plain.coordinates.activity_id + SHADOW)
    shadow = replace(
        plain,
        decision_id=at.decision_id(0),
        coordinates=at,
        mode="shadow",
        branch=beside,
        policy_version="2",
        duration_ms=2.0,
        usage=Usage(),
    )
    return plain, replace(shadow, **changes)


def failed() -> dict[str, Any]:
    """What of a decision says that there is no answer."""
    branch = Branch("review", None, ("error:MODEL_TIMEOUT",))
    return {"answers": None, "failure": FAILURE, "branch": branch}


async def test_agreement_differences_and_costs_are_told_by_policy(
    postgres_store: PostgresStore, shadows: Shadows
) -> None:
    pairs = [
        pair("same", BILLING, BILLING),
        pair("other", BILLING, CARDS),
        pair("newer", BILLING, CARDS),
        pair("unsure", CARDS, UNSURE),
        pair("both unsure", UNSURE, Branch("review", None, ("refused",))),
        pair("down", BILLING, BILLING, **failed()),
    ]
    later = [replace(each, decided_at=NOW + timedelta(seconds=1)) for each in pairs[2]]
    written = [each for one in pairs for each in one if one is not pairs[2]]
    await postgres_store.record([*written, *later, decision("without", playbook_id="tickets")])
    [found] = await shadows.compare(ALL)
    assert found.pair == Pair("tickets", "1", "tickets", "2", "tickets")
    assert (found.count, found.compared, found.agreement) == (6, 5, 2 / 5)
    live_ids = (pairs[2][0].decision_id, pairs[1][0].decision_id)
    assert found.cells[0] == Cell("route billing␛", "route cards", 2, live_ids)
    assert set(found.cells[1:]) == {
        Cell("review", "review", 1),
        Cell("route billing␛", "route billing␛", 1),
        Cell("route billing␛", "failed", 1, (pairs[5][0].decision_id,)),
        Cell("route cards", "review", 1, (pairs[3][0].decision_id,)),
    }
    assert found.live == Side(1, 0, 600, 6, 3.0, 10.0, 10.0)
    assert found.shadow == Side(3, 1, 0, 0, None, 2.0, 2.0)


async def test_policies_and_classifiers_are_compared_each_for_itself(
    postgres_store: PostgresStore, shadows: Shadows
) -> None:
    await postgres_store.record(
        [
            *pair("one", BILLING, CARDS),
            *pair("two", BILLING, BILLING, policy_version="3"),
            *pair("three", BILLING, BILLING, classifier_id="bigger"),
        ]
    )
    found = await shadows.compare(ALL)
    assert [(one.pair.shadow_version, one.pair.shadow_classifier, one.agreement) for one in found] == [
        ("2", "bigger", 1.0),
        ("2", "tickets", 0.0),
        ("3", "tickets", 1.0),
    ]


async def test_the_conditions_are_about_the_live_decision(
    postgres_store: PostgresStore, shadows: Shadows
) -> None:
    await postgres_store.record([*pair("one", BILLING, CARDS), *pair("two", CARDS, CARDS)])
    [found] = await shadows.compare(replace(ALL, route="cards"))
    assert found.cells == (Cell("route cards", "route cards", 1),)
    assert await shadows.compare(replace(ALL, tenant="globex")) == ()
    with pytest.raises(ConfigurationError, match="live"):
        await shadows.compare(replace(ALL, mode="shadow"))


async def test_nothing_that_counts_or_lists_what_is_live_sees_a_shadow(
    postgres_store: PostgresStore, history: History, database_url: str
) -> None:
    live, beside = pair("one", BILLING, UNSURE)
    await postgres_store.record([live, beside])
    billing = (AnswerCondition.parse("topic = billing"),)
    for query in (ALL, replace(ALL, answers=billing), replace(ALL, workflow="one", answers=billing)):
        assert (await history.page(query)).decisions == (live,)
        assert (await history.page(replace(query, mode="shadow"))).decisions == (beside,)
        assert len((await history.page(replace(query, mode="any"))).decisions) == 2
    async with Statistics(database_url) as statistics:
        assert [each.count for each in await statistics.volumes(ALL)] == [1]
        assert [each.count for each in await statistics.health(ALL)] == [1]
        assert [each.count for each in await statistics.spendings(ALL)] == [1]
    assert await history.open_reviews("acme", 10) == ()
    settled = (await history.settled("acme", ["one"]))["one"]
    assert (settled.action, settled.route, settled.waiting) == ("route", "billing␛", False)


async def test_a_shadow_that_was_surer_does_not_take_an_event_from_a_person(
    postgres_store: PostgresStore, history: History
) -> None:
    live, beside = pair("one", UNSURE, CARDS)
    await postgres_store.record([live, beside])
    [waiting] = await history.open_reviews("acme", 10)
    assert waiting.decision == live
    assert (await history.settled("acme", ["one"]))["one"].waiting


async def test_a_shadow_knows_its_live_decision() -> None:
    live, beside = pair("one", BILLING, CARDS)
    assert beside.shadow_of == live.decision_id
