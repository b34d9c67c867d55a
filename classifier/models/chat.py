"""An LLM as decision model, through structured output over the `openai` SDK (the extra `chat`). I/O.

    ChatModel("gpt-…")                                         OPENAI_API_KEY, OPENAI_BASE_URL
    ChatModel("qwen3", base_url="http://127.0.0.1:11434/v1")   any server that speaks chat completions

An LLM says what it picked, not how likely it is. A choice and a score therefore come without a distribution,
and a boolean is 1.0 or 0.0 with `calibrated=False`, so that no gate ever lets an answer of an LLM pass by
itself and `at_least` gives what the policy says for an unsure answer.

The state is fenced as `chat_codec` describes. The SDK adds OPENAI_ORG_ID, OPENAI_PROJECT_ID and
OPENAI_CUSTOM_HEADERS to requests by itself where they are set.
"""

from __future__ import annotations

import asyncio
import importlib.util
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Literal, cast

from classifier.answers import Refusal
from classifier.errors import ConfigurationError, InvalidAnswer, ModelError, ModelUnavailable
from classifier.models.chat_codec import messages, read_answers, schema
from classifier.models.endpoint import Endpoint, Settings, Timeouts, own_key_only, resolve
from classifier.models.http_errors import COMMON_CODES, ErrorAnswer, error_codes, failure, retry_after
from classifier.models.protocol import ALL_TYPES, DecisionRequest
from classifier.models.trust import trusted
from classifier.models.wire import (
    decode_json,
    read_list,
    read_object,
    read_text,
    read_usage,
    short_text,
    with_options,
)
from classifier.questions import QuestionType
from classifier.result import DecisionResponse, ResponseInfo
from classifier.values import JSON

if TYPE_CHECKING:
    from openai import AsyncOpenAI

OPENAI_URL = "https://api.openai.com/v1"
TIMEOUTS = Timeouts(read=60.0, total=120.0)
REFUSED = frozenset({"refusal", "content_policy_violation", "content_filter"})
"""Error codes that stand for a refusal of the whole request, on HTTP 400 and 403."""

_OWN_FIELDS: Mapping[str, JSON] = dict.fromkeys(
    ("model", "messages", "response_format", "n", "stream", "tools", "tool_choice")
)
_MARK_BYTES = 16


@dataclass(frozen=True, slots=True)
class _Reply:
    """A response of the SDK, before anything in it is believed."""

    status: int
    content: bytes
    headers: Mapping[str, str]
    request_id: str | None
    received: datetime


class ChatModel:
    """An LLM that answers by JSON schema.

    `provider_options` become further fields of the request: `temperature`, `seed`, `reasoning_effort`, ….

    Args:
        model: As the service names it.
        base_url: The address, with `/v1`; wins over OPENAI_BASE_URL. A key from the environment goes to
            OpenAI and never to another address given here.
        api_key: Wins over OPENAI_API_KEY.
        timeouts: Per call.
    """

    def __init__(
        self,
        model: str,
        *,
        base_url: str | None = None,
        api_key: str | None = None,
        timeouts: Timeouts = TIMEOUTS,
    ) -> None:
        endpoint = Endpoint(
            path="/chat/completions",
            base_url=base_url,
            default_base_url=OPENAI_URL,
            base_url_variables=("OPENAI_BASE_URL",),
            api_key=api_key,
            api_key_variables=("OPENAI_API_KEY",),
            timeouts=timeouts,
        )
        self._name = model
        self._endpoint = own_key_only(endpoint)
        self._settings = resolve(self._endpoint, {}, self._described)
        self._client: AsyncOpenAI | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    @property
    def provider(self) -> str:
        """Always "chat"."""
        return "chat"

    @property
    def name(self) -> str:
        """The LLM that is asked."""
        return self._name

    @property
    def question_types(self) -> frozenset[QuestionType]:
        """Every type."""
        return ALL_TYPES

    @property
    def _described(self) -> str:
        return f"{self.provider} {self._name!r}"

    def __repr__(self) -> str:
        return f"ChatModel({self._name!r})"

    def configure(self, environ: Mapping[str, str]) -> Sequence[str]:
        """Takes key, address and proxy from `environ`; gives back every problem as a sentence."""
        settings = resolve(self._endpoint, environ, self._described)
        if settings != self._settings:
            self._settings, self._client = settings, None
        return (*settings.problems, *_missing_extra(self._described))

    async def decide(self, request: DecisionRequest) -> DecisionResponse:
        """Asks once; errors as for every decision model."""
        with_options(_OWN_FIELDS, request.provider_options, self._described)
        answer_schema = schema(request.questions)
        problems = (*self._settings.problems, *_missing_extra(self._described))
        if problems:
            raise ConfigurationError("; ".join(problems))
        reply = await self._asked(request, answer_schema)
        if reply.status >= HTTPStatus.MULTIPLE_CHOICES:
            return self._failed(request, reply)
        return self._read(request, reply)

    async def aclose(self) -> None:
        """Closes the connections; the next request opens new ones."""
        client, here = self._client, self._loop is asyncio.get_running_loop()
        self._client = self._loop = None
        if client is not None and here:
            await client.close()

    async def _asked(self, request: DecisionRequest, answer_schema: Mapping[str, JSON]) -> _Reply:
        import openai  # noqa: PLC0415 - the extra `chat` may not be installed

        named = {"name": "answers", "strict": True, "schema": answer_schema}
        try:
            async with asyncio.timeout(self._endpoint.timeouts.total):
                raw = await self._open().chat.completions.with_raw_response.create(
                    model=self._name,
                    messages=cast("Any", messages(request.state, request.questions, _mark())),
                    response_format=cast("Any", {"type": "json_schema", "json_schema": named}),
                    extra_body=dict(request.provider_options),
                )
            return self._reply(raw.status_code, raw.content, raw.headers)
        except openai.APIStatusError as error:
            return self._reply(error.status_code, error.response.content, error.response.headers)
        except (openai.APITimeoutError, TimeoutError) as error:
            problem = f"did not answer in time ({type(error).__name__})"
        except (openai.OpenAIError, OSError) as error:
            problem = f"cannot be reached ({type(error).__name__})"
        # outside of the handlers, so that the error carries none of the SDK's, which hold provider text
        raise ModelUnavailable(f"{self._described} {problem}")

    def _reply(self, status: int, content: bytes, headers: Mapping[str, str]) -> _Reply:
        named = short_text(headers.get("x-request-id"))
        safe = self._settings.without_secrets(() if named is None else (named,))
        return _Reply(status, content, headers, next(iter(safe), None), datetime.now(UTC))

    def _read(self, request: DecisionRequest, reply: _Reply) -> DecisionResponse:
        body = read_object(_json(reply, self._described), "the response")
        choices = read_list(body.get("choices"), "choices")
        if len(choices) != 1:
            raise InvalidAnswer(f"{self._described} gave {len(choices)} replies, not one")
        chosen = read_object(choices[0], "the reply")
        message = read_object(chosen.get("message"), "the message")
        finished: object = chosen.get("finish_reason")
        usage, warnings = read_usage(body.get("usage"), "prompt_tokens", "completion_tokens")
        info = self._info(reply, model=short_text(body.get("model")), response=short_text(body.get("id")))
        signal = _refusal(message, finished)
        if signal is not None:
            refused = dict.fromkeys(request.questions, Refusal(signal))
            return DecisionResponse(refused, info, usage=usage, warnings=warnings)
        if finished != "stop":
            raise InvalidAnswer(f"{self._described} did not finish its reply", request_id=reply.request_id)
        content = read_text(message.get("content"), "the reply")
        answers = read_answers(content, request.questions)
        return DecisionResponse(answers, info, usage=usage, warnings=warnings)

    def _failed(self, request: DecisionRequest, reply: _Reply) -> DecisionResponse:
        try:
            body = decode_json(reply.content)
        except ValueError:
            body = None
        codes = self._settings.without_secrets(error_codes(body))
        refusable = reply.status in {HTTPStatus.BAD_REQUEST, HTTPStatus.FORBIDDEN}
        if refusable and not REFUSED.isdisjoint(codes):
            answers = dict.fromkeys(request.questions, Refusal("policy"))
            return DecisionResponse(answers, self._info(reply))
        raise self._failure(reply, codes)

    def _failure(self, reply: _Reply, codes: tuple[str, ...]) -> ModelError:
        wait = retry_after(reply.headers, reply.received)
        answer = ErrorAnswer(reply.status, codes, wait, reply.request_id)
        return failure(answer, self._described, COMMON_CODES)

    def _info(self, reply: _Reply, model: str | None = None, response: str | None = None) -> ResponseInfo:
        return ResponseInfo(
            provider=self.provider,
            requested_model=self._name,
            model=model or self._name,
            timestamp=reply.received,
            id=response,
            request_id=reply.request_id,
        )

    def _open(self) -> AsyncOpenAI:
        loop = asyncio.get_running_loop()
        if self._client is None or self._loop is not loop:
            self._client, self._loop = _client(self._settings, self._endpoint.timeouts), loop
        return self._client


def _client(settings: Settings, timeouts: Timeouts) -> AsyncOpenAI:
    """A client that never retries, follows no redirect, and takes proxies from our settings only."""
    import openai  # noqa: PLC0415 - the extra `chat` may not be installed

    transport = openai.DefaultAsyncHttpxClient(
        follow_redirects=False, trust_env=False, proxy=settings.proxy, verify=trusted()
    )
    key = settings.secrets[0].reveal() if settings.secrets else "none"
    return openai.AsyncOpenAI(
        base_url=settings.address,
        api_key=key,
        admin_api_key="",
        max_retries=0,
        timeout=openai.Timeout(**timeouts.by_phase()),
        http_client=transport,
    )


def _mark() -> str:
    return secrets.token_hex(_MARK_BYTES)


def _missing_extra(service: str) -> tuple[str, ...]:
    if importlib.util.find_spec("openai") is not None:
        return ()
    return (f"{service}: needs the openai SDK; install temporal-classifier[chat]",)


def _json(reply: _Reply, service: str) -> JSON:
    try:
        return decode_json(reply.content)
    except ValueError as error:
        fault = f"{service} answered with HTTP {reply.status} and a body that is not JSON"
        raise InvalidAnswer(fault, unreadable=True, request_id=reply.request_id) from error


def _refusal(message: Mapping[str, Any], finished: object) -> Literal["answer", "policy"] | None:
    """How the model or the filter around it declined; None where it did not."""
    if finished == "content_filter":
        return "policy"
    refusal: object = message.get("refusal")
    return None if refusal is None or refusal == "" else "answer"
