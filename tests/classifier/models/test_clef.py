"""Cloudflare's Clef, against a local server; questions and answers are read by TypeSafe's own types."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pytest
from typesafe_sdk import SystemOneResponse

from classifier.answers import BooleanAnswer, ChoiceAnswer, ScoreAnswer
from classifier.classifier import Classifier
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
from classifier.models.clef import ClefModel
from classifier.questions import Boolean, Choice, Question, Score
from classifier.result import Rounding, Usage
from classifier.values import JSON
from tests.servers import Answer as HttpAnswer
from tests.servers import Call, Server

QUESTIONS: dict[str, Question] = {
    "unsafe": Boolean("Is it unsafe?", true="It threatens somebody"),
    "route": Choice({"billing": "Invoices", "sales": None}, "Who should read it?"),
    "severity": Score(["low", "middling", "high"], "How bad is it?"),
}
UNSAFE: dict[str, JSON] = {"type": "noul", "noul": 0.0712}
ROUTE: dict[str, JSON] = {
    "type": "choice",
    "choice": "billing",
    "confidence": 0.6,
    "probabilities": {"billing": 0.8001, "sales": 0.1999},
}
SEVERITY: dict[str, JSON] = {
    "type": "score",
    "score": 1.2,
    "confidence": 0.5,
    "probabilities": {"0": 0.1, "1": 0.6, "2": 0.3},
    "legend": {"0": "low", "1": "middling", "2": "high"},
}
TOKEN, ACCOUNT = "cf-do-not-show", "0123abcd"


def result(unsafe: JSON = UNSAFE, route: JSON = ROUTE, severity: JSON = SEVERITY) -> dict[str, JSON]:
    return {
        "model": "clef-27b-1",
        "answers": {"unsafe": unsafe, "route": route, "severity": severity},
        "usage": {"input_tokens": 90, "output_tokens": 0},
    }


def envelope(
    inner: JSON, *, success: JSON = True, code: JSON = None, message: str = "provider prose"
) -> dict[str, JSON]:
    errors = [] if code is None else [{"code": code, "message": message}]
    return {"result": inner, "success": success, "errors": errors, "messages": []}


GOOD = envelope(result())


def strict_server(answer: HttpAnswer, model: str = "clef") -> Server:
    def reply(call: Call) -> HttpAnswer:
        assert call.path == f"/client/v4/accounts/{ACCOUNT}/ai/run/@cf/cloudflare/{model}"
        assert call.headers["authorization"] == f"Bearer {TOKEN}"
        assert set(call.json) == {"model", "state", "questions"}
        assert call.json["model"] == model
        for question in call.json["questions"].values():
            assert set(question) <= {"type", "instructions", "criteria"}
            assert question["instructions"]
        return answer

    return Server(reply)


def model_at(server: Server, name: str = "clef") -> ClefModel:
    return ClefModel(name, base_url=f"{server.url}/client/v4", api_key=TOKEN, account_id=ACCOUNT)


async def ask(answer: HttpAnswer, questions: Mapping[str, Question] = QUESTIONS) -> Any:
    async with strict_server(answer) as server:
        model = model_at(server)
        try:
            return await Classifier("c", model, questions).evaluate("I was charged twice")
        finally:
            await model.aclose()


async def failure(answer: HttpAnswer) -> ModelError:
    with pytest.raises(ModelError) as raised:
        await ask(answer)
    return raised.value


async def test_the_envelope_is_opened_and_its_answers_read() -> None:
    assert len(SystemOneResponse.model_validate_json(json.dumps(result())).answers) == 3
    found = await ask(HttpAnswer(GOOD, headers={"cf-ray": "ray-1"}))
    assert dict(found.answers) == {
        "unsafe": BooleanAnswer(0.0712),
        "route": ChoiceAnswer("billing", {"billing": 0.8001, "sales": 0.1999}, 0.6),
        "severity": ScoreAnswer(1.2, (0.1, 0.6, 0.3), 0.5),
    }
    assert found.rounding == Rounding(4, 4)
    assert found.usage == Usage(90, 0)
    assert (found.response.provider, found.response.requested_model) == ("clef", "clef")
    assert (found.response.model, found.response.request_id) == ("clef-27b-1", "ray-1")


async def test_the_flash_model_has_an_address_of_its_own() -> None:
    async with strict_server(HttpAnswer(GOOD), "clef-flash") as server:
        model = model_at(server, "clef-flash")
        await Classifier("c", model, QUESTIONS).evaluate({"k": 1})
        await model.aclose()
        assert server.calls[0].json["state"] == {"k": 1}


BAD: dict[str, JSON] = {
    "a bare result": result(),
    "nothing": {},
    "a list": [GOOD],
    "no success": {"result": result()},
    "success as text": envelope(result(), success="true"),
    "success as number": envelope(result(), success=1),
    "success false without a code": envelope(None, success=False),
    "success false and yet a result": envelope(result(), success=False),
    "success false with an unknown code": envelope(None, success=False, code=123456),
    "null result": envelope(None),
    "result as text": envelope("clean"),
    "null answers": envelope({"answers": None}),
    "no answers": envelope({"model": "clef"}),
    "an answer short": envelope({"answers": {"unsafe": UNSAFE}}),
    "the text false": envelope(result({**UNSAFE, "noul": "false"})),
    "a boolean": envelope(result({**UNSAFE, "noul": False})),
    "a number as text": envelope(result({**UNSAFE, "noul": "0"})),
    "a list in place of an answer": envelope(result([False])),
    "four decimals that do not sum up": envelope(
        result(route={**ROUTE, "probabilities": {"billing": 0.8001, "sales": 0.198}})
    ),
    "off its maximum": envelope(result(route={**ROUTE, "choice": "sales"})),
    "off its mean": envelope(result(severity={**SEVERITY, "score": 1.21})),
}


@pytest.mark.parametrize("body", BAD.values(), ids=BAD)
async def test_an_answer_that_cannot_be_trusted_is_an_error(body: JSON) -> None:
    assert isinstance(await failure(HttpAnswer(body)), InvalidAnswer)


@pytest.mark.parametrize(
    ("status", "code", "error"),
    [
        (401, 10000, AuthenticationFailed),
        (400, 5006, RequestRejected),
        (400, 6003, RequestRejected),
        (400, 7000, RequestRejected),
        (422, 5012, RequestRejected),
        (413, 5021, InputTooLarge),
        (429, 3040, RateLimited),
        (429, 4006, QuotaExhausted),
        (429, 3036, QuotaExhausted),
        (529, 5012, ModelUnavailable),
        (500, 1, ModelUnavailable),
        (200, 3040, RateLimited),
        (200, 4006, QuotaExhausted),
        (200, 10000, AuthenticationFailed),
    ],
)
async def test_codes_and_statuses_become_typed_errors_without_prose(
    status: int, code: int, error: type[ModelError]
) -> None:
    body = envelope(None, success=False, code=code, message=f"prose with {TOKEN} and charged twice")
    raised = await failure(HttpAnswer(body, status=status))
    assert type(raised) is error
    assert raised.retry_after is None
    assert raised.provider_code == str(code)
    for secret in (TOKEN, "prose", "charged twice"):
        assert secret not in f"{raised!r} {raised.__cause__!r} {raised.__context__!r}"


@pytest.mark.parametrize(
    ("questions", "error"),
    [
        ({f"q{n}": Boolean("?") for n in range(65)}, InputTooLarge),
        ({"q": Choice({"only": None})}, RequestRejected),
        ({"q": Choice({str(n): None for n in range(256)})}, InputTooLarge),
        ({"q": Score([None] * 11)}, InputTooLarge),
        ({"two words": Boolean("?")}, RequestRejected),
        ({"q" * 101: Boolean("?")}, RequestRejected),
    ],
)
async def test_limits_hold_before_any_request(
    questions: Mapping[str, Question], error: type[ModelError]
) -> None:
    async with Server([]) as server:
        with pytest.raises(error):
            await Classifier("c", model_at(server), questions).evaluate("text")
        assert server.calls == []


def test_missing_variables_are_named_all_at_once() -> None:
    problems = " ".join(ClefModel().configure({}))
    assert "CLOUDFLARE_API_TOKEN" in problems
    assert "CLOUDFLARE_ACCOUNT_ID" in problems
    assert list(ClefModel().configure({"CLOUDFLARE_API_TOKEN": "t", "CLOUDFLARE_ACCOUNT_ID": "a"})) == []


@pytest.mark.parametrize("account", ["../user", "a/b", "a?b", "a b"])
def test_an_account_cannot_change_the_address(account: str) -> None:
    environ = {"CLOUDFLARE_API_TOKEN": "t", "CLOUDFLARE_ACCOUNT_ID": account}
    assert any("CLOUDFLARE_ACCOUNT_ID" in problem for problem in ClefModel().configure(environ))


@pytest.mark.parametrize("model", ["", "..", "../x", "@cf/cloudflare/clef", "clef?x"])
def test_a_model_name_cannot_change_the_address(model: str) -> None:
    with pytest.raises(ConfigurationError, match="clef-flash"):
        ClefModel(model)


async def test_an_account_that_is_missing_is_said_before_any_request() -> None:
    async with Server([]) as server:
        model = ClefModel(base_url=server.url, api_key=TOKEN)
        with pytest.raises(ConfigurationError, match="CLOUDFLARE_ACCOUNT_ID"):
            await Classifier("c", model, QUESTIONS).evaluate("text")
