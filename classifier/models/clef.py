"""Cloudflare's Clef: System One questions, in Workers AI's envelope. I/O through `http`.

    ClefModel(), ClefModel("clef-flash")    CLOUDFLARE_API_TOKEN and CLOUDFLARE_ACCOUNT_ID

The envelope is `{result, success, errors, messages}`; only `success: true` is one, whatever the HTTP status
says. Clef refuses nothing, so it has no refusals beyond the typed answer of its protocol.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

from classifier.errors import (
    AuthenticationFailed,
    ConfigurationError,
    InputTooLarge,
    InvalidAnswer,
    ModelError,
    QuotaExhausted,
    RateLimited,
    RequestRejected,
)
from classifier.models.endpoint import own_key_only
from classifier.models.http import COMMON_CODES, DEFAULT_TIMEOUTS, Endpoint, HttpModel, Reply, Timeouts
from classifier.models.protocol import DecisionRequest
from classifier.models.systemone_codec import decode_answers, encode_questions
from classifier.models.wire import Limits, check_limits, read_object, read_usage, short_text, with_options
from classifier.questions import Question
from classifier.result import DecisionResponse, Rounding

ROUNDING = Rounding(probability_decimals=4, score_decimals=4)
LIMITS = Limits(questions=64, options=(2, 255), levels=(2, 10))
ACCOUNT_VARIABLE = "CLOUDFLARE_ACCOUNT_ID"
CODES = MappingProxyType(
    {
        **COMMON_CODES,
        "10000": AuthenticationFailed,
        "5006": RequestRejected,
        "6003": RequestRejected,
        "7000": RequestRejected,
        "5021": InputTooLarge,
        "3040": RateLimited,  # no capacity just now; comes without Retry-After
        "3036": QuotaExhausted,  # the day's allotment
        "4006": QuotaExhausted,  # the same, in Cloudflare's newer numbering
    }
)
"""Code 5012 is not here: it is a bad request on 422 and no capacity on 529, so the status decides."""

_QUESTION_ID = re.compile(r"[A-Za-z0-9_.-]{1,100}", re.ASCII)
_PATH_SEGMENT = re.compile(r"[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)*", re.ASCII)


class ClefModel(HttpModel):
    """A Clef model on Workers AI.

    `provider_options` are added to the body; Clef rejects fields it does not know.

    Args:
        model: "clef" or "clef-flash".
        account_id: Wins over CLOUDFLARE_ACCOUNT_ID.
        base_url: In place of `https://api.cloudflare.com/client/v4`.
        api_key: Wins over CLOUDFLARE_API_TOKEN.
        timeouts: Per call.

    Raises:
        ConfigurationError: The model's name cannot be part of an address.
    """

    def __init__(
        self,
        model: str = "clef",
        *,
        account_id: str | None = None,
        base_url: str | None = None,
        api_key: str | None = None,
        timeouts: Timeouts = DEFAULT_TIMEOUTS,
    ) -> None:
        if not _PATH_SEGMENT.fullmatch(model):
            raise ConfigurationError(f"a Clef model is named like clef or clef-flash, not {model!r}")
        endpoint = Endpoint(
            path=f"/ai/run/@cf/cloudflare/{model}",
            base_url=base_url,
            default_base_url="https://api.cloudflare.com/client/v4",
            api_key=api_key,
            api_key_variables=("CLOUDFLARE_API_TOKEN",),
            timeouts=timeouts,
            codes=CODES,
            request_id_headers=("cf-ai-req-id", "cf-ray"),
        )
        super().__init__(model, provider="clef", endpoint=own_key_only(endpoint))
        self._given_account = account_id
        self._account = account_id

    def configure(self, environ: Mapping[str, str]) -> Sequence[str]:
        """Takes token and account from `environ`; gives back every problem as a sentence."""
        self._account = self._given_account or environ.get(ACCOUNT_VARIABLE, "").strip() or None
        problem = self._account_problem()
        return (*super().configure(environ), *(() if problem is None else (problem,)))

    async def decide(self, request: DecisionRequest) -> DecisionResponse:
        """Asks once; errors as for every decision model."""
        check_limits(request, LIMITS, self.described)
        check_ids(request.questions, self.described)
        reply = await self.post_json(self._body(request), path=self._path())
        result = self._unwrapped(reply)
        usage, warnings = read_usage(result.get("usage"))
        return DecisionResponse(
            answers=decode_answers(request.questions, result.get("answers")),
            response=self.response_info(reply, model=short_text(result.get("model"))),
            usage=usage,
            rounding=ROUNDING,
            warnings=warnings,
        )

    def _account_problem(self) -> str | None:
        if self._account is None:
            return f"{self.described}: an account is needed; set {ACCOUNT_VARIABLE}"
        if not _PATH_SEGMENT.fullmatch(self._account):
            return f"{self.described}: the account in {ACCOUNT_VARIABLE} is not an account's id"
        return None

    def _path(self) -> str:
        problem = self._account_problem()
        if problem is not None:
            raise ConfigurationError(problem)
        return f"/accounts/{self._account}{self._endpoint.path}"

    def _body(self, request: DecisionRequest) -> dict[str, Any]:
        questions = encode_questions(request.questions)
        body = {"model": self.name, "state": request.state, "questions": questions}
        return with_options(body, request.provider_options, self.described)

    def _unwrapped(self, reply: Reply) -> Mapping[str, Any]:
        """The result in the envelope.

        Raises:
            ModelError: The HTTP status or the envelope says it failed.
        """
        if reply.failed:
            raise self.failure(reply)
        envelope = read_object(reply.body, "the response")
        if envelope.get("success") is not True:
            raise self._failed_softly(reply)
        return read_object(envelope.get("result"), "the result")

    def _failed_softly(self, reply: Reply) -> ModelError:
        codes = self.codes_in(reply.body)
        known = next((code for code in codes if code in CODES), None)
        if known is None:
            return InvalidAnswer(
                f"{self.described} sent an envelope without success and without a code that says why",
                request_id=reply.request_id,
            )
        return CODES[known](
            f"{self.described} failed inside a successful answer (code {known})",
            status=reply.status,
            request_id=reply.request_id,
            provider_code=known,
        )


def check_ids(questions: Mapping[str, Question], service: str) -> None:
    """Refuses question ids that Clef does not take.

    Raises:
        RequestRejected: An id has other characters than letters, digits, `_`, `.` and `-`, or over 100.
    """
    for name in questions:
        if not _QUESTION_ID.fullmatch(name):
            raise RequestRejected(
                f"{service} takes ids of up to 100 letters, digits and '_.-', not question {name!r}"
            )
