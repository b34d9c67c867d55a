"""The System One protocol: TypeSafe, services that sell it, and servers that people host. I/O.

    SystemOne()                                                TypeSafe, TYPESAFE_API_KEY
    SystemOne("typesafe/jev-1.13", service=OPENROUTER)         OPENROUTER_API_KEY
    SystemOne("clef", service=OLLAMA)                          a local Ollama
    SystemOne("my-model", base_url="http://10.0.0.5:8000")     any other server, no key
    SystemOne("m", service=Service("mine", path="/v1/decisions"), base_url="https://…")

What differs between services is a `Service`; it is chosen by name, never guessed from an address or a path.
`provider_options` become further fields of the request body (`session_id`, `mode`, …).

On the wire a boolean is a `noul`; a question without instructions is asked by its id, and a level without a
description by its number. An answer is taken by the letter: another type, a missing or extra id, text for a
number, or a distribution with other keys is an `InvalidAnswer`. A refusal is a typed answer, a blocked input,
an HTTP 403 for reasons of content, or, only where the service refuses so, an omitted id.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any, Literal

from classifier.answers import Answer, Refusal
from classifier.errors import ConfigurationError, ModelError, ModelUnavailable
from classifier.models.http import DEFAULT_TIMEOUTS, Endpoint, HttpModel, Reply, Timeouts
from classifier.models.http_errors import COMMON_CODES, CodeTable, ErrorAnswer, failure
from classifier.models.protocol import DecisionRequest
from classifier.models.systemone_codec import (
    decode_answers,
    encode_questions,
    is_blocked,
    metadata_of,
    precision_of,
    truncation_of,
)
from classifier.models.wire import NO_LIMITS, Limits, check_limits, read_object, read_usage, short_text
from classifier.questions import Question
from classifier.result import DecisionResponse, Rounding
from classifier.values import JSON

REFUSED = frozenset({"refusal", "content_policy_violation"})
"""Codes of a 403 that stand for a refusal of the whole request."""

_MEBIBYTE = 1024 * 1024
_OWN_FIELDS = frozenset({"model", "state", "questions"})


@dataclass(frozen=True, slots=True)
class Service:
    """What one service of the System One protocol does in its own way.

    Attributes:
        provider: Its name on the record.
        path: Appended to its address.
        base_url: Its usual address; None where every installation has another.
        base_url_variables: Environment variables that may hold the address.
        api_key_variables: Environment variables that may hold the key.
        key_required: Whether it answers without a key.
        default_model: Asked where the caller names none; None where one must be named.
        model_variables: Environment variables that may name the model in its place.
        sends_model: False where a request does not name a model.
        both_sides: Whether a boolean's criteria need both sides.
        omission_is_refusal: Whether it refuses a question by leaving its id out.
        limits: What it takes in one request.
        rounding: What its numbers are rounded to; less slack is given where they show more decimals.
        max_request_bytes: The longest body it takes.
        codes: Its error codes that say more than their status.
    """

    provider: str = "systemone"
    path: str = "/v1/systemone"
    base_url: str | None = None
    base_url_variables: tuple[str, ...] = ()
    api_key_variables: tuple[str, ...] = ()
    key_required: bool = False
    default_model: str | None = "jev-latest"
    model_variables: tuple[str, ...] = ()
    sends_model: bool = True
    both_sides: bool = False
    omission_is_refusal: bool = False
    limits: Limits = NO_LIMITS
    rounding: Rounding = Rounding(2, 2)
    max_request_bytes: int | None = None
    codes: CodeTable = field(default_factory=lambda: COMMON_CODES)


TYPESAFE = Service(
    provider="typesafe",
    base_url="https://api.typesafe.ai",
    base_url_variables=("TYPESAFE_BASE_URL",),
    api_key_variables=("TYPESAFE_API_KEY", "TYPESAFE_AI_API_KEY"),
    key_required=True,
    model_variables=("TYPESAFE_DEFAULT_MODEL",),
    limits=Limits(options=(1, 255), levels=(2, 10)),
    max_request_bytes=32 * _MEBIBYTE,
)
OPENROUTER = Service(
    provider="openrouter",
    path="/systemone",
    base_url="https://openrouter.ai/api/v1",
    api_key_variables=("OPENROUTER_API_KEY",),
    key_required=True,
    default_model=None,
    both_sides=True,
    limits=Limits(options=(1, 255), levels=(2, 10)),
)
PERPLEXITY = Service(
    provider="perplexity",
    path="/v1/decisions",
    base_url="https://api.perplexity.ai",
    api_key_variables=("PERPLEXITY_API_KEY",),
    key_required=True,
    default_model=None,
    limits=Limits(questions=128, options=(1, 255), levels=(2, 10)),
)
PARALLEL = Service(
    provider="parallel",
    path="/v1/decisions",
    base_url="https://api.parallel.ai",
    api_key_variables=("PARALLEL_API_KEY",),
    key_required=True,
    default_model="parallel",
    sends_model=False,
    limits=Limits(questions=100),
)
FIREWORKS = Service(
    provider="fireworks",
    path="/inference/v1/systemone",
    base_url="https://api.fireworks.ai",
    api_key_variables=("FIREWORKS_API_KEY",),
    key_required=True,
    default_model=None,
    limits=Limits(options=(1, 208)),
)
LITELLM = Service(provider="litellm", default_model=None, omission_is_refusal=True)
OLLAMA = Service(
    provider="ollama",
    base_url="http://127.0.0.1:11434",
    default_model=None,
    limits=Limits(questions=64, options=(2, 26), levels=(2, 26)),
)
KEV = Service(provider="kev", api_key_variables=("KEV_API_KEY",))
LAYA = Service(provider="laya", limits=Limits(options=(1, 128)))
STRANDS_DECIDER = Service(provider="strands-decider")
SELF_HOSTED = Service()
"""A server of which nothing is known but the protocol."""


class SystemOne(HttpModel):
    """A decision model that speaks System One.

    Args:
        model: As the service names it; where absent, the service's variable, then its default.
        service: What the service does in its own way. Without one: TypeSafe, or, where `base_url` is given,
            `SELF_HOSTED`, so that a TypeSafe key from the environment never travels to another address.
        base_url: Wins over the service's variable and its usual address.
        api_key: Wins over the service's variables.
        headers: Sent with every request.
        timeouts: Per call.
        connections: Most connections open at once.

    Raises:
        ConfigurationError: The service has no default model, and none is named.
    """

    def __init__(
        self,
        model: str | None = None,
        *,
        service: Service | None = None,
        base_url: str | None = None,
        api_key: str | None = None,
        headers: Mapping[str, str] | None = None,
        timeouts: Timeouts = DEFAULT_TIMEOUTS,
        connections: int = 100,
    ) -> None:
        chosen = service or (TYPESAFE if base_url is None else SELF_HOSTED)
        name = model or chosen.default_model
        if name is None:
            raise ConfigurationError(f"{chosen.provider} has no default model; name one")
        self._service = chosen
        self._named = model
        self._last_encoded: tuple[Mapping[str, Question], JSON] = ({}, {})
        endpoint = Endpoint(
            path=chosen.path,
            base_url=base_url,
            default_base_url=chosen.base_url,
            base_url_variables=chosen.base_url_variables,
            api_key=api_key,
            api_key_variables=chosen.api_key_variables,
            key_required=chosen.key_required,
            headers=headers or {},
            timeouts=timeouts,
            connections=connections,
            codes=chosen.codes,
            max_request_bytes=chosen.max_request_bytes,
        )
        super().__init__(name, provider=chosen.provider, endpoint=endpoint)

    def configure(self, environ: Mapping[str, str]) -> Sequence[str]:
        """Takes key, address, model and proxy from `environ`; gives back every problem as a sentence."""
        named = (environ.get(variable, "").strip() for variable in self._service.model_variables)
        self._name = (
            self._named or next(filter(None, named), None) or self._service.default_model or self._name
        )
        return super().configure(environ)

    async def decide(self, request: DecisionRequest) -> DecisionResponse:
        """Asks once; errors as for `DecisionModel.decide`."""
        check_limits(request, self._service.limits, self.described)
        reply = await self.post_json(self._body(request))
        if reply.failed:
            if reply.status == HTTPStatus.FORBIDDEN and not REFUSED.isdisjoint(reply.codes):
                return self._refused(request, reply, "policy")
            raise self.failure(reply)
        body = read_object(reply.body, f"the answer of {self.described}")
        if is_blocked(body):
            return self._refused(request, reply, "blocked")
        if "answers" not in body and "error" in body:
            raise self._error_in_place_of_answers(reply)
        return self._response(request, reply, body)

    def _body(self, request: DecisionRequest) -> dict[str, JSON]:
        taken = _OWN_FIELDS & request.provider_options.keys()
        if taken:
            raise ConfigurationError(
                f"provider_options of {self.described} cannot set {', '.join(sorted(taken))}"
            )
        body: dict[str, JSON] = {"model": self._name} if self._service.sends_model else {}
        body["state"] = request.state
        body["questions"] = self._encoded(request.questions)
        body.update(request.provider_options)
        return body

    def _encoded(self, questions: Mapping[str, Question]) -> JSON:
        """The questions as last time where they are the same objects, as a classifier's own are."""
        known, encoded = self._last_encoded
        if len(known) != len(questions) or any(known.get(name) is not q for name, q in questions.items()):
            known = dict(questions)
            encoded = encode_questions(known, both_sides=self._service.both_sides)
            self._last_encoded = known, encoded
        return encoded

    def _response(self, request: DecisionRequest, reply: Reply, body: Mapping[str, Any]) -> DecisionResponse:
        omission = self._service.omission_is_refusal
        answers = decode_answers(request.questions, body.get("answers"), omission_is_refusal=omission)
        model = short_text(body.get("model"))
        unnamed = () if model or not self._service.sends_model else ("the answer does not name its model",)
        usage, usage_warnings = read_usage(body.get("usage"))
        truncation, cuts = truncation_of(body, request.questions, request.state)
        return DecisionResponse(
            answers=answers,
            response=self.response_info(reply, model=model, id=_id(body)),
            usage=usage,
            rounding=precision_of(answers, self._service.rounding),
            warnings=(*cuts, *unnamed, *usage_warnings),
            truncation=truncation,
            provider_metadata=metadata_of(body),
        )

    def _refused(
        self, request: DecisionRequest, reply: Reply, signal: Literal["policy", "blocked"]
    ) -> DecisionResponse:
        answers: dict[str, Answer] = dict.fromkeys(request.questions, Refusal(signal))
        return DecisionResponse(answers, self.response_info(reply, model=None))

    def _error_in_place_of_answers(self, reply: Reply) -> ModelError:
        codes = self.codes_in(reply.body)
        statuses = [int(code) for code in codes if code.isdigit() and 400 <= int(code) <= 599]  # noqa: PLR2004 - HTTP errors
        known = any(code in self._service.codes for code in codes)
        if statuses or known:
            status = statuses[0] if statuses else HTTPStatus.BAD_REQUEST
            answer = ErrorAnswer(status, codes, request_id=reply.request_id)
            return failure(answer, self.described, self._service.codes)
        return ModelUnavailable(
            f"{self.described} answered with an error in place of answers",
            status=reply.status,
            request_id=reply.request_id,
            provider_code=next(iter(codes), None),
        )


def _id(body: Mapping[str, Any]) -> str | None:
    return short_text(body.get("id")) or short_text(body.get("decision_id"))
