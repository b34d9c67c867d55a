"""The list form of decisions: OpenAI, Azure OpenAI, LiteLLM and gateways that speak it. I/O through `http`.

    DecisionsModel()                                  api.openai.com      OPENAI_API_KEY, OPENAI_BASE_URL
    AzureDecisionsModel("my-deployment")              an Azure resource   AZURE_OPENAI_API_KEY, …_ENDPOINT
    LiteLLMDecisionsModel("gpt-6-luna")               a LiteLLM proxy     LITELLM_API_KEY, LITELLM_BASE_URL
    DecisionsModel("m", base_url="https://gate/v1")   any other that speaks it

`/v1/decisions` alone does not tell the format: services that take a map of questions there are asked with
`SystemOne`. Questions are a list here, so answers are matched by position and must carry the right name.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from classifier.answers import Answer, BooleanAnswer, ChoiceAnswer, Refusal, ScoreAnswer
from classifier.errors import InputTooLarge, InvalidAnswer, QuotaExhausted
from classifier.models.endpoint import own_key_only
from classifier.models.http import (
    COMMON_CODES,
    DEFAULT_TIMEOUTS,
    Endpoint,
    HttpModel,
    Reply,
    Timeouts,
    bearer,
    key_header,
)
from classifier.models.protocol import DecisionRequest
from classifier.models.wire import (
    Limits,
    check_level_keys,
    check_limits,
    match_ids,
    read_list,
    read_number,
    read_object,
    read_optional_number,
    read_text,
    read_usage,
    short_text,
    with_options,
)
from classifier.questions import Boolean, Choice, Question, Score, instructions_of
from classifier.result import DecisionResponse, Rounding
from classifier.values import JSON, State, Text, as_text

ROUNDING = Rounding(probability_decimals=2, score_decimals=2)
CODES = {**COMMON_CODES, "billing_hard_limit_reached": QuotaExhausted}

_REFUSED = frozenset({"refusal", "content_policy_violation", "content_filter"})
_REFUSED_STATUSES = frozenset({400, 403})
_JSON_LEVELS, _JSON_VALUES, _JSON_BYTES = 32, 10_000, 256 * 1024


@dataclass(frozen=True, slots=True)
class _Service:
    """What differs between services of this format."""

    provider: str
    endpoint: Endpoint
    limits: Limits


_OPENAI = _Service(
    "openai",
    Endpoint(
        path="/decisions",
        default_base_url="https://api.openai.com/v1",
        base_url_variables=("OPENAI_BASE_URL",),
        api_key_variables=("OPENAI_API_KEY",),
        auth=bearer,
        codes=CODES,
    ),
    Limits(questions=400, options=(2, 255), levels=(2, 10)),
)
_AZURE = _Service(
    "azure",
    Endpoint(
        path="/openai/v1/decisions",
        base_url_variables=("AZURE_OPENAI_ENDPOINT",),
        api_key_variables=("AZURE_OPENAI_API_KEY",),
        auth=key_header("api-key"),
        codes=CODES,
        request_id_headers=("apim-request-id", "x-request-id", "x-ms-request-id"),
    ),
    Limits(questions=400, options=(2, 255), levels=(2, 10)),
)
_LITELLM = _Service(
    "litellm",
    Endpoint(
        path="/v1/decisions",
        base_url_variables=("LITELLM_BASE_URL", "LITELLM_PROXY_API_BASE"),
        api_key_variables=("LITELLM_API_KEY", "LITELLM_PROXY_API_KEY"),
        key_required=False,
        auth=bearer,
        codes=CODES,
        request_id_headers=("x-litellm-call-id", "x-request-id"),
    ),
    Limits(questions=128, options=(2, 255), levels=(2, 10)),
)


class DecisionsModel(HttpModel):
    """A decision model behind the list form: OpenAI's own, or a gateway that speaks it at `base_url`.

    `provider_options` are added to the body: `prompt_cache_key`, `prompt_cache_options`, `safety_identifier`.

    Args:
        model: As the service names it.
        base_url: The address, with `/v1`; wins over the variable. A key from the environment goes to the
            service it is for and never to another address given here.
        api_key: Wins over the variable.
        timeouts: Per call.
    """

    _service: ClassVar[_Service] = _OPENAI

    def __init__(
        self,
        model: str = "gpt-6-luna",
        *,
        base_url: str | None = None,
        api_key: str | None = None,
        timeouts: Timeouts = DEFAULT_TIMEOUTS,
    ) -> None:
        endpoint = replace(self._service.endpoint, base_url=base_url, api_key=api_key, timeouts=timeouts)
        super().__init__(model, provider=self._service.provider, endpoint=own_key_only(endpoint))

    async def decide(self, request: DecisionRequest) -> DecisionResponse:
        """Asks once; errors as for every decision model."""
        check_limits(request, self._service.limits, self.described)
        body = with_options(encode_request(self.name, request), request.provider_options, self.described)
        reply = await self.post_json(body, path=self._path())
        if reply.failed:
            return self._refused(request, reply)
        answered = read_object(reply.body, "the response")
        usage, warnings = read_usage(answered.get("usage"))
        return DecisionResponse(
            answers=read_answers(answered, request.questions),
            response=self.response_info(reply, model=short_text(answered.get("model"))),
            usage=usage,
            rounding=ROUNDING,
            warnings=warnings,
        )

    def _path(self) -> str:
        return "/decisions" if self._settings.address.endswith("/v1") else self._endpoint.path

    def _refused(self, request: DecisionRequest, reply: Reply) -> DecisionResponse:
        if reply.status not in _REFUSED_STATUSES or _REFUSED.isdisjoint(reply.codes):
            raise self.failure(reply)
        answers = dict.fromkeys(request.questions, Refusal("policy"))
        return DecisionResponse(answers, self.response_info(reply, model=None), rounding=ROUNDING)


class AzureDecisionsModel(DecisionsModel):
    """A deployment of an Azure OpenAI resource, at `base_url` with or without `/openai/v1`."""

    _service = _AZURE


class LiteLLMDecisionsModel(DecisionsModel):
    """A model behind a LiteLLM proxy; `base_url` is the proxy's, with or without `/v1`."""

    _service = _LITELLM


def encode_request(model: str, request: DecisionRequest) -> dict[str, JSON]:
    """The body to send.

    Raises:
        InputTooLarge: JSON in the state or in instructions is over a limit of the format.
    """
    questions = [encode_question(name, question) for name, question in request.questions.items()]
    return {"model": model, "input": encode_state(request.state), "questions": questions}


def encode_state(state: State) -> JSON:
    """Text as it is, objects as JSON the model reads as such, any other array as JSON text."""
    if not _is_objects(state):
        return as_text(state)
    part: JSON = {"type": "input_json", "data": _within_limits(state, "the state")}
    return [{"type": "message", "role": "user", "content": [part]}]


def encode_question(name: str, question: Question) -> dict[str, JSON]:
    """A question with its id as name; levels are named by their position."""
    body: dict[str, JSON] = {"name": name, "instructions": _instructions(name, question)}
    match question:
        case Boolean():
            return {"type": "predicate", **body}
        case Choice():
            choices = [{"value": label, **_description(text)} for label, text in question.options.items()]
            return {"type": "choice", **body, "choices": choices}
        case Score():
            levels = [{"label": str(at), **_description(text)} for at, text in enumerate(question.levels)]
            return {"type": "score", **body, "levels": levels}


def read_answers(body: Mapping[str, Any], questions: Mapping[str, Question]) -> dict[str, Answer]:
    """The answers of a response, each checked to belong to its question.

    Raises:
        InvalidAnswer: Anything that is not exactly one readable answer per question, in order.
    """
    entries = [read_object(entry, "an answer") for entry in read_list(body.get("answers"), "answers")]
    asked = list(questions)
    names = [_name(entry, position, asked) for position, entry in enumerate(entries)]
    match_ids(asked, names)
    if names != asked:
        raise InvalidAnswer("the answers are not one per question, in the order of the questions")
    pairs = zip(questions.items(), entries, strict=True)
    return {name: _answer(question, entry, f"the answer to {name!r}") for (name, question), entry in pairs}


def _name(entry: Mapping[str, Any], position: int, asked: Sequence[str]) -> str:
    name = entry.get("name")
    if name is not None:
        return read_text(name, "the name of an answer")
    if entry.get("type") == "refusal":
        raise InvalidAnswer("a refusal does not name its question")
    return asked[position] if position < len(asked) else "(unnamed)"


def _answer(question: Question, entry: Mapping[str, Any], where: str) -> Answer:
    confidence = read_optional_number(entry.get("confidence"), f"the confidence of {where}")
    match question, entry.get("type"):
        case _, "refusal":
            return Refusal()
        case Boolean(), "predicate":
            probability = read_number(entry.get("probability"), f"the probability of {where}")
            return BooleanAnswer(probability, confidence=confidence)
        case Choice(), "choice":
            choice = read_text(entry.get("choice"), f"the choice of {where}")
            return ChoiceAnswer(choice, _options(entry.get("probabilities"), where), confidence)
        case Score(levels=levels), "score":
            score = read_number(entry.get("score"), f"the score of {where}")
            return ScoreAnswer(score, _levels(entry.get("probabilities"), where, len(levels)), confidence)
        case _:
            raise InvalidAnswer(f"{where} is not a {question.kind}")


def _options(value: object, where: str) -> dict[str, float] | None:
    if value is None:
        return None
    found: dict[str, float] = {}
    for item in read_list(value, f"the distribution of {where}"):
        entry = read_object(item, f"a probability of {where}")
        option = read_text(entry.get("value"), f"an option of {where}")
        if option in found:
            raise InvalidAnswer(f"the distribution of {where} repeats an option")
        found[option] = read_number(entry.get("probability"), f"a probability of {where}")
    return found


def _levels(value: object, where: str, levels: int) -> tuple[float, ...] | None:
    if value is None:
        return None
    found: dict[str, float] = {}
    for item in read_list(value, f"the distribution of {where}"):
        entry = read_object(item, f"a probability of {where}")
        level: object = entry.get("value")
        if not isinstance(level, int) or isinstance(level, bool) or str(level) in found:
            raise InvalidAnswer(f"the distribution of {where} has a level that is not a position of its own")
        if entry.get("label", str(level)) != str(level):
            raise InvalidAnswer(f"the distribution of {where} has a level under another label")
        found[str(level)] = read_number(entry.get("probability"), f"a probability of {where}")
    check_level_keys(found, f"the distribution of {where}", levels)
    return tuple(found[str(level)] for level in range(levels))


def _instructions(name: str, question: Question) -> JSON:
    """Text, or parts where JSON is among them; a predicate has no criteria, so they follow the question."""
    parts = [_part(instructions_of(name, question), f"the instructions of {name!r}")]
    if isinstance(question, Boolean):
        parts += [f"True means: {as_text(question.true)}"] if question.true is not None else []
        parts += [f"False means: {as_text(question.false)}"] if question.false is not None else []
    texts = [part for part in parts if isinstance(part, str)]
    if len(texts) == len(parts):
        return "\n".join(texts)
    return [{"type": "input_text", "text": part} if isinstance(part, str) else part for part in parts]


def _part(text: Text, where: str) -> JSON:
    if not _is_objects(text):
        return as_text(text)
    return {"type": "input_json", "data": _within_limits(text, where)}


def _description(text: Text | None) -> dict[str, JSON]:
    return {} if text is None else {"description": as_text(text)}


def _is_objects(value: JSON) -> bool:
    """Whether `value` is what `input_json` takes: an object, or an array of nothing but objects."""
    return isinstance(value, dict) or (
        isinstance(value, list) and bool(value) and all(isinstance(item, dict) for item in value)
    )


def _within_limits(value: JSON, where: str) -> JSON:
    levels, values = _extent(value)
    size = len(json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode(errors="surrogatepass"))
    if levels > _JSON_LEVELS or values > _JSON_VALUES or size > _JSON_BYTES:
        raise InputTooLarge(
            f"{where} is JSON of {levels} levels, {values} values and {size} bytes; the format takes "
            f"{_JSON_LEVELS}, {_JSON_VALUES} and {_JSON_BYTES}"
        )
    return value


def _extent(value: JSON) -> tuple[int, int]:
    """Levels of containers, and values in all."""
    if not isinstance(value, dict | list):
        return 0, 1
    items = list(value.values()) if isinstance(value, dict) else value
    extents = [_extent(item) for item in items]
    return 1 + max((levels for levels, _ in extents), default=0), 1 + sum(values for _, values in extents)
