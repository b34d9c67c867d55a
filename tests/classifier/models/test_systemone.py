"""The System One adapter: its format by the vendor's own types, refusals, limits, hostile answers."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st
from typesafe_sdk._schemas import models as vendor

from classifier.answers import BooleanAnswer, ChoiceAnswer, Refusal, ScoreAnswer
from classifier.classifier import Classifier
from classifier.errors import (
    AuthenticationFailed,
    ClassifierError,
    ConfigurationError,
    InputTooLarge,
    InvalidAnswer,
    ModelError,
    ModelUnavailable,
    QuotaExhausted,
    RequestRejected,
)
from classifier.models import systemone
from classifier.models.http import Timeouts
from classifier.models.protocol import DecisionModel, DecisionRequest
from classifier.models.systemone import (
    LITELLM,
    OLLAMA,
    OPENROUTER,
    PARALLEL,
    PERPLEXITY,
    SELF_HOSTED,
    TYPESAFE,
    Service,
    SystemOne,
)
from classifier.models.systemone_codec import decode_answers, encode_questions
from classifier.models.wire import Limits
from classifier.questions import Boolean, Choice, Question, Score
from classifier.result import ClassifierResult, DecisionResponse, Rounding, Truncation, Usage
from classifier.validation import check_answers
from classifier.values import JSON
from tests.servers import Answer, Hang, Raw, Server, half_of

QUESTIONS: dict[str, Question] = {
    "unsafe": Boolean("Is it unsafe?", true="Threats"),
    "route": Choice({"billing": "Invoices", "technical": None, "sales": {"about": ["offers"]}}),
    "severity": Score(["low", None, "high"], ["How", {"bad": "is it?"}]),
}
ANSWERS: dict[str, Any] = {
    "unsafe": {"type": "noul", "noul": 0.02},
    "route": {
        "type": "choice",
        "choice": "technical",
        "confidence": 0.7,
        "probabilities": {"billing": 0.1, "technical": 0.8, "sales": 0.1},
    },
    "severity": {
        "type": "score",
        "score": 1.5,
        "confidence": 0.6,
        "legend": {"0": "low", "1": "1", "2": "high"},
        "probabilities": {"0": 0.1, "1": 0.3, "2": 0.6},
    },
}
BODY: dict[str, Any] = {
    "model": "jev-1.13.0",
    "answers": ANSWERS,
    "usage": {"input_tokens": 120, "output_tokens": 12},
}


async def result_of(
    server: Server,
    questions: Mapping[str, Question] = QUESTIONS,
    *,
    service: Service = SELF_HOSTED,
    options: Mapping[str, JSON] | None = None,
    state: str = "The printer is on fire.",
) -> ClassifierResult[Any]:
    """What a classifier makes of the server's answer."""
    model = SystemOne("m", service=service, base_url=server.url, api_key="k" * 8)
    try:
        return await Classifier("test", model, questions).evaluate(state, provider_options=options)
    finally:
        await model.aclose()


async def error_of(
    reply: Answer | Raw | Hang, questions: Mapping[str, Question] = QUESTIONS, service: Service = SELF_HOSTED
) -> ClassifierError:
    """The error that an answer ends in."""
    async with Server([reply]) as server:
        with pytest.raises(ClassifierError) as caught:
            await result_of(server, questions, service=service)
    return caught.value


def with_answer(question: str, **fields: object) -> Answer:
    """The good answer with some fields of one question changed; `...` removes one."""
    entry = {**ANSWERS[question], **fields}
    entry = {key: value for key, value in entry.items() if value is not ...}
    return Answer({**BODY, "answers": {question: entry}})


def only(question: str) -> dict[str, Question]:
    return {question: QUESTIONS[question]}


# -- the wire ---------------------------------------------------------------------------------------------


async def test_request_and_answer_are_what_the_vendor_declares() -> None:
    vendor.SystemOneResponse.model_validate(BODY)
    async with Server([Answer(BODY, headers={"x-typesafe-request-id": "req-1"})]) as server:
        result = await result_of(server, service=TYPESAFE)
    (call,) = server.calls
    sent = vendor.SystemOneRequest.model_validate_json(call.body)
    assert (sent.model, sent.state) == ("m", "The printer is on fire.")
    assert (call.path, call.headers["authorization"]) == ("/v1/systemone", "Bearer kkkkkkkk")
    questions = cast("dict[str, Any]", {name: question.root for name, question in sent.questions.items()})
    assert questions["unsafe"] == vendor.NoulQuestion(
        type="noul", instructions="Is it unsafe?", criteria=vendor.NoulCriteria(true="Threats", false=None)
    )
    assert list(questions["route"].criteria) == ["billing", "technical", "sales"]
    assert questions["route"].instructions == "route"
    assert questions["severity"].criteria == ["low", "1", "high"]

    assert result.answers["unsafe"] == BooleanAnswer(0.02)
    assert result.answers["route"] == ChoiceAnswer("technical", ANSWERS["route"]["probabilities"], 0.7)
    assert result.answers["severity"] == ScoreAnswer(1.5, (0.1, 0.3, 0.6), 0.6)
    assert (result.response.requested_model, result.response.model) == ("m", "jev-1.13.0")
    assert (result.response.provider, result.response.request_id) == ("typesafe", "req-1")
    assert result.usage == Usage(120, 12)
    assert result.warnings == ()


TEXTS = st.recursive(
    st.text(min_size=1, max_size=8) | st.integers(-3, 3),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=3), inner, max_size=2),
    max_leaves=4,
).filter(lambda value: not isinstance(value, int))
IDS = st.text(min_size=1, max_size=6).filter(str.strip)
BOOLEANS = st.builds(Boolean, st.none() | TEXTS, true=st.none() | TEXTS, false=st.none() | TEXTS)
CHOICES = st.builds(
    Choice, st.dictionaries(IDS, st.none() | TEXTS, min_size=1, max_size=4), st.none() | TEXTS
)
SCORES = st.builds(Score, st.lists(st.none() | TEXTS, min_size=2, max_size=5), st.none() | TEXTS)
SETS = st.dictionaries(IDS, BOOLEANS | CHOICES | SCORES, min_size=1, max_size=4)


@given(SETS)
def test_any_legal_question_set_is_a_request_the_vendor_accepts(questions: dict[str, Question]) -> None:
    body = {"model": "m", "state": "s", "questions": encode_questions(questions)}
    vendor.SystemOneRequest.model_validate(body)


def good_entry(question: Question) -> dict[str, Any]:
    match question:
        case Boolean():
            return {"type": "noul", "noul": 0.5}
        case Choice():
            share = dict.fromkeys(question.options, 1 / len(question.options))
            return {
                "type": "choice",
                "choice": next(iter(share)),
                "confidence": 0.1,
                "probabilities": share,
            }
        case Score():
            levels = {str(level): 1 / len(question.levels) for level in range(len(question.levels))}
            mean = (len(levels) - 1) / 2
            legend = dict.fromkeys(levels, "x")
            return {
                "type": "score",
                "score": mean,
                "confidence": 0.1,
                "legend": legend,
                "probabilities": levels,
            }


JUNK = st.sampled_from(
    [None, True, False, "", "0.5", "false", "NaN", [], [0.5], {}, {"0": "1"}, -1, 2, 10**400, 1.5, "x"]
)


@given(SETS, st.data())
def test_a_damaged_answer_is_invalid_or_still_the_same(
    questions: dict[str, Question], data: st.DataObject
) -> None:
    entries = {name: good_entry(question) for name, question in questions.items()}
    good = decode_answers(questions, entries)
    name = data.draw(st.sampled_from(sorted(entries)))
    key = data.draw(st.sampled_from(sorted(entries[name])))
    damaged = {**entries, name: {**entries[name], key: data.draw(JUNK)}}
    value = damaged[name][key]
    try:
        read = decode_answers(questions, damaged)
        check_answers(questions, read, Rounding(2, 2))
    except InvalidAnswer:
        return
    match key, questions[name]:
        case "legend", _:
            assert read == good
        case "confidence" | "probabilities", _:
            assert value is None
        case "choice", Choice(options=options):
            assert value in options
        case "score", Score():
            assert value == pytest.approx(entries[name]["score"], abs=0.2)
        case _:
            pytest.fail(f"{key} = {value!r} was accepted")


@pytest.mark.parametrize("kind", ["boolean", "predicate", "box", "Noul", "", None, 1, ["noul"]])
async def test_an_answer_of_another_type_is_invalid(kind: object) -> None:
    assert isinstance(await error_of(with_answer("unsafe", type=kind), only("unsafe")), InvalidAnswer)


async def test_confidence_and_distribution_may_be_absent() -> None:
    reply = with_answer("route", probabilities=..., confidence=...)
    async with Server([reply]) as server:
        result = await result_of(server, only("route"))
    assert result.answers["route"] == ChoiceAnswer("technical")


@pytest.mark.parametrize(
    "usage",
    [
        None,
        {},
        "many",
        [1, 2],
        {"input_tokens": "12"},
        {"input_tokens": -1},
        {"input_tokens": 1.5},
        {"cost": True},
        {"input_tokens": True, "output_tokens": 10**400},
    ],
)
async def test_usage_that_cannot_be_read_costs_no_answer(usage: JSON) -> None:
    async with Server([Answer({**BODY, "usage": usage})]) as server:
        result = await result_of(server)
    assert result.usage == Usage()
    assert (result.warnings == ()) is (usage in (None, {}))


async def test_cost_id_and_unknown_plain_fields_are_kept_and_prose_is_not() -> None:
    extras = {"id": "gen-dec-1", "provider": "TypeSafe", "latency_ms": 3.5, "note": "Some prose, with state"}
    usage = {"input_tokens": 5.0, "output_tokens": 2, "cost": 0.00012}
    async with Server([Answer({**BODY, **extras, "usage": usage})]) as server:
        result = await result_of(server, service=OPENROUTER)
    assert result.response.id == "gen-dec-1"
    assert result.usage == Usage(5, 2, 0.00012)
    assert result.provider_metadata == {"provider": "TypeSafe", "latency_ms": 3.5}


async def test_an_answer_that_names_no_model_keeps_the_requested_name_and_says_so() -> None:
    async with Server([Answer({"answers": ANSWERS})]) as server:
        result = await result_of(server)
    assert result.response.model == "m"
    assert result.warnings == ("the answer does not name its model",)


async def test_what_the_service_says_it_cut_is_on_the_result() -> None:
    marks = {"truncated": True, "state_tokens_dropped": 40, "truncated_questions": ["route", "other"]}
    async with Server([Answer({**BODY, **marks}), Answer({**BODY, "truncated": True})]) as server:
        first = await result_of(server)
        second = await result_of(server)
    assert first.truncation == Truncation(23, None, "model")
    assert first.warnings == (
        "the service dropped 40 tokens of the state",
        "the service cut the questions route",
    )
    assert second.truncation == Truncation(23, None, "model")


async def test_provider_options_are_further_fields_and_never_the_adapters_own() -> None:
    async with Server([Answer(BODY)]) as server:
        await result_of(server, options={"session_id": "s-1"})
        assert server.calls[0].json["session_id"] == "s-1"
        with pytest.raises(ConfigurationError, match="model"):
            await result_of(server, options={"model": "other"})


# -- refusals ---------------------------------------------------------------------------------------------


async def test_a_typed_refusal_is_legal_for_every_question() -> None:
    entries = {name: {"type": "refusal", "reason": "x"} for name in QUESTIONS}
    async with Server([Answer({**BODY, "answers": entries})]) as server:
        result = await result_of(server)
    assert dict(result.answers) == dict.fromkeys(QUESTIONS, Refusal("answer"))


@pytest.mark.parametrize("code", ["refusal", "content_policy_violation"])
async def test_a_403_for_reasons_of_content_refuses_every_question(code: str) -> None:
    body: JSON = {"error": {"code": 403, "message": "m", "metadata": {"error_type": code}}}
    async with Server([Answer(body, 403)]) as server:
        result = await result_of(server, service=OPENROUTER)
    assert dict(result.answers) == dict.fromkeys(QUESTIONS, Refusal("policy"))


@pytest.mark.parametrize(
    ("status", "code", "expected"),
    [(403, "permission_denied", AuthenticationFailed), (400, "refusal", RequestRejected)],
)
async def test_another_error_is_no_refusal(status: int, code: str, expected: type[ModelError]) -> None:
    assert type(await error_of(Answer({"error": {"code": code}}, status))) is expected


async def test_blocked_input_refuses_every_question() -> None:
    body: JSON = {"prompt_feedback": {"block_reason": "safety", "block_reason_message": "words"}}
    async with Server([Answer(body)]) as server:
        result = await result_of(server)
    assert dict(result.answers) == dict.fromkeys(QUESTIONS, Refusal("blocked"))


async def test_an_omitted_id_is_a_refusal_only_where_the_service_refuses_so() -> None:
    partial = Answer({**BODY, "answers": {"unsafe": ANSWERS["unsafe"]}})
    async with Server([partial]) as server:
        result = await result_of(server, service=LITELLM)
    assert result.answers["route"] == result.answers["severity"] == Refusal("omitted")
    assert result.answers["unsafe"] == BooleanAnswer(0.02)
    error = await error_of(partial)
    assert isinstance(error, InvalidAnswer)
    assert error.missing == ("route", "severity")


async def test_even_then_no_answers_at_all_is_no_refusal() -> None:
    assert isinstance(await error_of(Answer({"model": "x"}), service=LITELLM), InvalidAnswer)


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        ({"code": 402, "message": "m"}, QuotaExhausted),
        ({"code": 503, "message": "m"}, ModelUnavailable),
        ({"code": "context_length_exceeded", "message": "m"}, InputTooLarge),
        ({"code": "InternalError", "message": "m"}, ModelUnavailable),
        ("words", ModelUnavailable),
    ],
)
async def test_an_error_inside_a_200_is_an_error(error: JSON, expected: type[ModelError]) -> None:
    assert type(await error_of(Answer({"error": error}))) is expected


# -- limits and settings ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("service", "question", "expected"),
    [
        (TYPESAFE, Choice({str(option): None for option in range(256)}), InputTooLarge),
        (TYPESAFE, Score([None] * 11), InputTooLarge),
        (OLLAMA, Choice({"only": None}), RequestRejected),
        (OLLAMA, Choice({str(option): None for option in range(27)}), InputTooLarge),
    ],
)
async def test_a_question_over_the_limits_is_refused_before_any_io(
    service: Service, question: Question, expected: type[ModelError]
) -> None:
    async with Server([]) as server:
        with pytest.raises(expected, match="'q' has"):
            await result_of(server, {"q": question}, service=service)
    assert server.connections == 0


async def test_too_many_questions_are_refused_before_any_io() -> None:
    async with Server([]) as server:
        with pytest.raises(InputTooLarge, match="128 questions"):
            await result_of(server, {str(n): Boolean() for n in range(129)}, service=PERPLEXITY)
    assert server.connections == 0


async def test_one_option_and_255_options_are_sent() -> None:
    for count in (1, 255):
        options = {f"o{n}": None for n in range(count)}
        answer = {"type": "choice", "choice": "o0", "confidence": 1.0}
        async with Server([Answer({**BODY, "answers": {"q": answer}})]) as server:
            result = await result_of(server, {"q": Choice(options)}, service=TYPESAFE)
        assert result.answers["q"] == ChoiceAnswer("o0", None, 1.0)


async def test_each_service_is_spoken_to_in_its_own_way() -> None:
    one_sided: dict[str, Question] = {"unsafe": Boolean(true="Threats")}
    reply = Answer({**BODY, "answers": {"unsafe": ANSWERS["unsafe"]}})
    async with Server(lambda _: reply) as server:
        await result_of(server, one_sided, service=OPENROUTER)
        await result_of(server, one_sided, service=PARALLEL, options={"mode": "fast"})
    router, parallel = server.calls
    assert router.path == "/systemone"
    assert router.json["questions"]["unsafe"]["criteria"] == {"true": "Threats", "false": "no"}
    assert router.json["questions"]["unsafe"]["instructions"] == "unsafe"
    assert parallel.path == "/v1/decisions"
    assert parallel.json.keys() == {"state", "questions", "mode"}


@pytest.mark.parametrize("variable", ["TYPESAFE_API_KEY", "TYPESAFE_AI_API_KEY"])
async def test_typesafe_takes_everything_from_its_variables(variable: str) -> None:
    model: DecisionModel = SystemOne()
    assert any("TYPESAFE_API_KEY or TYPESAFE_AI_API_KEY" in problem for problem in model.configure({}))
    async with Server([Answer(BODY)]) as server:
        environ = {variable: "ts-1", "TYPESAFE_BASE_URL": server.url, "TYPESAFE_DEFAULT_MODEL": "jev-1.14.0"}
        assert not model.configure(environ)
        response = await model.decide(DecisionRequest("state", QUESTIONS))
        await model.aclose()
    assert server.calls[0].headers["authorization"] == "Bearer ts-1"
    assert server.calls[0].json["model"] == model.name == response.response.requested_model == "jev-1.14.0"


def test_a_model_named_in_code_wins_over_the_variable() -> None:
    model = SystemOne("jev-1.13.0")
    model.configure({"TYPESAFE_API_KEY": "k", "TYPESAFE_DEFAULT_MODEL": "jev-preview"})
    assert model.name == "jev-1.13.0"


async def test_a_typesafe_key_in_the_environment_never_travels_to_another_address() -> None:
    async with Server([Answer(BODY)]) as server:
        model = SystemOne(base_url=server.url)
        assert not model.configure({"TYPESAFE_API_KEY": "ts-1"})
        await model.decide(DecisionRequest("state", QUESTIONS))
        await model.aclose()
    assert "authorization" not in server.calls[0].headers


def test_a_service_without_a_default_model_wants_one_named() -> None:
    with pytest.raises(ConfigurationError, match="openrouter"):
        SystemOne(service=OPENROUTER)


SERVICES = [value for value in vars(systemone).values() if isinstance(value, Service)]


@pytest.mark.parametrize("service", SERVICES, ids=lambda service: service.provider)
def test_every_named_service_is_complete_with_a_key_and_an_address(service: Service) -> None:
    model = SystemOne("m", service=service, base_url="http://127.0.0.1:9", api_key="k")
    assert not model.configure({})
    assert isinstance(model, DecisionModel)
    needs = SystemOne("m", service=service).configure({})
    assert len(needs) == int(service.key_required) + int(service.base_url is None)


# -- the open cases ---------------------------------------------------------------------------------------

ABUSIVE: dict[str, Question] = {"abusive": Boolean("Is it abusive?")}


@pytest.mark.parametrize(
    "reply",
    [
        Answer({"answers": {"abusive": "well, ABUSE i think"}}),
        Answer({"answers": {}}),
        Answer({"answers": {"abusive": None}}),
        Answer(b""),
        Answer(b"<html><body>OK</body></html>", headers={"content-type": "text/html"}),
        Answer(b"", status=204),
        Answer([]),
        Answer("false"),
        half_of(Answer({"answers": {"abusive": {"type": "noul", "noul": 0.0}}})),
    ],
)
async def test_cls_o01_an_answer_that_cannot_be_read_is_an_error(reply: Answer | Raw) -> None:
    error = await error_of(reply, ABUSIVE)
    assert isinstance(error, InvalidAnswer | ModelUnavailable)


@pytest.mark.parametrize(
    "value", ["false", "False ", "0", "no", "", "unknown", True, False, [False], {"p": 0}, None, 1.5, -0.1]
)
async def test_cls_o02_text_and_booleans_are_never_a_probability(value: JSON) -> None:
    reply = Answer({"answers": {"abusive": {"type": "noul", "noul": value}}})
    assert isinstance(await error_of(reply, ABUSIVE), InvalidAnswer)


@pytest.mark.parametrize(
    "probabilities",
    [
        {"technical": 1.0},
        {"billing": 0.1, "technical": 0.7, "sales": 0.1},
        {"billing": 0.1, "technical": 0.8, "sales": 0.1, "spam": 0},
        {"billing": 0.1, "technical": 0.8, "Sales": 0.1},
        [0.1, 0.8, 0.1],
        {"billing": "0.1", "technical": 0.8, "sales": 0.1},
        {},
    ],
)
async def test_cls_o03_a_distribution_is_whole_or_absent(probabilities: JSON) -> None:
    error = await error_of(with_answer("route", probabilities=probabilities), only("route"))
    assert isinstance(error, InvalidAnswer)


async def test_cls_o04_missing_and_extra_ids_are_named() -> None:
    entries = {"unsafe": ANSWERS["unsafe"], "route": ANSWERS["route"], "mood": ANSWERS["unsafe"]}
    error = await error_of(Answer({**BODY, "answers": entries}))
    assert isinstance(error, InvalidAnswer)
    assert "missing=severity extra=mood" in str(error)
    assert (error.missing, error.extra) == (("severity",), ("mood",))


async def test_an_extra_id_that_is_prose_is_not_repeated() -> None:
    entries = {**ANSWERS, "Words of the state": ANSWERS["unsafe"]}
    error = await error_of(Answer({**BODY, "answers": entries}))
    assert "Words" not in str(error)


async def test_cls_o06_alias_and_build_and_distribution_are_kept() -> None:
    async with Server([Answer({**BODY, "model": "fast-1.13.0"})]) as server:
        result = await result_of(server)
    assert (result.response.requested_model, result.response.model) == ("m", "fast-1.13.0")
    route = result.answers.choice("route")
    assert isinstance(route, ChoiceAnswer)
    assert route.probabilities == ANSWERS["route"]["probabilities"]


async def test_cls_o07_one_evaluation_is_one_call_within_its_deadline() -> None:
    async with Server(lambda _: Hang()) as server:
        model = SystemOne(base_url=server.url, timeouts=Timeouts(total=0.2))
        started = asyncio.get_running_loop().time()
        with pytest.raises(ModelUnavailable):
            await Classifier("test", model, QUESTIONS).evaluate("state")
        assert asyncio.get_running_loop().time() - started < 1
        await model.aclose()
    assert len(server.calls) == 1


async def test_cls_o07_a_wait_of_weeks_is_a_spent_quota() -> None:
    error = await error_of(Answer({}, 429, {"retry-after": "1400000"}))
    assert type(error) is QuotaExhausted
    assert not error.retryable


@pytest.mark.parametrize("state", ["x" * 8001, "😀" * 8001])
async def test_cls_o08_a_state_over_the_limit_is_refused_in_the_unit_it_claims(state: str) -> None:
    limited = replace(SELF_HOSTED, limits=Limits(state_characters=8000))
    async with Server([Answer(BODY)]) as server:
        with pytest.raises(InputTooLarge, match="8000 characters, not 8001"):
            await result_of(server, service=limited, state=state)
        await result_of(server, service=limited, state=state[:8000])


@pytest.mark.parametrize("choice", ["Technical", "technical ", "tech", "technical_", "", None, 1])
async def test_cls_o09_only_the_exact_option_counts(choice: JSON) -> None:
    reply = with_answer("route", choice=choice, probabilities=...)
    assert isinstance(await error_of(reply, only("route")), InvalidAnswer)


@pytest.mark.parametrize(
    ("question", "fields"),
    [
        ("route", {"choice": "billing", "probabilities": {"billing": 0.4, "technical": 0.6, "sales": 0.0}}),
        ("severity", {"score": 0, "probabilities": {"0": 0, "1": 0, "2": 1}}),
        ("severity", {"score": 3.5, "probabilities": ...}),
        ("severity", {"probabilities": {"1": 0.1, "2": 0.3, "3": 0.6}}),
        ("severity", {"legend": {"1": "low", "2": "1", "3": "high"}}),
        ("route", {"confidence": 1.5}),
        ("route", {"confidence": "0.9"}),
    ],
)
async def test_cls_o10_an_answer_that_contradicts_itself_is_invalid(
    question: str, fields: dict[str, Any]
) -> None:
    error = await error_of(with_answer(question, **fields), only(question))
    assert isinstance(error, InvalidAnswer)
    assert not error.retryable


async def test_cls_o10_a_tie_is_accepted_and_comes_out_the_same_every_time() -> None:
    tie = with_answer("route", choice="billing", probabilities={"billing": 0.5, "technical": 0.5, "sales": 0})
    async with Server(lambda _: tie) as server:
        results = [await result_of(server, only("route")) for _ in range(20)]
    assert {cast("ChoiceAnswer[str]", result.answers["route"]).choice for result in results} == {"billing"}


async def test_ops_o08_a_missing_key_fails_before_the_first_call_and_names_the_variable() -> None:
    with pytest.raises(ConfigurationError, match="TYPESAFE_API_KEY"):
        await Classifier("test", SystemOne(), QUESTIONS).evaluate("state")


async def test_a_transform_may_repair_an_answer_before_it_is_checked() -> None:
    def fill(response: DecisionResponse) -> DecisionResponse:
        return replace(response, answers={**response.answers, "unsafe": BooleanAnswer(1.0)})

    async with Server([with_answer("unsafe", noul=1.004)]) as server:
        model = SystemOne(base_url=server.url)
        result = await Classifier("test", model, only("unsafe"), transform_result=fill).evaluate("state")
        await model.aclose()
    assert result.answers["unsafe"] == BooleanAnswer(1.0)


@pytest.mark.parametrize(
    ("probabilities", "score", "valid"),
    [
        ({"0": 0.14, "1": 0.43, "2": 0.44}, 1.3, True),
        ({"0": 0.1432, "1": 0.4291, "2": 0.4377}, 1.3, False),
        ({"0": 0.1432, "1": 0.4291, "2": 0.4377}, 1.2846, False),
        ({"0": 0.1432, "1": 0.4291, "2": 0.4277}, 1.2845, True),
        ({"0": 0.14, "1": 0.43, "2": 0.4300000071525574}, 1.29, True),
    ],
)
async def test_slack_for_rounding_is_given_only_for_the_decimals_that_are_shown(
    probabilities: JSON, score: float, *, valid: bool
) -> None:
    reply = with_answer("severity", score=score, probabilities=probabilities)
    if valid:
        async with Server([reply]) as server:
            await result_of(server, only("severity"))
    else:
        assert isinstance(await error_of(reply, only("severity")), InvalidAnswer)
