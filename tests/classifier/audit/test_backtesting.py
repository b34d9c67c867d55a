"""A policy of today over decisions in PostgreSQL: each once, of one tenant, with what the policy looks at."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncGenerator, Callable
from dataclasses import replace
from typing import Any

import pytest

from classifier.answers import BooleanAnswer
from classifier.audit.backtesting import Backtester
from classifier.audit.contents import ContentPolicy
from classifier.audit.postgres import PostgresStore
from classifier.audit.query import AnswerCondition, DecisionQuery
from classifier.backtest import CONTEXT_GONE, Backtest
from classifier.classifier import Classifier
from classifier.decision import Branch, Ids
from classifier.models.scripted import ScriptedModel
from classifier.playbook import Outbox, Playbook
from classifier.policy import PolicyContext
from classifier.processor import ClassifierProcessor
from classifier.questions import Boolean, Choice, Questions
from tests.classifier.audit.examples import KEY, decision
from tests.classifier.audit.many import fill

ROWS = 9000
ACME = DecisionQuery(tenant="acme")


class Looks(Questions):
    topic = Choice({"billing": None, "other": None, "fraud": None})
    unsafe = Boolean("Is it unsafe?")


LOOKS = Classifier("looks", ScriptedModel([]), Looks)
Policy = Callable[[Looks, PolicyContext[Looks]], Any]


def abort_unsafe(answers: Looks, context: PolicyContext[Looks]) -> None:
    if answers.unsafe.probability_or(1.0) >= 0.5:
        context.abort("unsafe")


def on(policy: Policy) -> Backtest:
    return Backtest(ClassifierProcessor(classifier=LOOKS, on_result=policy))


@pytest.fixture
async def backtester(database_url: str) -> AsyncGenerator[Backtester]:
    async with Backtester(database_url) as backtester:
        yield backtester


@pytest.mark.slow
async def test_every_decision_of_every_page_is_judged_once(backtester: Backtester, database_url: str) -> None:
    await fill(database_url, "acme", ROWS)
    done: list[int] = []
    report = await backtester.run(ACME, on(abort_unsafe), progress=done.append)
    unsafe = [number for number in range(1, ROWS + 1) if number % 1000 >= 500]
    was_aborted = [number for number in unsafe if number % 50 == 0]
    assert report.decisions == sum(done) == ROWS
    assert len(done) > 2
    assert report.changes["allowed", "aborted"] == len(unsafe) - len(was_aborted)
    assert report.changes["aborted", "allowed"] == ROWS // 50 - len(was_aborted)
    assert report.unchanged == ROWS - report.changes.total()
    fraud = replace(ACME, answers=(AnswerCondition.parse("topic = fraud"),))
    assert (await backtester.run(fraud, on(abort_unsafe))).decisions == ROWS // 100


@pytest.mark.slow
async def test_a_policy_that_wants_more_on_a_later_page_gets_it_and_no_page_counts_twice(
    backtester: Backtester, database_url: str
) -> None:
    await fill(database_url, "acme", ROWS)

    def by_seat(answers: Looks, context: PolicyContext[Looks]) -> None:
        number = int((context.message_id or "")[2:])
        if number > 5000 and context.request_context["seat"] == number:
            context.filter()
        if number > 7000 and context.result.response.model == "jev-2026":
            context.abort("old model")

    report = await backtester.run(ACME, on(by_seat))
    assert report.decisions == ROWS
    assert report.changes["allowed", "filtered"] == 2000 - 2000 // 50
    assert report.changes["allowed", "aborted"] == 2000 - 2000 // 50
    assert report.errors == {}


async def test_sec_o05_no_backtest_sees_another_tenant(
    backtester: Backtester, postgres_store: PostgresStore
) -> None:
    await postgres_store.record([decision(tenant="globex", ids=Ids(thread="t-1"))])
    for query in (ACME, DecisionQuery(tenant="acme", thread="t-1")):
        assert (await backtester.run(query, on(abort_unsafe))).decisions == 0
        by_context = await backtester.run(query, on(lambda _, context: context.request_context["plan"]))
        assert by_context.decisions == 0


async def test_texts_that_the_store_had_to_escape_reach_the_policy_as_they_were(
    backtester: Backtester, postgres_store: PostgresStore
) -> None:
    class Odd(Questions):
        locals()["a\0b"] = Boolean("?")

    seen: list[Any] = []
    odd = Classifier("odd", ScriptedModel([]), Odd)
    processor = ClassifierProcessor[Any](
        classifier=odd, on_result=lambda answers, context: seen.append((list(answers), context.message_id))
    )
    await postgres_store.record([decision(answers={"a\0b": BooleanAnswer(0.5)}, ids=Ids(message="m\0"))])
    await backtester.run(ACME, Backtest(processor))
    assert seen == [(["a\0b"], "m\0")]


async def test_a_request_context_that_is_gone_is_an_error_only_of_a_policy_that_looks(
    backtester: Backtester, postgres_store: PostgresStore, database_url: str
) -> None:
    silent = PostgresStore(database_url, hash_key=KEY, contents=ContentPolicy(keep=False))
    context = {"plan": "free"}
    await silent.record([decision("unkept", request_context=context)])
    await postgres_store.record([decision("kept", request_context=context)])
    await silent.aclose()

    def by_plan(answers: Looks, context: PolicyContext[Looks]) -> None:
        if context.request_context.get("plan") == "free":
            context.filter()

    def careless(answers: Looks, context: PolicyContext[Looks]) -> None:
        with contextlib.suppress(Exception):
            by_plan(answers, context)

    def by_model(answers: Looks, context: PolicyContext[Looks]) -> None:
        assert context.result.response.model == ""

    for policy in (by_plan, careless):
        report = await backtester.run(ACME, on(policy))
        assert (report.changes, report.errors) == ({("allowed", "filtered"): 1}, {CONTEXT_GONE: 1})
    report = await backtester.run(ACME, on(by_model))
    assert (report.unchanged, report.errors) == (2, {})


async def test_a_playbook_is_compared_by_what_became_of_events(
    backtester: Backtester, postgres_store: PostgresStore
) -> None:
    await postgres_store.record(
        [
            decision("same", branch=Branch("route", "billing")),
            decision("odd\0", branch=Branch("route", "b\0")),
            decision("asked", branch=Branch("review", "billing")),
        ]
    )
    playbook = Playbook(
        id="looks",
        classifier=LOOKS,
        routes=("billing", "other"),
        route=lambda answers: answers.topic.choice_or("other"),
        gates={},
        destinations={"*": Outbox("out.jsonl")},
    )
    report = await backtester.run(ACME, Backtest(playbook))
    assert report.changes == {("route b\0", "route billing"): 1, ("review", "route billing"): 1}
    assert report.unchanged == 1
