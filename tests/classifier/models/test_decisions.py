"""The list form, against a local server whose every body is read by the vendor's own types."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

import pytest
from openai.types.decision import Decision
from openai.types.decision_create_params import DecisionCreateParams
from pydantic import ConfigDict, TypeAdapter, with_config

from classifier.answers import Answer, BooleanAnswer, ChoiceAnswer, Refusal, ScoreAnswer
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
from classifier.models.decisions import (
    AzureDecisionsModel,
    DecisionsModel,
    LiteLLMDecisionsModel,
    encode_request,
    read_answers,
)
from classifier.models.protocol import DecisionRequest
from classifier.questions import Boolean, Choice, Question, Score
from classifier.result import Usage
from classifier.values import JSON, State
from tests.servers import Answer as HttpAnswer
from tests.servers import Call, Server

QUESTIONS: dict[str, Question] = {
    "unsafe": Boolean("Is it unsafe?", true="It threatens somebody", false="It does not"),
    "route": Choice({"billing": "Invoices", "sales": None}, "Who should read it?"),
    "severity": Score(["low", None, "high"], "How bad is it?"),
}
USAGE: dict[str, JSON] = {
    "input_tokens": 120,
    "input_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 0},
    "output_tokens": 3,
    "output_tokens_details": {"reasoning_tokens": 0},
    "total_tokens": 123,
}
UNSAFE: dict[str, JSON] = {"type": "predicate", "name": "unsafe", "probability": 0.07}
ROUTE: dict[str, JSON] = {
    "type": "choice",
    "name": "route",
    "choice": "billing",
    "confidence": 0.61,
    "probabilities": [{"value": "billing", "probability": 0.8}, {"value": "sales", "probability": 0.2}],
}
SEVERITY: dict[str, JSON] = {
    "type": "score",
    "name": "severity",
    "score": 1.2,
    "confidence": 0.5,
    "probabilities": [
        {"value": 0, "label": "0", "probability": 0.1},
        {"value": 1, "label": "1", "probability": 0.6},
        {"value": 2, "label": "2", "probability": 0.3},
    ],
}
KEY = "sk-test-do-not-show"


def response(*answers: JSON, **fields: JSON) -> dict[str, JSON]:
    return {"model": "gpt-6-luna-2026-10-06", "answers": answers, "usage": USAGE, **fields}


GOOD = response(UNSAFE, ROUTE, SEVERITY)

# The vendor's types, made strict: unknown fields are faults.
Params = TypeAdapter(with_config(ConfigDict(extra="forbid"))(DecisionCreateParams))


def as_vendor_reads(body: Any) -> None:
    Params.validate_python(body)


def strict_server(*answers: HttpAnswer) -> Server:
    replies = iter(answers)

    def reply(call: Call) -> HttpAnswer:
        assert (call.method, call.path) == ("POST", "/v1/decisions")
        assert call.headers["authorization"] == f"Bearer {KEY}"
        as_vendor_reads(call.json)
        assert call.json["model"] == "gpt-6-luna"
        return next(replies)

    return Server(reply)


def model_at(url: str) -> DecisionsModel:
    return DecisionsModel(base_url=f"{url}/v1", api_key=KEY)


async def ask(
    answer: HttpAnswer, questions: Mapping[str, Question] = QUESTIONS, state: State = "I was charged twice"
) -> Any:
    async with strict_server(answer) as server:
        model = model_at(server.url)
        try:
            return await Classifier("c", model, questions).evaluate(state)
        finally:
            await model.aclose()


async def failure(answer: HttpAnswer) -> ModelError:
    with pytest.raises(ModelError) as raised:
        await ask(answer)
    return raised.value


async def test_every_type_of_answer_is_read_as_the_vendor_documents_it() -> None:
    Decision.model_validate(GOOD)
    result = await ask(HttpAnswer(GOOD, headers={"x-request-id": "req_1"}))
    assert dict(result.answers) == {
        "unsafe": BooleanAnswer(0.07),
        "route": ChoiceAnswer("billing", {"billing": 0.8, "sales": 0.2}, 0.61),
        "severity": ScoreAnswer(1.2, (0.1, 0.6, 0.3), 0.5),
    }
    assert result.usage == Usage(120, 3)
    info = result.response
    assert (info.provider, info.requested_model, info.model) == (
        "openai",
        "gpt-6-luna",
        "gpt-6-luna-2026-10-06",
    )
    assert info.request_id == "req_1"


async def test_a_refused_question_leaves_the_others_answered() -> None:
    result = await ask(HttpAnswer(response(UNSAFE, {"type": "refusal", "name": "route"}, SEVERITY)))
    assert result.answers["route"] == Refusal("answer")
    assert isinstance(result.answers["unsafe"], BooleanAnswer)


@pytest.mark.parametrize(
    "state",
    [
        "plain text",
        "",
        {"subject": "Hello", "lines": [1, None, True]},
        [{"role": "user", "text": "Hello"}],
        ["not", "objects"],
        [],
    ],
)
def test_the_vendor_accepts_every_kind_of_state(state: State) -> None:
    body = encode_request("gpt-6-luna", DecisionRequest(state, QUESTIONS))
    as_vendor_reads(body)


def test_json_is_sent_as_json_and_a_predicate_carries_its_criteria_in_the_instructions() -> None:
    questions: dict[str, Question] = {
        "a": Boolean(true="yes"),
        "b": Choice({"x": {"means": "y"}, "z": None}, {"ask": "which"}),
        "c": Boolean([{"ask": 1}], false="no"),
    }
    body = encode_request("gpt-6-luna", DecisionRequest({"k": 1}, questions))
    as_vendor_reads(body)
    assert body["input"] == [
        {"type": "message", "role": "user", "content": [{"type": "input_json", "data": {"k": 1}}]}
    ]
    assert body["questions"] == [
        {"type": "predicate", "name": "a", "instructions": "a\nTrue means: yes"},
        {
            "type": "choice",
            "name": "b",
            "instructions": [{"type": "input_json", "data": {"ask": "which"}}],
            "choices": [{"value": "x", "description": '{"means": "y"}'}, {"value": "z"}],
        },
        {
            "type": "predicate",
            "name": "c",
            "instructions": [
                {"type": "input_json", "data": [{"ask": 1}]},
                {"type": "input_text", "text": "False means: no"},
            ],
        },
    ]


def nested(levels: int) -> JSON:
    value: JSON = 1
    for _ in range(levels):
        value = {"in": value}
    return value


@pytest.mark.parametrize(
    "state",
    [nested(33), {"values": [0] * 10_000}, {"text": "ä" * 131_072}],
    ids=["32 levels", "10,000 values", "256 KiB"],
)
async def test_json_over_a_limit_is_refused_before_any_request(state: State) -> None:
    async with Server([]) as server:
        with pytest.raises(InputTooLarge):
            await Classifier("c", model_at(server.url), QUESTIONS).evaluate(state)
        assert server.calls == []


def test_json_within_the_limits_is_taken() -> None:
    for state in (nested(32), {"values": [0] * 9_998}, {"text": "ä" * 131_000}):
        encode_request("m", DecisionRequest(cast("State", state), QUESTIONS))


@pytest.mark.parametrize(
    ("questions", "error"),
    [
        ({f"q{n}": Boolean("?") for n in range(401)}, InputTooLarge),
        ({"q": Choice({"only": None})}, RequestRejected),
        ({"q": Choice({str(n): None for n in range(256)})}, InputTooLarge),
        ({"q": Score([None] * 11)}, InputTooLarge),
    ],
)
async def test_limits_hold_before_any_request(
    questions: Mapping[str, Question], error: type[ModelError]
) -> None:
    async with Server([]) as server:
        with pytest.raises(error):
            await Classifier("c", model_at(server.url), questions).evaluate("text")
        assert server.calls == []


async def test_litellm_takes_fewer_questions() -> None:
    model = LiteLLMDecisionsModel("m", base_url="http://127.0.0.1:9")
    with pytest.raises(InputTooLarge, match="128 questions"):
        await Classifier("c", model, {f"q{n}": Boolean("?") for n in range(129)}).evaluate("text")


def with_route(**fields: JSON) -> dict[str, JSON]:
    return response(UNSAFE, {**ROUTE, **fields}, SEVERITY)


def with_severity(*probabilities: JSON) -> dict[str, JSON]:
    return response(UNSAFE, ROUTE, {**SEVERITY, "probabilities": probabilities})


def level(value: JSON, probability: JSON, **fields: JSON) -> dict[str, JSON]:
    return {"value": value, "label": str(value), "probability": probability, **fields}


BAD: dict[str, JSON] = {
    "no answers": {"model": "m", "usage": USAGE},
    "null answers": {"answers": None},
    "a map of answers": {"answers": {"unsafe": UNSAFE}},
    "not an object": [GOOD],
    "one answer short": response(UNSAFE, ROUTE),
    "one answer too many": response(UNSAFE, ROUTE, SEVERITY, SEVERITY),
    "an unasked answer": response(UNSAFE, ROUTE, {**SEVERITY, "name": "mood"}),
    "answers in another order": response(ROUTE, UNSAFE, SEVERITY),
    "a refusal without a name": response(UNSAFE, {"type": "refusal", "name": None}, SEVERITY),
    "a name that is a number": response({**UNSAFE, "name": 1}, ROUTE, SEVERITY),
    "a predicate for a choice": response(UNSAFE, {**UNSAFE, "name": "route"}, SEVERITY),
    "an unknown type": response({**UNSAFE, "type": "box"}, ROUTE, SEVERITY),
    "prose for a probability": response({**UNSAFE, "probability": "well, UNSAFE i think"}, ROUTE, SEVERITY),
    "the text false": response({**UNSAFE, "probability": "false"}, ROUTE, SEVERITY),
    "the text 0": response({**UNSAFE, "probability": "0"}, ROUTE, SEVERITY),
    "a real boolean for a probability": response({**UNSAFE, "probability": True}, ROUTE, SEVERITY),
    "a null probability": response({**UNSAFE, "probability": None}, ROUTE, SEVERITY),
    "a list for a probability": response({**UNSAFE, "probability": [False]}, ROUTE, SEVERITY),
    "a probability over 1": response({**UNSAFE, "probability": 1.01}, ROUTE, SEVERITY),
    "a number beyond any float": response({**UNSAFE, "probability": 10**400}, ROUTE, SEVERITY),
    "an option that was not offered": with_route(choice="spam"),
    "an option in another case": with_route(choice="Billing"),
    "a boolean option": with_route(choice=True),
    "an incomplete distribution": with_route(probabilities=[{"value": "billing", "probability": 1.0}]),
    "a repeated option": with_route(
        probabilities=[{"value": "billing", "probability": 0.5}, {"value": "billing", "probability": 0.5}]
    ),
    "a sum of 0.9": with_route(
        probabilities=[{"value": "billing", "probability": 0.6}, {"value": "sales", "probability": 0.3}]
    ),
    "a choice off its maximum": with_route(
        probabilities=[{"value": "billing", "probability": 0.4}, {"value": "sales", "probability": 0.6}]
    ),
    "levels from one": with_severity(level(1, 0.1), level(2, 0.6), level(3, 0.3)),
    "a level twice": with_severity(level(0, 0.1), level(1, 0.6), level(1, 0.3)),
    "a level as text": with_severity(level("0", 0.1), level(1, 0.6), level(2, 0.3)),
    "a level as boolean": with_severity(level(0, 0.1), level(True, 0.6), level(2, 0.3)),
    "another label": with_severity(level(0, 0.1, label="2"), level(1, 0.6), level(2, 0.3)),
    "a score off its mean": with_severity(level(0, 0.9), level(1, 0.1), level(2, 0.0)),
}


@pytest.mark.parametrize("body", BAD.values(), ids=BAD)
async def test_an_answer_that_cannot_be_trusted_is_an_error(body: JSON) -> None:
    error = await failure(HttpAnswer(body))
    assert isinstance(error, InvalidAnswer)
    assert not error.retryable


async def test_missing_and_extra_ids_are_listed() -> None:
    body = response(UNSAFE, ROUTE, {**SEVERITY, "name": "mood"})
    error = await failure(HttpAnswer(body))
    assert isinstance(error, InvalidAnswer)
    assert (error.missing, error.extra) == (("severity",), ("mood",))


def test_an_answer_without_a_name_is_matched_by_position_and_type() -> None:
    answers = read_answers({"answers": [{**UNSAFE, "name": None}]}, {"unsafe": QUESTIONS["unsafe"]})
    assert answers == {"unsafe": BooleanAnswer(0.07)}


def test_a_gateway_may_leave_out_distributions() -> None:
    entry = {"type": "choice", "name": "route", "choice": "sales"}
    assert read_answers({"answers": [entry]}, {"route": QUESTIONS["route"]}) == {
        "route": ChoiceAnswer("sales")
    }


def error_body(code: str, message: str = "provider prose") -> dict[str, JSON]:
    return {"error": {"message": message, "type": "invalid_request_error", "code": code, "param": None}}


@pytest.mark.parametrize(
    ("status", "code"),
    [
        (403, "content_policy_violation"),
        (400, "content_policy_violation"),
        (400, "content_filter"),
        (403, "refusal"),
    ],
)
async def test_a_request_refused_for_its_content_refuses_every_question(status: int, code: str) -> None:
    result = await ask(HttpAnswer(error_body(code), status=status))
    answers: list[Answer] = list(result.answers.values())
    assert answers == [Refusal("policy")] * 3
    assert result.response.model == "gpt-6-luna"


@pytest.mark.parametrize(
    ("status", "code", "error"),
    [
        (400, "invalid_value", RequestRejected),
        (401, "invalid_api_key", AuthenticationFailed),
        (403, "unsupported_country_region_territory", AuthenticationFailed),
        (404, "model_not_found", RequestRejected),
        (413, "too_large", InputTooLarge),
        (400, "context_length_exceeded", InputTooLarge),
        (429, "rate_limit_exceeded", RateLimited),
        (429, "insufficient_quota", QuotaExhausted),
        (429, "billing_hard_limit_reached", QuotaExhausted),
        (500, "content_filter", ModelUnavailable),
        (503, "overloaded", ModelUnavailable),
    ],
)
async def test_statuses_and_codes_become_typed_errors_without_prose(
    status: int, code: str, error: type[ModelError]
) -> None:
    raised = await failure(HttpAnswer(error_body(code, f"prose with {KEY} and charged twice"), status=status))
    assert type(raised) is error
    for secret in (KEY, "prose", "charged twice"):
        assert secret not in f"{raised!r} {raised} {raised.__cause__!r} {raised.__context__!r}"


async def test_azure_has_its_own_header_address_and_request_id() -> None:
    def reply(call: Call) -> HttpAnswer:
        assert call.path == "/openai/v1/decisions"
        assert call.headers["api-key"] == KEY
        assert "authorization" not in call.headers
        as_vendor_reads(call.json)
        return HttpAnswer(GOOD, headers={"apim-request-id": "az-1"})

    async with Server(reply) as server:
        for endpoint in (server.url, f"{server.url}/", f"{server.url}/openai/v1", f"{server.url}/openai/v1/"):
            model = AzureDecisionsModel("luna")
            environ = {"AZURE_OPENAI_ENDPOINT": endpoint, "AZURE_OPENAI_API_KEY": KEY}
            assert list(model.configure(environ)) == []
            result = await Classifier("c", model, QUESTIONS).evaluate("text")
            assert (result.response.provider, result.response.request_id) == ("azure", "az-1")
            await model.aclose()


async def test_litellm_needs_an_address_and_no_key() -> None:
    async with Server([HttpAnswer(GOOD)]) as server:
        model = LiteLLMDecisionsModel("gpt-6-luna")
        assert len(list(model.configure({}))) == 1
        assert list(model.configure({"LITELLM_BASE_URL": server.url})) == []
        result = await Classifier("c", model, QUESTIONS).evaluate("text")
        await model.aclose()
        assert result.response.provider == "litellm"
        assert server.calls[0].path == "/v1/decisions"
        assert "authorization" not in server.calls[0].headers


def test_missing_variables_are_named() -> None:
    assert "OPENAI_API_KEY" in " ".join(DecisionsModel().configure({}))
    problems = " ".join(AzureDecisionsModel("d").configure({}))
    assert "AZURE_OPENAI_API_KEY" in problems
    assert "AZURE_OPENAI_ENDPOINT" in problems
    assert list(DecisionsModel().configure({"OPENAI_API_KEY": "k"})) == []


async def test_a_key_from_the_environment_does_not_travel_to_another_address() -> None:
    async with Server([HttpAnswer(GOOD)]) as server:
        model = DecisionsModel(base_url=f"{server.url}/v1")
        assert list(model.configure({"OPENAI_API_KEY": KEY})) == []
        await Classifier("c", model, QUESTIONS).evaluate("text")
        await model.aclose()
        assert KEY not in str(server.calls[0].headers)


async def test_provider_options_are_added_and_cannot_replace_the_question() -> None:
    async with strict_server(HttpAnswer(GOOD)) as server:
        model = model_at(server.url)
        classifier = Classifier("c", model, QUESTIONS)
        await classifier.evaluate("text", provider_options={"safety_identifier": "u-1"})
        assert server.calls[0].json["safety_identifier"] == "u-1"
        with pytest.raises(ConfigurationError, match="model"):
            await classifier.evaluate("text", provider_options={"model": "other"})
        await model.aclose()


async def test_usage_that_cannot_be_read_costs_no_answer() -> None:
    result = await ask(HttpAnswer(response(UNSAFE, ROUTE, SEVERITY, usage={"input_tokens": "many"})))
    assert result.usage == Usage()
    assert result.warnings
