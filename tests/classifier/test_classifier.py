"""A classifier asks once, about what was declared, and believes only what it can check."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any, cast

import pytest

from classifier.answers import Answer, BooleanAnswer, ChoiceAnswer
from classifier.classifier import Classifier
from classifier.errors import ConfigurationError, InvalidAnswer, ModelUnavailable, QuestionError
from classifier.models.scripted import ScriptedModel
from classifier.questions import Boolean, Choice, Question, Questions, question_set_hash, questions_of
from classifier.result import DecisionResponse


class Safety(Questions):
    unsafe = Boolean("Is it unsafe?")


ANSWERS: dict[str, Answer] = {"unsafe": BooleanAnswer(0.1)}


def saying(*replies: dict[str, Answer] | Exception) -> ScriptedModel:
    return ScriptedModel(replies)


async def test_answers_come_back_as_the_declared_class() -> None:
    result = await Classifier("c", saying(ANSWERS), Safety).evaluate("text")
    assert isinstance(result.answers, Safety)
    assert result.answers.unsafe == BooleanAnswer(0.1)
    assert (result.response.provider, result.response.requested_model) == ("scripted", "scripted")
    assert result.response.model == "scripted-1"


@pytest.mark.parametrize("blank", ["", "  ", None, 7])
def test_an_id_is_text_that_is_not_blank(blank: Any) -> None:
    with pytest.raises(ConfigurationError, match="id"):
        Classifier(blank, saying(), Safety)


async def test_questions_come_at_construction_or_with_the_call_never_both_or_neither() -> None:
    model = saying(ANSWERS, ANSWERS)
    with pytest.raises(ConfigurationError, match="questions of its own"):
        await Classifier("c", model, Safety).evaluate("text", Safety)
    with pytest.raises(ConfigurationError, match="no questions"):
        await Classifier("c", model).evaluate("text")
    assert model.requests == []
    assert (await Classifier("c", model).evaluate("text", Safety)).answers.unsafe == BooleanAnswer(0.1)


async def test_a_malformed_question_names_itself_its_fault_and_the_classifier() -> None:
    broken: dict[str, Question] = {"topic": Choice({})}
    with pytest.raises(QuestionError, match=r"'topic'.*option.*classifier 'c'"):
        Classifier("c", saying(), broken)
    for questions in (broken, {}):
        with pytest.raises(QuestionError, match="classifier 'c'"):
            await Classifier("c", saying()).evaluate("text", questions)


@pytest.mark.parametrize("state", [None, 5, True, 1.5, b"x", {"a": math.nan}, [object()], {1: 2}])
async def test_a_state_that_is_not_text_array_or_object_is_refused_before_any_request(state: Any) -> None:
    model = saying(ANSWERS)
    with pytest.raises(ConfigurationError, match="state"):
        await Classifier("c", model, Safety).evaluate(state)
    assert model.requests == []


async def test_later_changes_to_what_was_handed_in_change_nothing() -> None:
    questions: dict[str, Question] = {"unsafe": Boolean("Is it unsafe?")}
    state: dict[str, Any] = {"lines": ["a"]}
    options: dict[str, Any] = {"mode": ["x"]}
    model = saying(ANSWERS)
    classifier = Classifier("c", model, questions, provider_options=options)
    before = question_set_hash(cast("Any", classifier.questions))
    questions["more"] = Boolean("?")
    options["mode"].append("y")
    await classifier.evaluate(state)
    state["lines"].append("b")
    request = model.requests[0]
    assert question_set_hash(request.questions) == before
    assert request.state == {"lines": ["a"]}
    assert request.provider_options == {"mode": ["x"]}


def test_the_hash_on_record_is_that_of_the_questions_it_asks() -> None:
    classifier = Classifier("c", saying(ANSWERS), Safety)
    assert classifier.question_set == question_set_hash(questions_of(Safety))
    other: dict[str, Question] = {"rude": Boolean("Is it rude?")}
    assert classifier.asking(other).question_set == question_set_hash(other)


async def test_options_of_a_call_are_added_to_the_classifiers_own_per_key() -> None:
    model = saying(ANSWERS)
    classifier = Classifier("c", model, Safety, provider_options={"a": 1, "b": 1})
    await classifier.evaluate("text", provider_options={"b": 2, "c": 2})
    assert model.requests[0].provider_options == {"a": 1, "b": 2, "c": 2}
    with pytest.raises(ConfigurationError, match="provider_options"):
        Classifier("c", model, Safety, provider_options=cast("Any", {"a": object()}))


async def test_an_unsupported_question_is_refused_before_any_request() -> None:
    model = ScriptedModel([ANSWERS], question_types=frozenset({"choice"}))
    with pytest.raises(ConfigurationError, match="choice questions, not unsafe"):
        await Classifier("c", model, Safety).evaluate("text")
    assert model.requests == []


async def test_a_model_by_name_is_for_an_app_to_look_up() -> None:
    with pytest.raises(ConfigurationError, match="only an App"):
        await Classifier("c", "fast", Safety).evaluate("text")
    bound = Classifier("c", "fast", Safety, provider_options={"a": 1}).bound(saying(ANSWERS))
    assert (await bound.evaluate("text")).answers.unsafe == BooleanAnswer(0.1)
    assert bound.provider_options == {"a": 1}


@pytest.mark.parametrize(
    "answers",
    [
        {},
        {"unsafe": BooleanAnswer(0.1), "mood": BooleanAnswer(0.1)},
        {"unsafe": BooleanAnswer(cast("Any", "false"))},
        {"unsafe": ChoiceAnswer("false")},
    ],
)
async def test_an_answer_that_cannot_be_believed_is_an_error_and_is_not_asked_for_again(
    answers: dict[str, Answer],
) -> None:
    model = saying(answers, ANSWERS)
    with pytest.raises(InvalidAnswer):
        await Classifier("c", model, Safety).evaluate("text")
    assert len(model.requests) == 1


async def test_a_failure_is_raised_as_it_is_after_one_request() -> None:
    error = ModelUnavailable("down")
    model = saying(error, ANSWERS)
    with pytest.raises(ModelUnavailable) as raised:
        await Classifier("c", model, Safety).evaluate("text")
    assert raised.value is error
    assert len(model.requests) == 1


async def test_a_response_may_be_changed_before_and_never_after_it_is_checked() -> None:
    def rename(response: DecisionResponse) -> DecisionResponse:
        return replace(response, answers={"unsafe": response.answers["UNSAFE"]})

    said: dict[str, Answer] = {"UNSAFE": BooleanAnswer(0.1)}
    result = await Classifier("c", saying(said), Safety, transform_result=rename).evaluate("text")
    assert result.answers.unsafe == BooleanAnswer(0.1)

    def spoil(response: DecisionResponse) -> DecisionResponse:
        return replace(response, answers={"unsafe": BooleanAnswer(1.5)})

    with pytest.raises(InvalidAnswer):
        await Classifier("c", saying(ANSWERS), Safety, transform_result=spoil).evaluate("text")


def test_a_classifier_shows_its_id_and_nothing_else() -> None:
    assert repr(Classifier("c", saying(), Safety, provider_options={"key": "secret"})) == "Classifier('c')"
