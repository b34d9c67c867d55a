"""One question becomes a number from 0 to 1 with its evidence, and a refusal never does."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, assert_never, assert_type

import pytest

from classifier.answers import Answer, BooleanAnswer, ChoiceAnswer, Refusal, ScoreAnswer
from classifier.classifier import Classifier
from classifier.errors import ConfigurationError
from classifier.models.scripted import ScriptedModel
from classifier.questions import Boolean, Choice, Question, Score
from classifier.result import Rounding
from classifier.scorer import NotScorable, Scored, ScoreOutcome, Scorer

BOOLEAN = Boolean("Is it polite?")
CHOICE: Choice[Any] = Choice({"good": None, "fair": None, "bad": None})
SCORE = Score(["rude", "neutral", "kind"])
SCORES = {"good": 1.0, "fair": 0.5, "bad": 0}


def scorer(
    question: Question, answer: Answer | None = None, scores: Mapping[str, float] | None = None
) -> Scorer:
    model = ScriptedModel([{"q": answer or Refusal()}], rounding=Rounding(2, 2))
    return Scorer(Classifier("quality", model, {"q": question}), scores=scores)


@pytest.mark.parametrize(
    ("question", "answer", "scores", "value"),
    [
        (BOOLEAN, BooleanAnswer(0.83), None, 0.83),
        (BOOLEAN, BooleanAnswer(0.0), None, 0.0),
        (SCORE, ScoreAnswer(0.0), None, 0.0),
        (SCORE, ScoreAnswer(1.5, (0.0, 0.5, 0.5)), None, 0.75),
        (SCORE, ScoreAnswer(2.004), None, 1.0),
        (CHOICE, ChoiceAnswer("fair", {"good": 0.2, "fair": 0.6, "bad": 0.2}), SCORES, 0.5),
        (CHOICE, ChoiceAnswer("bad"), SCORES, 0.0),
    ],
)
async def test_an_answer_is_a_number_with_its_evidence(
    question: Question, answer: Answer, scores: Mapping[str, float] | None, value: float
) -> None:
    outcome = await scorer(question, answer, scores).score("Thank you!")
    assert isinstance(outcome, Scored)
    assert outcome.value == value
    assert outcome.answer is answer
    assert outcome.result.response.model == "scripted-1"
    assert outcome.result.usage.input_tokens == 10


@pytest.mark.parametrize(("question", "scores"), [(BOOLEAN, None), (SCORE, None), (CHOICE, SCORES)])
async def test_a_refusal_is_not_scorable_and_keeps_its_evidence(
    question: Question, scores: Mapping[str, float] | None
) -> None:
    outcome = await scorer(question, Refusal("blocked"), scores).score("text")
    assert isinstance(outcome, NotScorable)
    assert outcome.refusal == Refusal("blocked")
    assert outcome.result.response.provider == "scripted"
    assert not hasattr(outcome, "value")


def test_a_type_checker_sees_both_ends() -> None:
    def shown(outcome: ScoreOutcome) -> str:
        match outcome:
            case Scored(value=value):
                assert_type(value, float)
                return f"{value:.2f}"
            case NotScorable(refusal=refusal):
                return refusal.signal
            case _:
                assert_never(outcome)

    assert shown.__annotations__["outcome"] == "ScoreOutcome"


@pytest.mark.parametrize(
    ("question", "scores", "fault"),
    [
        (CHOICE, None, "lacks the options 'good', 'fair', 'bad'"),
        (CHOICE, {"good": 1.0, "bad": 0.0}, "lacks the options 'fair'"),
        (CHOICE, {**SCORES, "best": 1.0}, "'best', which the question does not offer"),
        (CHOICE, {**SCORES, "good": 1.1}, "'good' is not a number from 0 to 1"),
        (CHOICE, {**SCORES, "bad": -0.1}, "'bad' is not a number"),
        (CHOICE, {**SCORES, "fair": math.nan}, "'fair' is not a number"),
        (CHOICE, {**SCORES, "fair": True}, "'fair' is not a number"),
        (CHOICE, {**SCORES, "fair": "0.5"}, "'fair' is not a number"),
        (BOOLEAN, {"true": 1.0}, "not for a boolean"),
        (SCORE, {}, "not for a score"),
    ],
)
def test_scores_that_do_not_fit_are_found_when_it_is_built(
    question: Question, scores: Any, fault: str
) -> None:
    with pytest.raises(ConfigurationError, match=fault):
        scorer(question, scores=scores)


@pytest.mark.parametrize("questions", [None, {"a": BOOLEAN, "b": BOOLEAN}])
def test_a_scorer_has_exactly_one_question(questions: dict[str, Question] | None) -> None:
    with pytest.raises(ConfigurationError, match=r"one question; 'c' has [02]"):
        Scorer(Classifier("c", "model", questions))


async def test_a_scorer_over_a_named_model_is_bound_like_a_classifier() -> None:
    unbound = Scorer(Classifier("c", "fast", {"q": CHOICE}), scores=SCORES)
    bound = unbound.bound(ScriptedModel([{"q": ChoiceAnswer("good")}]))
    outcome = await bound.score("text")
    assert isinstance(outcome, Scored)
    assert outcome.value == 1.0
