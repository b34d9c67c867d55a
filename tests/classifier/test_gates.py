"""Gates: the lowest probability that passes, and what never passes."""

from __future__ import annotations

import math
from typing import Any

import pytest

from classifier.answers import Answer, BooleanAnswer, ChoiceAnswer, Refusal, ScoreAnswer
from classifier.errors import ConfigurationError
from classifier.gates import check_gates, closed_gates
from classifier.questions import Boolean, Choice, Question, Score

QUESTIONS: dict[str, Question] = {
    "b": Boolean("?"),
    "c": Choice({"x": None, "y": None}),
    "s": Score([None] * 3),
}


def choice(probability: float) -> ChoiceAnswer[str]:
    return ChoiceAnswer("auto_close", {"auto_close": probability, "other": 1 - probability})


@pytest.mark.parametrize(
    ("answer", "gate", "reasons"),
    [
        (choice(0.22), 0.60, ("low_probability:q",)),
        (choice(0.5999), 0.60, ("low_probability:q",)),
        (choice(0.60), 0.60, ()),
        (choice(0.61), 0.60, ()),
        (ChoiceAnswer("auto_close"), 0.0, ("no_probability:q",)),
        (ChoiceAnswer("auto_close", confidence=0.99), 0.60, ("no_probability:q",)),
        (BooleanAnswer(0.60), 0.60, ()),
        (BooleanAnswer(0.40), 0.60, ()),
        (BooleanAnswer(0.5), 0.60, ("low_probability:q",)),
        (BooleanAnswer(1.0, calibrated=True), 1.0, ()),
        (BooleanAnswer(1.0, calibrated=False), 0.0, ("uncalibrated:q",)),
        (ScoreAnswer(1.0, (0.2, 0.6, 0.2)), 0.60, ()),
        (ScoreAnswer(1.0, (0.3, 0.4, 0.3)), 0.60, ("low_probability:q",)),
        (ScoreAnswer(1.0), 0.0, ("no_probability:q",)),
        (Refusal(), 0.0, ("refusal:q",)),
        (Refusal("omitted"), 0.0, ("refusal:q",)),
    ],
)
def test_a_gate_opens_from_its_threshold_on_and_never_without_a_probability(
    answer: Answer, gate: float, reasons: tuple[str, ...]
) -> None:
    assert closed_gates({"q": gate}, {"q": answer}) == reasons


@pytest.mark.parametrize("percent", range(101))
def test_equality_passes_for_every_two_decimals_of_a_no_too(percent: int) -> None:
    sure = max(percent, 100 - percent) / 100
    assert closed_gates({"q": sure}, {"q": BooleanAnswer(percent / 100)}) == ()
    assert closed_gates({"q": sure + 1e-9}, {"q": BooleanAnswer(percent / 100)}) == ("low_probability:q",)


def test_an_answer_without_a_gate_is_let_through() -> None:
    assert closed_gates({}, {"q": Refusal()}) == ()


def test_every_closed_gate_is_listed_in_order() -> None:
    answers: dict[str, Answer] = {
        "b": BooleanAnswer(0.5),
        "c": Refusal(),
        "s": ScoreAnswer(1.0, (0.0, 1.0, 0.0)),
    }
    assert closed_gates({"s": 0.9, "c": 0.9, "b": 0.9}, answers) == ("refusal:c", "low_probability:b")


@pytest.mark.parametrize(
    ("gates", "fault"),
    [
        ({"topic": 0.5}, "'topic', which is not asked; asked: b, c, s"),
        ({"b": 1.01}, "'b' is 1.01"),
        ({"b": -0.01}, "'b' is -0.01"),
        ({"b": 60}, "'b' is 60"),
        ({"b": math.nan}, "'b' is nan"),
    ],
)
def test_a_gate_that_cannot_work_is_found_before_anything_is_asked(gates: dict[str, Any], fault: str) -> None:
    with pytest.raises(ConfigurationError, match=fault):
        check_gates(gates, QUESTIONS)


def test_gates_from_none_to_all_are_right() -> None:
    check_gates({"b": 0, "c": 1, "s": 0.5}, QUESTIONS)
