"""Gemini Decisions, against a local server whose every body is read by google-genai's own types."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import pytest

from classifier.answers import BooleanAnswer, ChoiceAnswer, Refusal, ScoreAnswer
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
from classifier.models.gemini import GeminiModel, encode_request
from classifier.models.protocol import DecisionRequest
from classifier.questions import Boolean, Choice, Question, Score
from classifier.result import Usage
from classifier.values import JSON, State
from tests import late
from tests.servers import Answer as HttpAnswer
from tests.servers import Call, Server

if TYPE_CHECKING:
    from google.genai import decisions as vendor
    from google.genai.decisions import CreateDecisionRequest, CreateDecisionResponse

QUESTIONS: dict[str, Question] = {
    "unsafe": Boolean("Is it unsafe?", true="It threatens somebody"),
    "route": Choice({"billing": "Invoices", "sales": None}, "Who should read it?"),
    "severity": Score(["low", None, "high"], "How bad is it?"),
}
UNSAFE: dict[str, JSON] = {"type": "noul", "noul": 0.07, "confidence": 0.93}
ROUTE: dict[str, JSON] = {
    "type": "choice",
    "choice": "billing",
    "confidence": 0.8,
    "probabilities": {"billing": 0.8, "sales": 0.2},
}
SEVERITY: dict[str, JSON] = {
    "type": "score",
    "score": 1.2,
    "confidence": 0.6,
    "probabilities": {"0": 0.1, "1": 0.6, "2": 0.3},
    "legend": {"0": "low", "1": "1", "2": "high"},
}
USAGE: dict[str, JSON] = {"total_input_tokens": 80, "total_output_tokens": 0, "total_tokens": 80}
KEY = "AIza-do-not-show"


@pytest.fixture(scope="module", autouse=True)
def framework() -> None:
    late.imports(globals())


def response(unsafe: JSON = UNSAFE, route: JSON = ROUTE, severity: JSON = SEVERITY) -> dict[str, JSON]:
    return {"answers": {"unsafe": unsafe, "route": route, "severity": severity}, "usage": USAGE}


GOOD = response()
BLOCKED: dict[str, JSON] = {
    "prompt_feedback": {"block_reason": "prohibited_content", "block_reason_message": "provider prose"},
    "usage": USAGE,
}


def as_vendor_reads(body: Any) -> None:
    """Google's types take the body, and nothing in it is unknown to them."""
    read = CreateDecisionRequest.model_validate(body)
    assert read.model_dump(exclude_unset=True) == body


def strict_server(answer: HttpAnswer) -> Server:
    def reply(call: Call) -> HttpAnswer:
        assert (call.method, call.path) == ("POST", "/v1beta/decisions")
        assert call.headers["x-goog-api-key"] == KEY
        assert "authorization" not in call.headers
        as_vendor_reads(call.json)
        return answer

    return Server(reply)


async def ask(
    answer: HttpAnswer, questions: Mapping[str, Question] = QUESTIONS, state: State = "I was charged twice"
) -> Any:
    async with strict_server(answer) as server:
        model = GeminiModel(base_url=server.url, api_key=KEY)
        try:
            return await Classifier("c", model, questions).evaluate(state)
        finally:
            await model.aclose()


async def failure(answer: HttpAnswer) -> ModelError:
    with pytest.raises(ModelError) as raised:
        await ask(answer)
    return raised.value


async def test_every_type_of_answer_is_read_as_the_vendor_documents_it() -> None:
    CreateDecisionResponse.model_validate(GOOD)
    result = await ask(HttpAnswer(GOOD))
    assert dict(result.answers) == {
        "unsafe": BooleanAnswer(0.07, confidence=0.93),
        "route": ChoiceAnswer("billing", {"billing": 0.8, "sales": 0.2}, 0.8),
        "severity": ScoreAnswer(1.2, (0.1, 0.6, 0.3), 0.6),
    }
    assert result.usage == Usage(80, 0)
    assert (result.response.provider, result.response.model) == ("gemini", "gemini-decision-1")


def test_the_body_is_what_the_vendor_documents() -> None:
    body = encode_request("gemini-decision-1", DecisionRequest({"k": [1]}, QUESTIONS))
    as_vendor_reads(body)
    assert body == {
        "model": "models/gemini-decision-1",
        "input": '{"k": [1]}',
        "questions": {
            "unsafe": {
                "type": "noul",
                "instructions": "Is it unsafe?",
                "criteria": {"true_description": "It threatens somebody"},
            },
            "route": {
                "type": "choice",
                "instructions": "Who should read it?",
                "criteria": {"billing": "Invoices", "sales": ""},
            },
            "severity": {"type": "score", "instructions": "How bad is it?", "criteria": ["low", "1", "high"]},
        },
    }


def test_what_is_left_out_or_is_json_still_satisfies_the_vendor() -> None:
    questions: dict[str, Question] = {
        "a": Boolean(),
        "b": Choice({"x": {"means": 1}, "y": ""}, ["which", {"one": 1}]),
        "c": Score(["", " ", {"level": 2}]),
    }
    body: Any = encode_request("models/m", DecisionRequest("text", questions))
    as_vendor_reads(body)
    assert body["model"] == "models/m"
    assert body["questions"]["a"] == {"type": "noul", "instructions": "a"}
    assert body["questions"]["c"]["criteria"] == ["0", "1", '{"level": 2}']
    assert isinstance(vendor.ScoreQuestion.model_validate(body["questions"]["c"]), vendor.ScoreQuestion)


async def test_blocked_input_refuses_every_question_and_keeps_the_reason_without_prose() -> None:
    CreateDecisionResponse.model_validate(BLOCKED)
    result = await ask(HttpAnswer(BLOCKED))
    assert list(result.answers.values()) == [Refusal("blocked")] * 3
    assert result.provider_metadata == {"block_reason": "prohibited_content"}


@pytest.mark.parametrize("reason", ["a_reason_of_tomorrow", "some prose about the input", 7, True])
async def test_an_unknown_block_reason_still_blocks(reason: JSON) -> None:
    result = await ask(HttpAnswer({"prompt_feedback": {"block_reason": reason}, "answers": {}}))
    assert result.answers["unsafe"] == Refusal("blocked")
    assert "prose" not in str(result.provider_metadata)


async def test_an_input_blocked_by_an_http_400_refuses_every_question() -> None:
    for body in (error_body(400, "INVALID_ARGUMENT", reason="SAFETY"), BLOCKED):
        result = await ask(HttpAnswer(body, status=400))
        assert list(result.answers.values()) == [Refusal("blocked")] * 3


async def test_blocked_and_yet_answered_is_not_believed() -> None:
    error = await failure(HttpAnswer({**GOOD, **BLOCKED}))
    assert isinstance(error, InvalidAnswer)


BAD: dict[str, JSON] = {
    "nothing": {},
    "no answers": {"usage": USAGE},
    "null answers": {"answers": None},
    "empty answers": {"answers": {}},
    "a list": [GOOD],
    "feedback without a reason": {"prompt_feedback": {}},
    "an answer short": {"answers": {"unsafe": UNSAFE, "route": ROUTE}},
    "an unasked answer": {"answers": {**GOOD["answers"], "mood": UNSAFE}},  # type: ignore[dict-item]
    "a null answer": response(unsafe=None),
    "prose": response(unsafe="well, UNSAFE i think"),
    "the text false": response({**UNSAFE, "noul": "false"}),
    "a boolean": response({**UNSAFE, "noul": False}),
    "no noul": response({"type": "noul"}),
    "over 1": response({**UNSAFE, "noul": 1.5}),
    "another type": response(ROUTE),
    "an unknown type": response({**UNSAFE, "type": "yes_no"}),
    "confidence as text": response({**UNSAFE, "confidence": "0.9"}),
    "an option not offered": response(route={**ROUTE, "choice": "spam"}),
    "an option short": response(route={**ROUTE, "probabilities": {"billing": 1.0}}),
    "an option extra": response(route={**ROUTE, "probabilities": {"billing": 0.8, "sales": 0.2, "spam": 0}}),
    "a sum of 0.9": response(route={**ROUTE, "probabilities": {"billing": 0.7, "sales": 0.2}}),
    "off its maximum": response(route={**ROUTE, "probabilities": {"billing": 0.4, "sales": 0.6}}),
    "levels from one": response(severity={**SEVERITY, "probabilities": {"1": 0.1, "2": 0.6, "3": 0.3}}),
    "off its mean": response(severity={**SEVERITY, "score": 0}),
    "a score as text": response(severity={**SEVERITY, "score": "1.2"}),
}


@pytest.mark.parametrize("body", BAD.values(), ids=BAD)
async def test_an_answer_that_cannot_be_trusted_is_an_error(body: JSON) -> None:
    assert isinstance(await failure(HttpAnswer(body)), InvalidAnswer)


def error_body(code: int, status: str, **detail: JSON) -> dict[str, JSON]:
    message = f"prose with {KEY} and charged twice"
    return {"error": {"code": code, "message": message, "status": status, "details": [detail]}}


@pytest.mark.parametrize(
    ("status", "body", "error"),
    [
        (400, error_body(400, "INVALID_ARGUMENT"), RequestRejected),
        (400, error_body(400, "INVALID_ARGUMENT", reason="API_KEY_INVALID"), AuthenticationFailed),
        (401, error_body(401, "UNAUTHENTICATED"), AuthenticationFailed),
        (403, error_body(403, "PERMISSION_DENIED"), AuthenticationFailed),
        (404, error_body(404, "NOT_FOUND"), RequestRejected),
        (409, error_body(409, "ABORTED"), ModelUnavailable),
        (429, error_body(429, "RESOURCE_EXHAUSTED"), RateLimited),
        (500, error_body(500, "INTERNAL", reason="SAFETY"), ModelUnavailable),
        (503, error_body(503, "UNAVAILABLE"), ModelUnavailable),
        (400, {"error": {"details": [None, "text", {"violations": "none"}]}}, RequestRejected),
    ],
)
async def test_statuses_and_details_become_typed_errors_without_prose(
    status: int, body: JSON, error: type[ModelError]
) -> None:
    raised = await failure(HttpAnswer(body, status=status))
    assert type(raised) is error
    for secret in (KEY, "prose", "charged twice"):
        assert secret not in f"{raised!r} {raised.__cause__!r} {raised.__context__!r}"


async def test_a_spent_day_is_not_worth_a_retry_and_a_spent_minute_is() -> None:
    day = error_body(429, "RESOURCE_EXHAUSTED", violations=[{"quotaId": "RequestsPerDayPerProject"}])
    raised = await failure(HttpAnswer(day, status=429))
    assert isinstance(raised, QuotaExhausted)
    minute = error_body(429, "RESOURCE_EXHAUSTED", retryDelay="37.5s")
    raised = await failure(HttpAnswer(minute, status=429))
    assert isinstance(raised, RateLimited)
    assert raised.retry_after == 37.5


@pytest.mark.parametrize(
    ("questions", "error"),
    [
        ({f"q{n}": Boolean("?") for n in range(1001)}, InputTooLarge),
        ({"q": Choice({"only": None})}, RequestRejected),
        ({"q": Choice({" padded": None, "b": None})}, RequestRejected),
        ({"q": Choice({"a\nb": None, "b": None})}, RequestRejected),
        ({"q": Score([None] * 256)}, InputTooLarge),
    ],
)
async def test_limits_hold_before_any_request(
    questions: Mapping[str, Question], error: type[ModelError]
) -> None:
    async with Server([]) as server:
        with pytest.raises(error):
            await Classifier("c", GeminiModel(base_url=server.url, api_key=KEY), questions).evaluate("text")
        assert server.calls == []


async def test_provider_options_cannot_replace_the_question() -> None:
    classifier = Classifier("c", GeminiModel(api_key=KEY), QUESTIONS)
    with pytest.raises(ConfigurationError, match="input"):
        await classifier.evaluate("text", provider_options={"input": "other"})


def test_either_variable_holds_the_key() -> None:
    assert "GEMINI_API_KEY or GOOGLE_API_KEY" in " ".join(GeminiModel().configure({}))
    for variable in ("GEMINI_API_KEY", "GOOGLE_API_KEY"):
        assert list(GeminiModel().configure({variable: KEY})) == []
