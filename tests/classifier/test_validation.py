"""The rules by which an answer may be believed: rounding explains little, and nothing else is explained."""

from __future__ import annotations

import math
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from classifier.answers import Answer, BooleanAnswer, ChoiceAnswer, Refusal, ScoreAnswer
from classifier.errors import InvalidAnswer
from classifier.questions import Boolean, Choice, Question, Score
from classifier.result import Rounding
from classifier.validation import answer_fault, check_answers

EXACT = Rounding()
TWO = Rounding(2, 2)
THREE_OPTIONS = Choice({"billing": None, "technical": None, "sales": None})
THREE_LEVELS = Score(["low", "middling", "high"])
QUESTIONS: dict[str, Question] = {"unsafe": Boolean("?"), "route": THREE_OPTIONS, "severity": THREE_LEVELS}
GOOD: dict[str, Answer] = {
    "unsafe": BooleanAnswer(0.5),
    "route": ChoiceAnswer("billing", {"billing": 0.5, "technical": 0.3, "sales": 0.2}),
    "severity": ScoreAnswer(1.2, (0.1, 0.6, 0.3)),
}


def distributions(size: int) -> st.SearchStrategy[list[float]]:
    """Probabilities that sum to 1 as well as floats can."""
    weights = st.lists(st.integers(0, 10_000), min_size=size, max_size=size).filter(any)
    return weights.map(lambda found: [weight / sum(found) for weight in found])


# -- ids ---------------------------------------------------------------------------------------------------


def test_exactly_the_asked_questions_are_answered() -> None:
    check_answers(QUESTIONS, GOOD, EXACT)
    mood: dict[str, Answer] = {"unsafe": GOOD["unsafe"], "route": GOOD["route"], "mood": GOOD["unsafe"]}
    with pytest.raises(InvalidAnswer, match="missing=severity extra=mood") as raised:
        check_answers(QUESTIONS, mood, EXACT)
    assert (raised.value.missing, raised.value.extra) == (("severity",), ("mood",))


@given(st.sets(st.sampled_from("abcde")), st.sets(st.sampled_from("abcde")))
def test_any_missing_or_extra_id_is_an_error(asked: set[str], answered: set[str]) -> None:
    questions: dict[str, Question] = {name: Boolean("?") for name in sorted(asked)}
    answers: dict[str, Answer] = {name: BooleanAnswer(0.5) for name in answered}
    if asked == answered:
        check_answers(questions, answers, EXACT)
        return
    with pytest.raises(InvalidAnswer) as raised:
        check_answers(questions, answers, EXACT)
    assert set(raised.value.missing) == asked - answered
    assert set(raised.value.extra) == answered - asked


# -- types -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", QUESTIONS)
@pytest.mark.parametrize("answered", GOOD)
def test_an_answer_of_another_type_is_an_error(name: str, answered: str) -> None:
    fault = answer_fault(QUESTIONS[name], GOOD[answered], EXACT)
    assert (fault is None) == (name == answered)


@pytest.mark.parametrize("name", QUESTIONS)
def test_a_refusal_is_right_for_every_question(name: str) -> None:
    assert answer_fault(QUESTIONS[name], Refusal("omitted"), EXACT) is None


NOT_UNIT: list[Any] = [
    *("false", "False ", "0", "no", "", "unknown", "0.5", None, True, False, [False], {}, object()),
    *(math.nan, math.inf, -math.inf, -0.01, 1.01, 10**400, -(10**400), 1 + 2j),
]


@pytest.mark.parametrize("value", NOT_UNIT, ids=lambda value: repr(value)[:20])
def test_only_a_real_number_from_0_to_1_is_a_probability(value: Any) -> None:
    others = {"technical": 0.0, "sales": 0.0}
    assert answer_fault(QUESTIONS["unsafe"], BooleanAnswer(value), TWO) is not None
    assert answer_fault(THREE_OPTIONS, ChoiceAnswer("billing", {"billing": value, **others}), TWO) is not None
    assert answer_fault(THREE_LEVELS, ScoreAnswer(0.0, (value, 0.0, 0.0)), TWO) is not None
    if value is not None:
        assert answer_fault(QUESTIONS["unsafe"], BooleanAnswer(0.5, confidence=value), TWO) is not None


@pytest.mark.parametrize("value", [*NOT_UNIT, 2.01, -1, 3], ids=lambda value: repr(value)[:20])
def test_a_score_is_a_real_number_on_its_levels(value: Any) -> None:
    expected = value == 1.01 and not isinstance(value, bool)
    assert (answer_fault(THREE_LEVELS, ScoreAnswer(value), EXACT) is None) == expected


@pytest.mark.parametrize("value", ["spam", "Billing", "billing ", "bill", "", None, True, 0, ["billing"], {}])
def test_only_an_offered_option_is_a_choice(value: Any) -> None:
    assert answer_fault(THREE_OPTIONS, ChoiceAnswer(value), TWO) == "the chosen option was not offered"


def test_labels_are_not_matched_by_prefix() -> None:
    question: Choice[str] = Choice({"refund": None, "refund_denied": None})
    spread = {"refund": 0.3, "refund_denied": 0.7}
    assert answer_fault(question, ChoiceAnswer("refund_denied", spread), EXACT) is None
    assert answer_fault(question, ChoiceAnswer("refund", spread), EXACT) is not None


# -- distributions -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "spread",
    [
        {},
        {"billing": 1.0},
        {"billing": 0.5, "technical": 0.3, "sales": 0.1},
        {"billing": 0.5, "technical": 0.3, "sales": 0.2, "spam": 0},
        {"billing": 0.5, "technical": 0.3, "Sales": 0.2},
    ],
)
def test_a_distribution_is_absent_or_complete(spread: dict[str, float]) -> None:
    assert answer_fault(THREE_OPTIONS, ChoiceAnswer("billing"), TWO) is None
    assert answer_fault(THREE_OPTIONS, ChoiceAnswer("billing", spread), TWO) is not None


@pytest.mark.parametrize("levels", [(), (1.0,), (0.5, 0.5), (0.25, 0.25, 0.25, 0.25)])
def test_levels_are_absent_or_complete(levels: tuple[float, ...]) -> None:
    assert answer_fault(THREE_LEVELS, ScoreAnswer(0.0), TWO) is None
    assert answer_fault(THREE_LEVELS, ScoreAnswer(0.0, levels), TWO) is not None


def test_a_choice_off_the_maximum_and_a_score_off_the_mean_contradict_themselves() -> None:
    two: Choice[str] = Choice({"billing": None, "technical": None})
    assert answer_fault(two, ChoiceAnswer("billing", {"billing": 0.4, "technical": 0.6}), TWO) is not None
    assert answer_fault(THREE_LEVELS, ScoreAnswer(0, (0, 0, 1)), TWO) is not None


def test_either_of_a_tie_is_accepted_every_time() -> None:
    two: Choice[str] = Choice({"billing": None, "technical": None})
    for _ in range(100):
        for choice in two.options:
            answer = ChoiceAnswer(choice, {"billing": 0.5, "technical": 0.5})
            assert answer_fault(two, answer, EXACT) is None


@given(distributions(4), st.integers(1, 6))
def test_rounding_by_the_book_is_always_explained(spread: list[float], decimals: int) -> None:
    options = dict(zip("abcd", spread, strict=True))
    choice = max(options, key=lambda option: options[option])
    mean = sum(level * share for level, share in enumerate(spread))
    rounded = [round(share, decimals) for share in spread]
    rounding = Rounding(decimals, decimals)
    answer = ChoiceAnswer(choice, dict(zip("abcd", rounded, strict=True)))
    assert answer_fault(Choice(dict.fromkeys("abcd")), answer, rounding) is None
    score = ScoreAnswer(round(mean, decimals), tuple(rounded))
    assert answer_fault(Score([None] * 4), score, rounding) is None


@given(distributions(4), st.integers(1, 6), st.integers(0, 3), st.sampled_from([-1, 1]))
def test_what_rounding_cannot_explain_is_an_error(
    spread: list[float], decimals: int, at: int, sign: int
) -> None:
    off = 4 * 0.5 * 10**-decimals + 1e-5
    moved = [share + sign * off if index == at else share for index, share in enumerate(spread)]
    answer = ChoiceAnswer("a", dict(zip("abcd", moved, strict=True)))
    assert answer_fault(Choice(dict.fromkeys("abcd")), answer, Rounding(decimals)) is not None


@given(distributions(4), st.integers(1, 6), st.sampled_from([-1, 1]))
def test_a_score_further_from_the_mean_than_rounding_explains_is_an_error(
    spread: list[float], decimals: int, sign: int
) -> None:
    mean = sum(level * share for level, share in enumerate(spread))
    off = 0.5 * 10**-decimals * (1 + (1 + 2 + 3)) + 1e-5
    score = ScoreAnswer(mean + sign * off, tuple(spread))
    assert answer_fault(Score([None] * 4), score, Rounding(decimals, decimals)) is not None


@given(distributions(3), st.sampled_from("abc"))
def test_without_rounding_only_the_most_probable_option_is_right(spread: list[float], choice: str) -> None:
    options = dict(zip("abc", spread, strict=True))
    fault = answer_fault(Choice(dict.fromkeys("abc")), ChoiceAnswer(choice, options), EXACT)
    assert (fault is None) == (options[choice] >= max(spread) - 1e-6)


@given(st.lists(st.floats(allow_nan=True, allow_infinity=True), min_size=3, max_size=3))
def test_no_distribution_of_any_floats_gets_through_unless_it_is_one(values: list[float]) -> None:
    answer = ChoiceAnswer("a", dict(zip("abc", values, strict=True)))
    if answer_fault(Choice(dict.fromkeys("abc")), answer, EXACT) is None:
        assert all(0 <= value <= 1 for value in values)
        assert math.isclose(sum(values), 1, abs_tol=2e-6)


def test_a_fault_names_the_question_and_no_content() -> None:
    answers = {**GOOD, "route": cast("Answer", ChoiceAnswer("secret text"))}
    with pytest.raises(InvalidAnswer, match="'route'") as raised:
        check_answers(QUESTIONS, answers, EXACT)
    assert "secret" not in str(raised.value)
