"""Falling back: after which errors, and what the record says of it."""

from __future__ import annotations

import asyncio

import pytest

from classifier.answers import BooleanAnswer, Refusal
from classifier.errors import (
    AuthenticationFailed,
    ConfigurationError,
    InputTooLarge,
    InvalidAnswer,
    ModelError,
    ModelUnavailable,
    QuotaExhausted,
    RateLimited,
    RequestRejected,
)
from classifier.models.fallback import Fallback
from classifier.models.protocol import DecisionModel, DecisionRequest
from classifier.models.scripted import ScriptedModel
from classifier.models.systemone import OLLAMA, SystemOne
from classifier.questions import Boolean
from tests.servers import Answer, Server

REQUEST = DecisionRequest("state", {"q": Boolean()})
YES = {"q": BooleanAnswer(0.9)}


def pair(error: Exception) -> tuple[ScriptedModel, ScriptedModel, Fallback]:
    first, second = ScriptedModel([error], name="first"), ScriptedModel([YES], name="second")
    return first, second, Fallback([first, second])


@pytest.mark.parametrize(
    "error",
    [
        ModelUnavailable("x"),
        RateLimited("x"),
        QuotaExhausted("x"),
        AuthenticationFailed("x"),
        InvalidAnswer("x", unreadable=True),
    ],
)
async def test_the_next_model_is_asked_where_the_first_cannot_serve_now(error: ModelError) -> None:
    _, second, fallback = pair(error)
    response = await fallback.decide(REQUEST)
    assert response.answers == YES
    assert (response.response.provider, response.response.requested_model) == ("scripted", "second")
    assert response.warnings == (f"scripted 'first' failed with {error.code}",)
    failed = [{"provider": "scripted", "model": "first", "code": error.code}]
    assert response.provider_metadata["fallback"] == failed
    assert second.requests == [REQUEST]


@pytest.mark.parametrize(
    "error",
    [InputTooLarge("x"), RequestRejected("x"), InvalidAnswer("x"), ConfigurationError("x"), ValueError("x")],
)
async def test_no_other_error_leads_to_the_next_model(error: Exception) -> None:
    _, second, fallback = pair(error)
    with pytest.raises(type(error)) as caught:
        await fallback.decide(REQUEST)
    assert caught.value is error
    assert second.requests == []


async def test_a_refusal_is_an_answer() -> None:
    second = ScriptedModel([])
    response = await Fallback([ScriptedModel([{"q": Refusal()}]), second]).decide(REQUEST)
    assert response.answers == {"q": Refusal()}
    assert (response.warnings, dict(response.provider_metadata)) == ((), {})


async def test_cancelling_reaches_the_model_that_is_asked_and_no_other() -> None:
    first, second = ScriptedModel([YES], latency=60), ScriptedModel([YES])
    call = asyncio.create_task(Fallback([first, second]).decide(REQUEST))
    await asyncio.sleep(0)
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    assert second.requests == []


@pytest.mark.parametrize(
    ("errors", "raised"),
    [
        ([RateLimited("1"), AuthenticationFailed("2")], 0),
        ([AuthenticationFailed("1"), ModelUnavailable("2")], 1),
        ([QuotaExhausted("1"), AuthenticationFailed("2")], 1),
        ([ModelUnavailable("1"), RequestRejected("2")], 0),
        ([QuotaExhausted("1"), InputTooLarge("2")], 1),
    ],
)
async def test_where_none_answers_an_error_that_may_pass_wins(errors: list[ModelError], raised: int) -> None:
    with pytest.raises(ModelError) as caught:
        await Fallback([ScriptedModel([error]) for error in errors]).decide(REQUEST)
    assert caught.value is errors[raised]


async def test_two_real_services_the_first_of_which_is_overloaded() -> None:
    body = {"model": "clef-7", "answers": {"q": {"type": "noul", "noul": 0.9}}}
    async with Server([Answer({}, 529)]) as busy, Server([Answer(body)]) as idle:
        models = [SystemOne(base_url=busy.url), SystemOne("clef", service=OLLAMA, base_url=idle.url)]
        fallback = Fallback(models)
        assert not fallback.configure({})
        response = await fallback.decide(REQUEST)
        await fallback.aclose()
    assert response.answers == YES
    assert (response.response.provider, response.response.model) == ("ollama", "clef-7")
    assert response.warnings == ("systemone 'jev-latest' failed with MODEL_UNAVAILABLE",)
    assert (len(busy.calls), len(idle.calls)) == (1, 1)


def test_it_supports_what_all_support_and_lists_all_problems() -> None:
    only_boolean = ScriptedModel([], question_types=frozenset({"boolean"}))
    fallback: DecisionModel = Fallback([only_boolean, SystemOne()])
    assert fallback.question_types == {"boolean"}
    assert len(fallback.configure({})) == 1
    assert fallback.name == "scripted scripted, typesafe jev-latest"


def test_one_model_is_no_fallback() -> None:
    with pytest.raises(ConfigurationError, match="two"):
        Fallback([ScriptedModel([])])
