"""What every decoder holds for any answer: by the book it is read, and anything else is an error."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from classifier.answers import Answer, BooleanAnswer, ChoiceAnswer, Refusal, ScoreAnswer
from classifier.errors import InvalidAnswer
from classifier.models import chat_codec, decisions, systemone_codec
from classifier.questions import Boolean, Choice, Question, Score
from classifier.result import Rounding
from classifier.validation import check_answers

Wire: TypeAlias = dict[str, Any]
TWO = Rounding(2, 2)
OPTIONS, LEVELS = "abc", 3
QUESTIONS: dict[str, Question] = {
    "yes": Boolean("?"),
    "pick": Choice(dict.fromkeys(OPTIONS)),
    "rate": Score([None] * LEVELS),
}


class SystemOneForm:
    """The map that TypeSafe, Gemini and Clef answer with."""

    def answers(self, p: Any, choice: Any, spread: list[Any], score: Any) -> Wire:
        shares = dict(zip(OPTIONS, spread, strict=False))
        return {
            "yes": {"type": "noul", "noul": p},
            "pick": {"type": "choice", "choice": choice, "probabilities": shares},
            "rate": {
                "type": "score",
                "score": score,
                "probabilities": {str(level): share for level, share in enumerate(spread)},
            },
        }

    def read(self, body: Wire) -> Mapping[str, Answer]:
        return systemone_codec.decode_answers(QUESTIONS, body)


class ListForm:
    """The list that OpenAI, Azure and LiteLLM answer with."""

    def answers(self, p: Any, choice: Any, spread: list[Any], score: Any) -> Wire:
        shares = zip(OPTIONS, spread, strict=False)
        levels = enumerate(spread)
        return {
            "yes": {"type": "predicate", "probability": p},
            "pick": {
                "type": "choice",
                "choice": choice,
                "confidence": 0.5,
                "probabilities": [{"value": option, "probability": share} for option, share in shares],
            },
            "rate": {
                "type": "score",
                "score": score,
                "confidence": 0.5,
                "probabilities": [{"value": n, "label": str(n), "probability": share} for n, share in levels],
            },
        }

    def read(self, body: Wire) -> Mapping[str, Answer]:
        named = [_named(name, answer) for name, answer in body.items()]
        return decisions.read_answers({"answers": named}, QUESTIONS)


def _named(name: str, answer: Any) -> Any:
    return {**cast("Wire", answer), "name": name} if isinstance(answer, dict) else answer


Form: TypeAlias = SystemOneForm | ListForm
FORMS: list[Form] = [SystemOneForm(), ListForm()]
forms = pytest.mark.parametrize("form", FORMS, ids=lambda form: type(form).__name__)


def spreads(size: int = LEVELS) -> st.SearchStrategy[list[float]]:
    weights = st.lists(st.integers(0, 1000), min_size=size, max_size=size).filter(any)
    return weights.map(lambda found: [weight / sum(found) for weight in found])


def checked(form: Form, body: Wire) -> Mapping[str, Answer]:
    answers = form.read(body)
    check_answers(QUESTIONS, answers, TWO)
    return answers


def by_the_book(form: Form, spread: list[float], p: float) -> Wire:
    rounded = [round(share, 2) for share in spread]
    choice = OPTIONS[spread.index(max(spread))]
    mean = round(sum(level * share for level, share in enumerate(spread)), 2)
    return form.answers(round(p, 2), choice, rounded, mean)


@forms
@given(spread=spreads(), p=st.floats(0, 1))
def test_rounded_answers_are_read_as_they_were_sent(form: Form, spread: list[float], p: float) -> None:
    answers = checked(form, by_the_book(form, spread, p))
    rounded = tuple(round(share, 2) for share in spread)
    yes, pick, rate = (answers[name] for name in QUESTIONS)
    assert isinstance(yes, BooleanAnswer)
    assert yes.probability == round(p, 2)
    assert isinstance(pick, ChoiceAnswer)
    assert pick.probabilities == dict(zip(OPTIONS, rounded, strict=True))
    assert isinstance(rate, ScoreAnswer)
    assert rate.probabilities == rounded


# Anything JSON can hold, and what JSON cannot but a lenient reader lets through.
ANYTHING: st.SearchStrategy[Any] = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text()
    | st.sampled_from(["false", "true", "0", "1", "0.5", "NaN", "a", 10**400, math.nan]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=5,
)


def _is_unit(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= 1


@forms
@given(spread=spreads(), value=ANYTHING)
def test_only_a_number_from_0_to_1_becomes_a_probability(form: Form, spread: list[float], value: Any) -> None:
    body = by_the_book(form, spread, 0.5)
    key = "noul" if isinstance(form, SystemOneForm) else "probability"
    body["yes"] = {**body["yes"], key: value}
    if _is_unit(value):
        assert checked(form, body)["yes"] == BooleanAnswer(float(value))
        return
    with pytest.raises(InvalidAnswer):
        checked(form, body)


@forms
@given(spread=spreads(), value=ANYTHING)
def test_only_an_offered_option_becomes_a_choice(form: Form, spread: list[float], value: Any) -> None:
    body = by_the_book(form, spread, 0.5)
    body["pick"] = {**body["pick"], "choice": value}
    try:
        answer = checked(form, body)["pick"]
    except InvalidAnswer:
        return
    assert isinstance(answer, ChoiceAnswer)
    assert isinstance(value, str)
    assert answer.choice == value
    assert answer.choice in OPTIONS
    assert spread[OPTIONS.index(value)] >= max(spread) - 0.02


@forms
@given(spread=spreads(), value=ANYTHING)
def test_only_a_number_near_the_mean_becomes_a_score(form: Form, spread: list[float], value: Any) -> None:
    body = by_the_book(form, spread, 0.5)
    body["rate"] = {**body["rate"], "score": value}
    try:
        answer = checked(form, body)["rate"]
    except InvalidAnswer:
        return
    assert isinstance(answer, ScoreAnswer)
    assert isinstance(value, int | float)
    assert not isinstance(value, bool)
    mean = sum(level * share for level, share in enumerate(spread))
    assert abs(answer.score - mean) < 0.05


@forms
@given(spread=spreads(), shares=st.lists(ANYTHING, max_size=4))
def test_a_distribution_of_anything_else_is_an_error(
    form: Form, spread: list[float], shares: list[Any]
) -> None:
    body = by_the_book(form, spread, 0.5)
    other = form.answers(0.5, "a", shares, 0)
    for name in ("pick", "rate"):
        try:
            answer = checked(
                form, {**body, name: {**body[name], "probabilities": other[name]["probabilities"]}}
            )
        except InvalidAnswer:
            continue
        assert len([share for share in shares[:LEVELS] if _is_unit(share)]) == LEVELS
        assert not isinstance(answer[name], Refusal)


@forms
@given(spread=spreads(), value=ANYTHING, name=st.sampled_from([*QUESTIONS, "extra"]))
def test_an_answer_that_is_anything_else_is_an_error(
    form: Form, spread: list[float], value: Any, name: str
) -> None:
    body = {**by_the_book(form, spread, 0.5), name: value}
    with pytest.raises(InvalidAnswer):
        checked(form, body)


@forms
@given(spread=spreads(), kept=st.sets(st.sampled_from([*QUESTIONS])))
def test_a_missing_answer_is_an_error_that_names_it(form: Form, spread: list[float], kept: set[str]) -> None:
    body = {name: answer for name, answer in by_the_book(form, spread, 0.5).items() if name in kept}
    if kept == set(QUESTIONS):
        checked(form, body)
        return
    with pytest.raises(InvalidAnswer) as raised:
        checked(form, body)
    assert set(raised.value.missing) == set(QUESTIONS) - kept


@given(content=st.text() | ANYTHING.map(json.dumps))
def test_no_text_of_an_llm_becomes_an_answer_unless_it_is_the_schema(content: str) -> None:
    with pytest.raises(InvalidAnswer):
        chat_codec.read_answers(content, QUESTIONS)


@given(yes=ANYTHING, pick=ANYTHING, rate=ANYTHING)
def test_an_llm_answers_with_exactly_what_was_offered(yes: Any, pick: Any, rate: Any) -> None:
    content = json.dumps({"q1": yes, "q2": pick, "q3": rate})
    fits: list[Callable[[], bool]] = [
        lambda: isinstance(yes, bool),
        lambda: isinstance(pick, str) and pick in tuple(OPTIONS),
        lambda: isinstance(rate, int) and not isinstance(rate, bool) and 0 <= rate < LEVELS,
    ]
    if not all(fit() for fit in fits):
        with pytest.raises(InvalidAnswer):
            chat_codec.read_answers(content, QUESTIONS)
        return
    answers = chat_codec.read_answers(content, QUESTIONS)
    check_answers(QUESTIONS, answers, Rounding())
    assert answers["yes"] == BooleanAnswer(float(yes), calibrated=False)
