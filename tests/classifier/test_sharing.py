"""Consecutive processors on one model share a request; each keeps its own decision."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from classifier.answers import Answer, BooleanAnswer
from classifier.classifier import Classifier
from classifier.errors import InputTooLarge
from classifier.models.protocol import DecisionRequest
from classifier.models.scripted import ScriptedModel
from classifier.processor import ClassifierProcessor
from classifier.questions import Boolean
from classifier.result import DecisionResponse
from classifier.testing import try_messages
from tests.classifier.conformance import answering
from tests.classifier.guarding import asking, guarding, silent, yes_to_all


async def test_three_processors_on_one_model_send_one_request_a_message() -> None:
    model = ScriptedModel(answering)
    chain = [guarding(model, id=name) for name in ("a", "b", "c")]
    tried = await try_messages(chain, ["hello", "you"])
    assert len(model.requests) == 2
    assert [decision.processor_id for decision in tried.decisions] == ["a", "a", "b", "b", "c", "c"]


async def test_each_decision_holds_only_its_own_questions_and_usage_is_counted_once() -> None:
    model = ScriptedModel(yes_to_all)
    one = asking(model, "one", {"q": Boolean("First?"), "own": Boolean("Own?")})
    two = asking(model, "two", {"q": Boolean("Second?")})
    tried = await try_messages([one, two], ["hello"])
    first, second = tried.decisions
    assert set(first.answers or {}) == {"q", "own"}
    assert set(second.answers or {}) == {"q"}
    assert (first.usage.output_tokens, second.usage.output_tokens) == (3, None)
    assert first.question_set != second.question_set


async def test_a_colliding_id_is_renamed_without_changing_what_the_model_sees() -> None:
    model = ScriptedModel(yes_to_all)
    one = asking(model, "one", {"urgent": Boolean(true="A deadline today")})
    two = asking(model, "two", {"urgent": Boolean(true="An outage")})
    await try_messages([one, two], ["hello"])
    (request,) = model.requests
    assert list(request.questions) == ["urgent", "urgent_2"]
    renamed = request.questions["urgent_2"]
    assert isinstance(renamed, Boolean)
    assert (renamed.instructions, renamed.true) == ("urgent", "An outage")


async def test_the_same_question_is_asked_once_for_both() -> None:
    model = ScriptedModel(answering)
    await try_messages([guarding(model, id="a"), guarding(model, id="b")], ["hello"])
    assert list(model.requests[0].questions) == ["unsafe"]


async def test_an_invalid_answer_fails_only_its_own_processor() -> None:
    def half(request: DecisionRequest) -> Mapping[str, Answer]:
        return {name: BooleanAnswer(2.0 if name == "two" else 0.1) for name in request.questions}

    model = ScriptedModel(half)
    chain = [asking(model, name, {name: Boolean()}) for name in ("one", "two")]
    chain[1].error_strategy = "warn"
    tried = await try_messages(chain, ["hello"])
    first, second = tried.decisions
    assert (first.failure, second.answers) == (None, None)
    assert second.failure is not None
    assert second.failure.code == "INVALID_ANSWER"
    assert second.resolved_model == "scripted-1"
    assert len(model.requests) == 1


async def test_usage_stays_counted_when_the_first_answer_is_invalid() -> None:
    def half(request: DecisionRequest) -> Mapping[str, Answer]:
        return {name: BooleanAnswer(2.0 if name == "one" else 0.1) for name in request.questions}

    model = ScriptedModel(half)
    chain = [asking(model, name, {name: Boolean()}, error_strategy="warn") for name in ("one", "two")]
    tried = await try_messages(chain, ["hello"])
    assert [decision.usage.output_tokens for decision in tried.decisions] == [2, None]


async def test_each_classifier_transforms_its_own_part_of_a_shared_response() -> None:
    def surely(response: DecisionResponse) -> DecisionResponse:
        return replace(response, answers={name: BooleanAnswer(1.0) for name in response.answers})

    model = ScriptedModel(yes_to_all)
    sure = Classifier("sure", model, {"a": Boolean()}, transform_result=surely)
    chain = [
        ClassifierProcessor(classifier=sure, id="sure", on_result=silent),
        asking(model, "plain", {"b": Boolean()}),
    ]
    tried = await try_messages(chain, ["hello"])
    assert [dict(decision.answers or {}) for decision in tried.decisions] == [
        {"a": BooleanAnswer(1.0)},
        {"b": BooleanAnswer(0.9)},
    ]
    assert len(model.requests) == 1


async def test_a_request_too_large_together_is_asked_apart() -> None:
    def small(request: DecisionRequest) -> Mapping[str, Answer] | Exception:
        return InputTooLarge("too many questions") if len(request.questions) > 1 else yes_to_all(request)

    model = ScriptedModel(small)
    chain = [asking(model, name, {name: Boolean()}) for name in ("one", "two")]
    tried = await try_messages(chain, ["hello", "you"])
    assert tried.verdict.outcome == "allowed"
    assert [len(request.questions) for request in model.requests] == [2, 1, 1, 1, 1]


@pytest.mark.parametrize(
    "options",
    [{"max_input_length": 3}, {"normalise": True}, {"provider_options": {"effort": "high"}}],
)
async def test_processors_that_send_something_else_do_not_share(options: dict[str, Any]) -> None:
    model = ScriptedModel(answering)
    await try_messages([guarding(model, id="a"), guarding(model, id="b", **options)], ["hello"])
    assert len(model.requests) == 2


async def test_only_consecutive_processors_share() -> None:
    model, other = ScriptedModel(answering), ScriptedModel(answering)
    await try_messages([guarding(model, id="a"), guarding(other, id="b"), guarding(model, id="c")], ["hello"])
    assert (len(model.requests), len(other.requests)) == (2, 1)


async def test_questions_of_a_processor_for_the_last_message_are_only_asked_about_it() -> None:
    model = ScriptedModel(yes_to_all)
    all_messages = asking(model, "all", {"a": Boolean()})
    last = asking(model, "last", {"b": Boolean()}, last_message_only=True)
    tried = await try_messages([all_messages, last], ["hello", "you"])
    assert [list(request.questions) for request in model.requests] == [["a"], ["a", "b"]]
    assert [judgement.position for judgement in tried.verdict.judgements] == [0, 1, 1]
