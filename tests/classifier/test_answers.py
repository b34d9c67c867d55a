"""Answers: strict reading of what was stored, and no silent meaning for a refusal."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from classifier.answers import (
    Answer,
    Answers,
    BooleanAnswer,
    ChoiceAnswer,
    Refusal,
    ScoreAnswer,
    answer_from_json,
    answers_from_json,
    answers_to_json,
)
from classifier.errors import InvalidAnswer

UNIT = st.floats(0, 1)
CONFIDENCE = st.none() | UNIT
ANSWER: st.SearchStrategy[Answer] = st.one_of(
    st.builds(BooleanAnswer, UNIT, st.sampled_from([None, True, False]), CONFIDENCE),
    st.builds(ChoiceAnswer[str], st.text(), st.none() | st.dictionaries(st.text(), UNIT), CONFIDENCE),
    st.builds(ScoreAnswer, st.floats(0, 9), st.none() | st.lists(UNIT, min_size=2).map(tuple), CONFIDENCE),
    st.builds(Refusal, st.sampled_from(["answer", "blocked", "policy", "omitted"])),
)


@given(st.dictionaries(st.text(), ANSWER))
def test_answers_survive_json(answers: dict[str, Answer]) -> None:
    stored = json.loads(json.dumps(answers_to_json(answers)))
    assert answers_from_json(stored) == answers


BOOLEAN: dict[str, Any] = {"type": "boolean", "probability": 0.5}
NOT_NUMBERS: list[Any] = ["false", "0", "", None, True, False, [False], {}]
BROKEN: list[Any] = [
    {},
    None,
    "boolean",
    [BOOLEAN],
    {"type": "boolean"},
    {"type": "noul", "probability": 0.5},
    *({"type": "boolean", "probability": value} for value in NOT_NUMBERS),
    *({**BOOLEAN, "confidence": value} for value in NOT_NUMBERS if value is not None),
    *({**BOOLEAN, "calibrated": value} for value in ("false", 0, 1, "")),
    {"type": "choice", "choice": None},
    {"type": "choice", "choice": True},
    {"type": "choice", "choice": "a", "probabilities": [0.5]},
    {"type": "choice", "choice": "a", "probabilities": {"a": "1"}},
    {"type": "score", "score": "2"},
    {"type": "score", "score": 1, "probabilities": 1},
    {"type": "score", "score": 1, "probabilities": ["0", "1"]},
    {"type": "refusal", "signal": "maybe"},
    {"type": "refusal", "signal": []},
]


@pytest.mark.parametrize("stored", BROKEN, ids=str)
def test_what_no_answer_was_written_as_is_not_read_as_one(stored: Any) -> None:
    with pytest.raises(InvalidAnswer):
        answer_from_json(stored)


def test_a_refusal_has_no_choice_score_or_probability() -> None:
    refusal = Refusal()
    for name in ("choice", "score", "probability", "probabilities", "confidence"):
        assert not hasattr(refusal, name)


def test_the_policy_says_what_a_refusal_counts_as() -> None:
    assert Refusal().probability_or(0.9) == 0.9
    assert Refusal().choice_or("review") == "review"
    assert Refusal().score_or(None) is None
    assert Refusal().at_least(0.5, unsure=True) is True
    assert BooleanAnswer(0.2).probability_or(0.9) == 0.2
    assert ChoiceAnswer("a").choice_or("review") == "a"
    assert ScoreAnswer(1.5).score_or(None) == 1.5


def test_an_uncalibrated_number_is_never_compared() -> None:
    assert BooleanAnswer(0.99, calibrated=False).at_least(0.5, unsure=False) is False
    assert BooleanAnswer(0.01, calibrated=False).at_least(0.5, unsure=True) is True
    assert BooleanAnswer(0.5, calibrated=True).at_least(0.5, unsure=False) is True
    assert BooleanAnswer(0.4999).at_least(0.5, unsure=True) is False


def test_typed_access_names_the_question_and_the_types() -> None:
    answers = Answers({"a": BooleanAnswer(0.5), "b": Refusal()})
    assert answers.boolean("a") == BooleanAnswer(0.5)
    assert answers.choice("b") == Refusal()
    with pytest.raises(TypeError, match="'a' is a boolean"):
        answers.score("a")
    with pytest.raises(KeyError):
        answers.choice("c")


def test_answers_show_ids_and_no_content() -> None:
    assert repr(Answers({"a": ChoiceAnswer("secret")})) == "Answers(a)"


def test_the_probability_of_a_choice_is_that_of_its_option() -> None:
    assert ChoiceAnswer("a", {"a": 0.7, "b": 0.3}).probability == 0.7
    assert ChoiceAnswer("a").probability is None
