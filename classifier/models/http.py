"""What every decision model over HTTP shares: settings, one connection pool, deadlines, errors. I/O.

An adapter subclasses `HttpModel` and writes only its codec:

    class Mine(HttpModel):
        def __init__(self, model: str = "m-1", *, api_key: str | None = None, base_url: str | None = None):
            super().__init__(model, provider="mine", endpoint=Endpoint(
                path="/v1/decisions",
                base_url=base_url,
                default_base_url="https://api.example.com",
                base_url_variables=("MINE_BASE_URL",),
                api_key=api_key,
                api_key_variables=("MINE_API_KEY",),
                auth=bearer,                                       # or key_header("x-goog-api-key")
                codes={**COMMON_CODES, "4006": QuotaExhausted},    # the service's codes, before its status
                request_id_headers=("cf-ray",),
            ))

        async def decide(self, request: DecisionRequest) -> DecisionResponse:
            check_limits(request, LIMITS, self.described)          # from wire.py, before any I/O
            reply = await self.post_json({...})                    # or post_json(body, path=…, headers=…)
            if reply.failed:                                       # every HTTP status but 2xx
                if "blocked" in reply.codes: ...                   # an adapter's own rules come first
                raise self.failure(reply)                          # a ModelError by code, then by status
            answers = ...                                          # reply.body is JSON, read strictly
            return DecisionResponse(answers, self.response_info(reply, model=…, id=…), …)

`post_json` raises `ModelUnavailable` (no connection, a timeout, over the deadline), `InvalidAnswer` (a 2xx
whose body is not JSON, or too long) and `ConfigurationError` (no key, no address). It never retries and never
puts a service's prose, a header or a key in an exception. Arguments win over the variables, which `configure`
takes from the mapping it is given; where everything is an argument, `configure` is not needed.

The pool is opened by the first request and belongs to the running event loop: another loop gets another pool,
and a loop that ends closes its own.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from http import HTTPStatus

import aiohttp
import httpx
from httpx_aiohttp import AiohttpTransport

from classifier.errors import (
    ConfigurationError,
    InputTooLarge,
    InvalidAnswer,
    ModelError,
    ModelUnavailable,
    RequestRejected,
)
from classifier.models.endpoint import (
    DEFAULT_TIMEOUTS,
    Endpoint,
    Secret,
    Settings,
    Timeouts,
    bearer,
    key_header,
    resolve,
)
from classifier.models.http_errors import COMMON_CODES, ErrorAnswer, error_codes, failure, retry_after
from classifier.models.protocol import ALL_TYPES
from classifier.models.trust import trusted
from classifier.models.wire import decode_json, encode_json, short_text
from classifier.questions import QuestionType
from classifier.result import ResponseInfo
from classifier.values import JSON

__all__ = [
    "COMMON_CODES",
    "DEFAULT_TIMEOUTS",
    "Endpoint",
    "HttpModel",
    "Reply",
    "Secret",
    "Timeouts",
    "bearer",
    "key_header",
    "transport_error",
]

_ERROR_BODY_BYTES = 64 * 1024
_KEEP_ALIVE = 4.0
"""Seconds; below the five after which many servers close, so that a closing connection is not written to."""


@dataclass(frozen=True, slots=True)
class Reply:
    """An answer over HTTP.

    Attributes:
        status: HTTP status.
        body: Read as JSON; None for an unsuccessful answer that is not JSON.
        codes: Identifiers in the body of an unsuccessful answer, most telling first.
        headers: As sent; names in lower case.
        request_id: The service's name for the request.
        received: In UTC.
    """

    status: int
    body: JSON = field(repr=False)
    codes: tuple[str, ...]
    headers: Mapping[str, str] = field(repr=False)
    request_id: str | None
    received: datetime

    @property
    def failed(self) -> bool:
        """Whether the status is not 2xx."""
        return not HTTPStatus.OK <= self.status < HTTPStatus.MULTIPLE_CHOICES


class HttpModel:
    """Base of the decision models over HTTP; an adapter adds `decide`.

    Args:
        model: As the service names it.
        provider: Which adapter or service this is, for the record.
        endpoint: Where it is.
        question_types: What it can answer.
    """

    def __init__(
        self,
        model: str,
        *,
        provider: str,
        endpoint: Endpoint,
        question_types: frozenset[QuestionType] = ALL_TYPES,
    ) -> None:
        self._name = model
        self._provider = provider
        self._types = question_types
        self._endpoint = endpoint
        self._phases = endpoint.timeouts.by_phase()
        self._apply(resolve(endpoint, {}, self.described))

    @property
    def provider(self) -> str:
        """Which adapter or service this is."""
        return self._provider

    @property
    def name(self) -> str:
        """The model that is asked for."""
        return self._name

    @property
    def question_types(self) -> frozenset[QuestionType]:
        """What it can answer."""
        return self._types

    @property
    def described(self) -> str:
        """Provider and model, for messages."""
        return f"{self._provider} {self._name!r}"

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._name!r}, provider={self._provider!r})"

    def configure(self, environ: Mapping[str, str]) -> Sequence[str]:
        """Takes key, address and proxy from `environ`; gives back every problem as a sentence."""
        settings = resolve(self._endpoint, environ, self.described)
        if settings != self._settings:
            self._apply(settings)
        return settings.problems

    def _apply(self, settings: Settings) -> None:
        """Parses once what every request needs."""
        self._settings, self._pool = settings, _Pool()
        self._url = httpx.URL("" if settings.problems else settings.address + self._endpoint.path)

    async def aclose(self) -> None:
        """Closes the connections; the next request opens new ones."""
        await self._pool.aclose()

    async def post_json(
        self, body: JSON, *, path: str | None = None, headers: Mapping[str, str] | None = None
    ) -> Reply:
        """Sends `body` once.

        Args:
            body: Sent as JSON.
            path: In place of the endpoint's.
            headers: Added to the endpoint's.

        Raises:
            ConfigurationError: A key or an address is missing; names the variable.
            InputTooLarge: The body is over the endpoint's limit.
            ModelUnavailable: No connection, a timeout, or over the deadline.
            RequestRejected: The address cannot be used.
            InvalidAnswer: A successful answer is not JSON, or too long.
        """
        settings, endpoint = self._settings, self._endpoint
        if settings.problems:
            raise ConfigurationError("; ".join(settings.problems))
        content = encode_json(body)
        if endpoint.max_request_bytes is not None and len(content) > endpoint.max_request_bytes:
            raise InputTooLarge(
                f"{self.described} takes {endpoint.max_request_bytes} bytes a request, not {len(content)}"
            )
        request = httpx.Request(
            "POST",
            self._url if path is None else settings.address + path,
            headers=headers,
            content=content,
            extensions={"timeout": self._phases},
        )
        return self._reply(*await self._exchange(request))

    def codes_in(self, body: JSON) -> tuple[str, ...]:
        """The identifiers in an error body, most telling first, without a key that was sent back."""
        return self._settings.without_secrets(error_codes(body))

    def failure(self, reply: Reply) -> ModelError:
        """The error for a `reply` that failed: by the endpoint's codes, then by status."""
        wait = retry_after(reply.headers, reply.received)
        answer = ErrorAnswer(reply.status, reply.codes, wait, reply.request_id)
        return failure(answer, self.described, self._endpoint.codes)

    def response_info(self, reply: Reply, *, model: str | None, id: str | None = None) -> ResponseInfo:  # noqa: A002 - the field's name
        """Where an answer came from; `model` is the build that answered, the requested name where unknown."""
        return ResponseInfo(
            provider=self._provider,
            requested_model=self._name,
            model=model or self._name,
            timestamp=reply.received,
            id=id,
            request_id=reply.request_id,
        )

    async def _exchange(self, request: httpx.Request) -> tuple[int, Mapping[str, str], bytes]:
        try:
            async with asyncio.timeout(self._endpoint.timeouts.total):
                transport = await self._pool.transport(self._open)
                return await _send(transport, request, self._endpoint.max_response_bytes)
        except (httpx.HTTPError, aiohttp.ClientError, OSError) as error:
            problem = transport_error(error, self.described)
        except _TooLong:
            problem = InvalidAnswer(
                f"{self.described} answered with more than {self._endpoint.max_response_bytes} bytes"
            )
        raise problem  # outside of the handlers, so that a cause never carries a service's words along

    def _reply(self, status: int, headers: Mapping[str, str], content: bytes) -> Reply:
        request_id = self._request_id(headers)
        body, readable = _read_json(content)
        failed = not HTTPStatus.OK <= status < HTTPStatus.MULTIPLE_CHOICES
        if not failed and not readable:
            raise InvalidAnswer(
                f"{self.described} answered with HTTP {status} and a body that is not JSON",
                unreadable=True,
                request_id=request_id,
            )
        return Reply(
            status=status,
            body=body,
            codes=self.codes_in(body) if failed else (),
            headers=headers,
            request_id=request_id,
            received=datetime.now(UTC),
        )

    def _request_id(self, headers: Mapping[str, str]) -> str | None:
        given = (short_text(headers[name]) for name in self._endpoint.request_id_headers if name in headers)
        return next(iter(self._settings.without_secrets(tuple(filter(None, given)))), None)

    def _open(self) -> httpx.AsyncBaseTransport:
        """Opens httpx over aiohttp, which carries several times the requests of httpx's own transport.

        The transport is used without a client around it: cookies, redirects and authentication flows are not
        wanted here, and cost a tenth of a call.
        """
        context = trusted()
        connector = aiohttp.TCPConnector(
            limit=self._endpoint.connections,
            keepalive_timeout=_KEEP_ALIVE,
            ssl=context,
        )
        session = aiohttp.ClientSession(  # with the headers, which httpx would copy for every request
            connector=connector, cookie_jar=aiohttp.DummyCookieJar(), headers=self._settings.headers
        )
        proxy = None if self._settings.proxy is None else httpx.Proxy(self._settings.proxy)
        return AiohttpTransport(client=session, verify=context, proxy=proxy)


class _Pool:
    """The connections of the running event loop."""

    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None
        self._transport: httpx.AsyncBaseTransport | None = None
        self._life: AsyncGenerator[httpx.AsyncBaseTransport] | None = None

    async def transport(self, connect: Callable[[], httpx.AsyncBaseTransport]) -> httpx.AsyncBaseTransport:
        loop = asyncio.get_running_loop()
        if self._transport is None or self._loop is not loop:
            self._life = _lifetime(connect)
            self._transport, self._loop = await anext(self._life), loop
        return self._transport

    async def aclose(self) -> None:
        life, here = self._life, self._loop is asyncio.get_running_loop()
        self._loop = self._transport = self._life = None
        if life is not None and here:
            await life.aclose()


async def _lifetime(
    connect: Callable[[], httpx.AsyncBaseTransport],
) -> AsyncGenerator[httpx.AsyncBaseTransport]:
    """Stays open as long as the generator does; an event loop that ends closes its generators."""
    async with connect() as transport:
        yield transport


async def _send(
    transport: httpx.AsyncBaseTransport, request: httpx.Request, limit: int
) -> tuple[int, Mapping[str, str], bytes]:
    response = await transport.handle_async_request(request)
    headers = _plain_headers(response)
    try:
        if response.is_success:
            return response.status_code, headers, await _content(response, headers, limit)
        return response.status_code, headers, await _error_content(response, headers)
    finally:
        await response.aclose()


def _plain_headers(response: httpx.Response) -> dict[str, str]:
    """Headers as a dictionary: `httpx.Headers` works out its encoding again at every look."""
    return {name.decode("latin-1").lower(): text.decode("latin-1") for name, text in response.headers.raw}


async def _content(response: httpx.Response, headers: Mapping[str, str], limit: int) -> bytes:
    content = bytearray()
    async for chunk in _chunks(response, headers):
        content += chunk
        if len(content) > limit:
            raise _TooLong
    return bytes(content)


def _chunks(response: httpx.Response, headers: Mapping[str, str]) -> AsyncIterable[bytes]:
    """The body; httpx's decoding is left out where there is nothing to decode."""
    stream = response.stream
    if "content-encoding" in headers or not isinstance(stream, httpx.AsyncByteStream):
        return response.aiter_bytes()
    return stream


async def _error_content(response: httpx.Response, headers: Mapping[str, str]) -> bytes:
    """The body of an error, or nothing: its status says enough."""
    try:
        return await _content(response, headers, _ERROR_BODY_BYTES)
    except (httpx.HTTPError, aiohttp.ClientError, _TooLong):
        return b""


def _read_json(content: bytes) -> tuple[JSON, bool]:
    try:
        return decode_json(content), True
    except ValueError:
        return None, False


class _TooLong(Exception):
    pass


def transport_error(error: Exception, service: str) -> ModelError:
    """What a failed exchange means; the message names the kind of failure only.

    The transport reports most connection faults as `httpx.ConnectTimeout`, so what aiohttp said is looked at.
    """
    cause = error.__cause__ if isinstance(error.__cause__, aiohttp.ClientError) else error
    kind = type(cause).__name__
    match cause:
        case httpx.UnsupportedProtocol() | httpx.LocalProtocolError() | aiohttp.InvalidURL():
            return RequestRejected(f"{service} cannot be asked at its address ({kind}); check base_url")
        case httpx.DecodingError():
            return InvalidAnswer(f"{service} answered with a broken compression", unreadable=True)
        case httpx.TimeoutException() | TimeoutError():
            return ModelUnavailable(f"{service} did not answer in time ({kind})")
        case _:
            return ModelUnavailable(f"no usable connection to {service} ({kind})")
