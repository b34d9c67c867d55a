"""Google's Gemini Decisions API: a map of questions, `input` for the state, and a block for refused input.

    GeminiModel()    generativelanguage.googleapis.com    GEMINI_API_KEY or GOOGLE_API_KEY

Where Google blocks the input, every question counts as refused; it never answers some and blocks others. Its
reply names no model, so the record holds the name that was asked for. I/O through `http`.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any, TypeAlias, cast

from classifier.answers import Refusal
from classifier.errors import (
    AuthenticationFailed,
    InvalidAnswer,
    ModelError,
    QuotaExhausted,
    RequestRejected,
)
from classifier.models.endpoint import own_key_only
from classifier.models.http import (
    COMMON_CODES,
    DEFAULT_TIMEOUTS,
    Endpoint,
    HttpModel,
    Reply,
    Timeouts,
    key_header,
)
from classifier.models.http_errors import LONGEST_WAIT
from classifier.models.protocol import DecisionRequest
from classifier.models.systemone_codec import decode_answers
from classifier.models.wire import Limits, check_limits, identifier, read_object, read_usage, with_options
from classifier.questions import Boolean, Choice, Question, Score, instructions_of
from classifier.result import DecisionResponse, Rounding
from classifier.values import JSON, as_text

ROUNDING = Rounding(probability_decimals=2, score_decimals=2)
"""Google states none; P(true) is documented as 0.01 to 0.99, so rounding to two decimals must be expected."""

LIMITS = Limits(questions=1000, options=(2, 255), levels=(2, 255))
CODES = MappingProxyType({**COMMON_CODES, "API_KEY_INVALID": AuthenticationFailed})

_BLOCKED = frozenset({"SAFETY", "BLOCKLIST", "PROHIBITED_CONTENT", "IMAGE_SAFETY"})
_BAD_REQUEST, _TOO_MANY_REQUESTS = 400, 429
_SECONDS = re.compile(r"([0-9]{1,9}(?:\.[0-9]{1,9})?)s", re.ASCII)
_Details: TypeAlias = "list[Mapping[str, Any]]"


class GeminiModel(HttpModel):
    """A Gemini decision model.

    JSON in the state, instructions and descriptions is sent as its text, since Google reads text there.
    `provider_options` are added to the body.

    Args:
        model: With or without the leading `models/`.
        base_url: Wins over GOOGLE_GEMINI_BASE_URL.
        api_key: Wins over the variables.
        timeouts: Per call.
    """

    def __init__(
        self,
        model: str = "gemini-decision-1",
        *,
        base_url: str | None = None,
        api_key: str | None = None,
        timeouts: Timeouts = DEFAULT_TIMEOUTS,
    ) -> None:
        endpoint = Endpoint(
            path="/v1beta/decisions",
            base_url=base_url,
            default_base_url="https://generativelanguage.googleapis.com",
            base_url_variables=("GOOGLE_GEMINI_BASE_URL",),
            api_key=api_key,
            api_key_variables=("GEMINI_API_KEY", "GOOGLE_API_KEY"),
            auth=key_header("x-goog-api-key"),
            timeouts=timeouts,
            codes=CODES,
        )
        super().__init__(model, provider="gemini", endpoint=own_key_only(endpoint))

    async def decide(self, request: DecisionRequest) -> DecisionResponse:
        """Asks once; errors as for every decision model."""
        check_limits(request, LIMITS, self.described)
        check_options(request.questions, self.described)
        body = with_options(encode_request(self.name, request), request.provider_options, self.described)
        reply = await self.post_json(body)
        if reply.failed:
            return self._failed(request, reply)
        answered = read_object(reply.body, "the response")
        reason = block_reason(answered)
        if reason is not None:
            return self._blocked(request, reply, reason)
        usage, warnings = read_usage(answered.get("usage"), "total_input_tokens", "total_output_tokens")
        return DecisionResponse(
            answers=decode_answers(request.questions, answered.get("answers", {})),
            response=self.response_info(reply, model=None),
            usage=usage,
            rounding=ROUNDING,
            warnings=warnings,
        )

    def _failed(self, request: DecisionRequest, reply: Reply) -> DecisionResponse:
        details = list(_details(reply.body))
        reasons = {str(detail.get("reason")).upper() for detail in details}
        if reply.status == _BAD_REQUEST:
            blocked = next(iter(sorted(reasons & _BLOCKED)), None) or block_reason(reply.body)
            if blocked is not None:
                return self._blocked(request, reply, blocked)
        raise self._error(reply, details)

    def _error(self, reply: Reply, details: _Details) -> ModelError:
        """The error by status, and what only Google's error details tell: a bad key, a wait, a spent day."""
        if any(detail.get("reason") == "API_KEY_INVALID" for detail in details):
            reply = replace(reply, codes=("API_KEY_INVALID", *reply.codes))
        error = self.failure(reply)
        if reply.status != _TOO_MANY_REQUESTS:
            return error
        if any("PerDay" in str(quota) for quota in _quotas(details)):
            return QuotaExhausted(
                f"{self.described} has no requests left for today (HTTP {reply.status})",
                status=reply.status,
                request_id=reply.request_id,
                provider_code=error.provider_code,
            )
        if error.retry_after is None:
            error.retry_after = _retry_delay(details)
        return error

    def _blocked(self, request: DecisionRequest, reply: Reply, reason: str) -> DecisionResponse:
        return DecisionResponse(
            answers=dict.fromkeys(request.questions, Refusal("blocked")),
            response=self.response_info(reply, model=None),
            rounding=ROUNDING,
            provider_metadata={"block_reason": reason},
        )


def encode_request(model: str, request: DecisionRequest) -> dict[str, JSON]:
    """The body to send."""
    return {
        "model": model if "/" in model else f"models/{model}",
        "input": as_text(request.state),
        "questions": {name: encode_question(name, asked) for name, asked in request.questions.items()},
    }


def encode_question(name: str, question: Question) -> dict[str, JSON]:
    """A question; an option without a description has an empty one, a level without one its position."""
    body: dict[str, JSON] = {"instructions": as_text(instructions_of(name, question))}
    match question:
        case Boolean():
            criteria = {"true_description": question.true, "false_description": question.false}
            given: dict[str, JSON] = {
                key: as_text(text) for key, text in criteria.items() if text is not None
            }
            return {"type": "noul", **body, **({"criteria": given} if given else {})}
        case Choice():
            options = {label: _described(text) for label, text in question.options.items()}
            return {"type": "choice", **body, "criteria": options}
        case Score():
            levels = [_described(text) or str(at) for at, text in enumerate(question.levels)]
            return {"type": "score", **body, "criteria": levels}


def check_options(questions: Mapping[str, Question], service: str) -> None:
    """Refuses options whose names Google does not take.

    Raises:
        RequestRejected: An option starts or ends with a space, or has a control character.
    """
    for name, question in questions.items():
        if not isinstance(question, Choice):
            continue
        for label in cast("Choice[str]", question).options:
            if label != label.strip() or any(unicodedata.category(sign) == "Cc" for sign in label):
                raise RequestRejected(
                    f"{service} takes no option like {label!r} of question {name!r}: it starts or ends with "
                    "a space, or holds a control character"
                )


def block_reason(body: JSON) -> str | None:
    """Why the input was blocked; None where it was not.

    Raises:
        InvalidAnswer: It is called blocked and yet answered.
    """
    if not isinstance(body, dict):
        return None
    feedback = body.get("prompt_feedback")
    reason: object = feedback.get("block_reason") if isinstance(feedback, dict) else None
    if reason is None:
        return None
    if body.get("answers"):
        raise InvalidAnswer("the response calls the input blocked and has answers")
    return identifier(reason) or "other"


def _described(text: JSON) -> str:
    return "" if text is None else as_text(text).strip()


def _details(body: JSON) -> Iterator[Mapping[str, Any]]:
    """The typed details of a Google error."""
    error = body.get("error") if isinstance(body, dict) else None
    details = error.get("details") if isinstance(error, dict) else None
    if isinstance(details, list):
        yield from (detail for detail in details if isinstance(detail, dict))


def _quotas(details: _Details) -> Iterator[object]:
    for detail in details:
        violations = detail.get("violations")
        if isinstance(violations, list):
            entries = cast("list[object]", violations)
            yield from (cast("dict[str, object]", e).get("quotaId") for e in entries if isinstance(e, dict))


def _retry_delay(details: _Details) -> float | None:
    """Seconds of a `RetryInfo`, which are text like "37s"."""
    for detail in details:
        delay: object = detail.get("retryDelay")
        if isinstance(delay, str) and (found := _SECONDS.fullmatch(delay)):
            return min(float(found[1]), LONGEST_WAIT)
    return None
