"""A policy of today over stored answers: what changes, what fails, and when it gets whole decisions."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from classifier.answers import BooleanAnswer, Refusal, UnreadAnswers
from classifier.backtest import Backtest, BacktestReport, StoredAnswers, WantsMore, stored_answers
from classifier.classifier import Classifier
from classifier.decision import Branch, Coordinates, Decision
from classifier.errors import InvalidAnswer, PolicyError
from classifier.models.scripted import ScriptedModel
from classifier.playbook import Outbox, Playbook, Review
from classifier.policy import PolicyContext
from classifier.processor import ClassifierProcessor
from tests.classifier.conformance import (
    SafetyQuestions,
    abort_unsafe,
    broken,
    filter_unsafe,
    swallow_abort,
)
from tests.classifier.guarding import guarding

Policy = Callable[[SafetyQuestions, PolicyContext[SafetyQuestions]], Any]
AT = datetime(2026, 3, 1, tzinfo=UTC)


def decision(probability: float | None, outcome: Any = "allowed", **known: Any) -> Decision:
    answers = None if probability is None else {"unsafe": BooleanAnswer(probability)}
    return Decision(
        decision_id=uuid.uuid4(),
        decided_at=AT,
        coordinates=Coordinates("default"),
        ordinal=0,
        classifier_id="safety",
        phase="input",
        outcome=outcome,
        state="text",
        answers=answers,
        question_set="q",
        duration_ms=1.0,
        attempts=1,
        **known,
    )


def ran(policy: Policy, *decisions: Decision) -> BacktestReport:
    return Backtest(guarding(policy=policy)).run(map(stored_answers, decisions))


def test_what_would_change_is_counted_by_before_and_after_with_examples() -> None:
    calm, bad, dropped = decision(0.1), decision(0.9), decision(0.1, "filtered")
    report = ran(abort_unsafe, calm, bad, dropped)
    assert report.decisions == 3
    assert report.unchanged == 1
    assert report.changes == {("allowed", "aborted"): 1, ("filtered", "allowed"): 1}
    assert report.examples == {
        ("allowed", "aborted"): [bad.decision_id],
        ("filtered", "allowed"): [dropped.decision_id],
    }


def test_a_decision_without_answers_is_counted_and_no_policy_asked() -> None:
    report = ran(broken, decision(None))
    assert (report.decisions, report.failed, report.unchanged, report.errors) == (1, 1, 0, {})


def test_an_abort_that_a_policy_catches_is_an_abort_here_too() -> None:
    assert ran(swallow_abort, decision(0.9)).changes == {("allowed", "aborted"): 1}


def test_a_policy_that_raises_is_counted_by_kind_and_the_rest_goes_on() -> None:
    def picky(answers: SafetyQuestions, context: PolicyContext[SafetyQuestions]) -> None:
        if answers.unsafe.probability_or(1.0) > 0.8:
            raise ValueError("jane@example.test")

    bad = decision(0.9)
    report = ran(picky, bad, decision(0.1))
    assert (report.errors, report.unchanged) == ({"ValueError": 1}, 1)
    assert report.examples["", "ValueError"] == [bad.decision_id]


def test_a_misused_abort_is_an_error_of_the_policy() -> None:
    def blank(answers: SafetyQuestions, context: PolicyContext[SafetyQuestions]) -> None:
        context.abort(" ")

    assert ran(blank, decision(0.1)).errors == {PolicyError.code: 1}


def test_answers_to_other_questions_than_todays_are_errors() -> None:
    other = replace(decision(0.1), answers={"harmful": BooleanAnswer(0.1)})
    assert ran(abort_unsafe, other).errors == {"KeyError": 1}


def test_a_refusal_reaches_the_policy() -> None:
    refused = replace(decision(0.1), answers={"unsafe": Refusal()})
    assert ran(filter_unsafe, refused).changes == {("allowed", "filtered"): 1}


def test_an_async_policy_is_awaited() -> None:
    async def later(answers: SafetyQuestions, context: PolicyContext[SafetyQuestions]) -> None:
        context.filter()

    assert ran(later, decision(0.1), decision(0.2)).changes == {("allowed", "filtered"): 2}


def by_plan(answers: SafetyQuestions, context: PolicyContext[SafetyQuestions]) -> None:
    if context.request_context.get("plan") == "free":
        context.filter()


def by_model(answers: SafetyQuestions, context: PolicyContext[SafetyQuestions]) -> None:
    try:
        old = context.result.response.model == "jev-1"
    except Exception:  # noqa: BLE001 - as careless policies do
        old = False
    if old:
        context.filter()


@pytest.mark.parametrize("policy", [by_plan, by_model])
def test_a_policy_that_looks_at_more_than_answers_gets_whole_decisions(policy: Policy) -> None:
    seen = decision(0.1, request_context={"plan": "free"}, resolved_model="jev-1")
    with pytest.raises(WantsMore):
        ran(policy, seen)
    report = Backtest(guarding(policy=policy)).run_whole([seen, decision(0.1)])
    assert (report.changes, report.unchanged) == ({("allowed", "filtered"): 1}, 1)


def test_a_policy_is_given_phase_and_message() -> None:
    seen: list[Any] = []

    def look(answers: SafetyQuestions, context: PolicyContext[SafetyQuestions]) -> None:
        seen.append((context.phase, context.message_id))

    ran(look, decision(0.1))
    assert seen == [("input", None)]


def test_whether_there_is_a_request_context_is_not_known_before_it_is_read() -> None:
    def look(answers: SafetyQuestions, context: PolicyContext[SafetyQuestions]) -> None:
        if context.request_context:
            context.filter()

    with pytest.raises(WantsMore):
        ran(look, decision(0.1))


def test_the_answers_have_the_type_that_the_processor_declares() -> None:
    seen: list[Any] = []
    safety = Classifier("safety", ScriptedModel([]), SafetyQuestions)
    processor = ClassifierProcessor[SafetyQuestions](
        classifier="safety", on_result=lambda answers, context: seen.append(type(answers))
    )
    Backtest(processor).run([stored_answers(decision(0.1))])
    Backtest(processor.bound(safety)).run([stored_answers(decision(0.1))])
    assert seen == [SafetyQuestions, SafetyQuestions]


def test_a_playbook_is_run_with_its_gates() -> None:
    def route(answers: SafetyQuestions) -> str | Review:
        return "block" if answers.unsafe.at_least(0.5, unsure=True) else "pass"

    playbook = Playbook(
        id="safety",
        classifier=Classifier("safety", ScriptedModel([]), SafetyQuestions),
        routes=("pass", "block"),
        route=route,
        gates={"unsafe": 0.8},
        destinations={"*": Outbox("out.jsonl")},
    )
    decisions = [
        decision(0.9, branch=Branch("route", "pass")),
        decision(0.6, branch=Branch("route", "block")),
        decision(0.1, branch=Branch("route", "pass")),
        decision(0.5, branch=Branch("review", "pass", ("low_probability:unsafe",))),
    ]
    report = Backtest(playbook).run(map(stored_answers, decisions))
    assert report.changes == {("route pass", "route block"): 1, ("route block", "review"): 1}
    assert report.unchanged == 2


def test_reports_add_up_and_keep_few_examples() -> None:
    decisions = [decision(0.9) for _ in range(12)]
    report = ran(abort_unsafe, *decisions[:6])
    report.add(ran(abort_unsafe, *decisions[6:]))
    assert (report.decisions, report.changes) == (12, {("allowed", "aborted"): 12})
    assert report.examples["allowed", "aborted"] == [each.decision_id for each in decisions[:5]]


def test_an_answer_that_cannot_be_read_counts_against_the_decisions_whose_policy_looks_at_it() -> None:
    def look(answers: SafetyQuestions, context: PolicyContext[SafetyQuestions]) -> None:
        if context.message_id == "looked at":
            abort_unsafe(answers, context)

    damaged = UnreadAnswers({"unsafe": {"type": "boolean"}})
    stored = [
        StoredAnswers(str(uuid.uuid4()), "allowed", "input", message, damaged)
        for message in ("looked at", "left alone")
    ]
    report = Backtest(guarding(policy=look)).run(stored)
    assert (report.errors, report.unchanged) == ({InvalidAnswer.code: 1}, 1)
