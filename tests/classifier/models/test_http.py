"""What every HTTP adapter shares, against a local server."""

from __future__ import annotations

import asyncio
import gzip
import inspect
import logging
import pickle
import traceback
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import aiohttp
import httpx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

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
from classifier.models.http import (
    DEFAULT_TIMEOUTS,
    Endpoint,
    HttpModel,
    Reply,
    Secret,
    Timeouts,
    key_header,
    transport_error,
)
from classifier.models.http_errors import LONGEST_WAIT, error_codes, retry_after
from classifier.values import JSON
from tests.servers import Answer, Call, Hang, Raw, Server, half_of, in_thread

NOW = datetime(2026, 11, 30, 12, 0, tzinfo=UTC)
FAST = Timeouts(connect=1, read=1, write=1, pool=1, total=0.3)


def model_at(url: str, timeouts: Timeouts = DEFAULT_TIMEOUTS, key: str | None = None) -> HttpModel:
    endpoint = Endpoint(path="/ask", base_url=url, api_key=key, key_required=False, timeouts=timeouts)
    return HttpModel("m-1", provider="test", endpoint=endpoint)


async def failure_of(model: HttpModel) -> ModelError:
    """Asks once, and gives the error back."""
    try:
        reply = await model.post_json({})
    except ModelError as error:
        return error
    finally:
        await model.aclose()
    assert reply.failed
    return model.failure(reply)


# -- statuses ---------------------------------------------------------------------------------------------

STATUSES: list[tuple[int, type[ModelError]]] = [
    (300, RequestRejected),
    (302, RequestRejected),
    (400, RequestRejected),
    (401, AuthenticationFailed),
    (402, QuotaExhausted),
    (403, AuthenticationFailed),
    (404, RequestRejected),
    (405, RequestRejected),
    (408, ModelUnavailable),
    (409, ModelUnavailable),
    (410, RequestRejected),
    (413, InputTooLarge),
    (415, RequestRejected),
    (418, RequestRejected),
    (422, RequestRejected),
    (425, ModelUnavailable),
    (429, RateLimited),
    (500, ModelUnavailable),
    (501, ModelUnavailable),
    (502, ModelUnavailable),
    (503, ModelUnavailable),
    (504, ModelUnavailable),
    (524, ModelUnavailable),
    (529, ModelUnavailable),
]


@pytest.mark.parametrize(("status", "expected"), STATUSES)
async def test_every_status_has_its_error(status: int, expected: type[ModelError]) -> None:
    body: JSON = {"error": {"message": "Some prose. With state in it!", "code": "some_code"}}
    headers = {"x-request-id": "req-7", "location": "http://127.0.0.1:1/"}
    async with Server([Answer(body, status, headers)]) as server:
        error = await failure_of(model_at(server.url))
    assert type(error) is expected
    assert error.retryable is (expected in {ModelUnavailable, RateLimited})
    assert (error.status, error.request_id, error.provider_code) == (status, "req-7", "some_code")
    assert "prose" not in str(error)
    assert "test 'm-1'" in str(error)
    assert len(server.calls) == 1


@pytest.mark.parametrize(
    ("body", "codes"),
    [
        (
            {"detail": {"error_type": "authentication_error", "message": "Must supply"}},
            ("authentication_error",),
        ),
        ({"error": {"code": 402, "message": "m", "metadata": {"error_type": "refusal"}}}, ("refusal", "402")),
        ({"error": {"status": "RESOURCE_EXHAUSTED", "code": 429}}, ("429", "RESOURCE_EXHAUSTED")),
        ({"errors": [{"code": 4006, "message": "neurons"}], "success": False}, ("4006",)),
        ({"error": "rate_limited"}, ("rate_limited",)),
        ({"error": "All the words of a sentence"}, ()),
        ({"error_type": "max_tokens_exceeded", "message": None}, ("max_tokens_exceeded",)),
        ({"error": {"code": True, "type": ["x"]}}, ()),
        ({"error": {"code": "x" * 65}}, ()),
        (["error"], ()),
        (None, ()),
    ],
)
def test_error_codes_are_found_where_services_put_them(body: JSON, codes: tuple[str, ...]) -> None:
    assert error_codes(body) == codes


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("insufficient_quota", QuotaExhausted),
        ("payment_required", QuotaExhausted),
        ("context_length_exceeded", InputTooLarge),
        ("max_tokens_exceeded", InputTooLarge),
        ("rate_limit_exceeded", RateLimited),
    ],
)
async def test_a_code_that_says_more_than_the_status_wins(code: str, expected: type[ModelError]) -> None:
    async with Server([Answer({"error": {"code": code}}, 429)]) as server:
        error = await failure_of(model_at(server.url))
    assert type(error) is expected
    assert error.provider_code == code


async def test_an_error_without_a_readable_body_still_has_its_status() -> None:
    broken = half_of(Answer({"error": {"code": "lost"}}, 401))
    async with Server([Answer(b"<html>no</html>", 401), broken]) as server:
        assert type(await failure_of(model_at(server.url))) is AuthenticationFailed
        assert type(await failure_of(model_at(server.url))) is AuthenticationFailed


# -- waiting ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({}, None),
        ({"retry-after-ms": "1500", "retry-after": "9"}, 1.5),
        ({"retry-after-ms": "soon", "retry-after": "9"}, 9.0),
        ({"retry-after-ms": "-1", "retry-after": "2.5"}, 2.5),
        ({"retry-after": "0"}, 0.0),
        ({"retry-after": "nan"}, None),
        ({"retry-after": "inf"}, None),
        ({"retry-after": "-3"}, None),
        ({"retry-after": "later"}, None),
        ({"retry-after": format_datetime(NOW + timedelta(seconds=40), usegmt=True)}, 40.0),
        ({"retry-after": format_datetime(NOW - timedelta(hours=1), usegmt=True)}, 0.0),
        ({"retry-after": "Wed, 99 Foo 2026 99:99:99 GMT"}, None),
    ],
)
def test_the_wait_is_read_in_every_form(headers: dict[str, str], seconds: float | None) -> None:
    assert retry_after(httpx.Headers(headers), NOW) == seconds


@pytest.mark.parametrize(
    ("status", "wait", "expected", "seconds"),
    [
        (429, "7", RateLimited, 7.0),
        (429, "300", RateLimited, 300.0),
        (429, "1400000", QuotaExhausted, 1_400_000.0),
        (503, "7", ModelUnavailable, 7.0),
        (503, "1400000", ModelUnavailable, LONGEST_WAIT),
    ],
)
async def test_a_wait_is_capped_and_a_very_long_one_means_a_spent_quota(
    status: int, wait: str, expected: type[ModelError], seconds: float
) -> None:
    async with Server([Answer({}, status, {"retry-after": wait})]) as server:
        error = await failure_of(model_at(server.url))
    assert (type(error), error.retry_after) == (expected, seconds)


# -- the connection ---------------------------------------------------------------------------------------


def kinds_of(base: type[Exception]) -> list[type[Exception]]:
    """Every subclass there is, by name."""
    found: set[type[Exception]] = set()
    for kind in base.__subclasses__():
        found |= {kind, *kinds_of(kind)}
    return sorted(found, key=lambda kind: kind.__name__)


@pytest.mark.parametrize("kind", kinds_of(httpx.TransportError))
def test_every_transport_error_is_mapped(kind: type[Exception]) -> None:
    error = transport_error(kind("words of the other side"), "test 'm-1'")
    broken_setup = issubclass(kind, httpx.UnsupportedProtocol | httpx.LocalProtocolError)
    assert type(error) is (RequestRejected if broken_setup else ModelUnavailable)
    assert error.retryable is not broken_setup
    assert "words" not in str(error)


@pytest.mark.parametrize("kind", kinds_of(aiohttp.ClientError))
def test_every_error_below_the_transport_is_mapped(kind: type[Exception]) -> None:
    below = kind.__new__(kind)
    error = transport_error(below, "test 'm-1'")
    assert type(error) is (RequestRejected if issubclass(kind, aiohttp.InvalidURL) else ModelUnavailable)


@pytest.mark.parametrize(
    "reply",
    [
        Raw(),
        Raw(b"SSH-2.0-OpenSSH_9.6\r\n"),
        Raw(b"HTTP/1.1 200 OK\r\ncontent-length: nine\r\n\r\n"),
        Raw(b"HTTP/1.1 200 OK\r\n" + b"x: " + b"y" * 100_000 + b"\r\n\r\n"),
        half_of(Answer({"answers": {}})),
        Hang(),
        Hang(b"HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\n{"),
    ],
)
async def test_a_broken_exchange_is_an_unavailable_model(reply: Raw | Hang) -> None:
    async with Server([reply]) as server:
        error = await failure_of(model_at(server.url, FAST))
    assert type(error) is ModelUnavailable
    assert error.retryable
    assert "OpenSSH" not in "".join(traceback.format_exception(error))
    assert len(server.calls) == 1


async def test_nobody_listening_is_an_unavailable_model() -> None:
    async with Server([]) as server:
        url = server.url
    error = await failure_of(model_at(url))
    assert type(error) is ModelUnavailable
    assert "no usable connection" in str(error)


async def test_the_deadline_holds_for_an_answer_that_trickles() -> None:
    async with Server([Hang(b"HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\n{")]) as server:
        loop = asyncio.get_running_loop()
        started = loop.time()
        error = await failure_of(model_at(server.url, FAST))
        assert loop.time() - started < 1
        assert "did not answer in time" in str(error)
        await asyncio.wait_for(server.left.wait(), 5)


@pytest.mark.parametrize("data", [b"", b"HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\n{"])
async def test_cancelling_closes_the_request_at_the_server(data: bytes) -> None:
    async with Server([Hang(data)]) as server:
        model = model_at(server.url)
        call = asyncio.create_task(model.post_json({}))
        await server.asked.wait()
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        await asyncio.wait_for(server.left.wait(), 5)
        await model.aclose()


async def test_one_pool_serves_many_calls_and_is_usable_again_after_closing() -> None:
    async with Server(lambda _: Answer({})) as server:
        model = model_at(server.url)
        for _ in range(5):
            await model.post_json({})
        assert server.connections == 1
        await model.aclose()
        await model.aclose()
        await model.post_json({})
        assert server.connections == 2
        await model.aclose()


def test_a_model_works_in_one_event_loop_after_another() -> None:
    with in_thread(lambda _: Answer({})) as server:
        model = model_at(server.url)

        async def ask(*, close: bool) -> int:
            reply = await model.post_json({})
            if close:
                await model.aclose()
            return reply.status

        assert [asyncio.run(ask(close=close)) for close in (False, True, False, False)] == [200] * 4
        assert server.connections == 4


async def test_closing_ends_the_calls_that_are_in_flight() -> None:
    async with Server([Hang(), Answer({})]) as server:
        model = model_at(server.url)
        call = asyncio.create_task(model.post_json({}))
        await server.asked.wait()
        await model.aclose()
        with pytest.raises(ModelUnavailable):
            await asyncio.wait_for(call, 5)
        assert (await model.post_json({})).status == 200
        await model.aclose()


async def test_a_cookie_is_never_kept() -> None:
    async with Server(lambda _: Answer({}, headers={"set-cookie": "a=b; Path=/"})) as server:
        model = model_at(server.url)
        await model.post_json({})
        await model.post_json({})
        await model.aclose()


async def test_a_redirect_is_not_followed() -> None:
    async with Server([]) as elsewhere, Server([Answer({}, 307, {"location": elsewhere.url})]) as server:
        error = await failure_of(model_at(server.url, key="sk-secret-1"))
    assert type(error) is RequestRejected
    assert elsewhere.calls == []


# -- bodies -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"<html>OK</html>",
        b"{",
        b'{"a": NaN}',
        b'{"a": Infinity}',
        b'{"a": 1e999}',
        b'{"a": 1, "a": 2}',
        b'{"a": {"b": 1, "b": 2}}',
        b'{"a": ' + b"9" * 5000 + b"}",
        b"[" * 100_000,
        b'{"a": "\xff"}',
        b")]}'\n{}",
        b'{"a": 1} trailing',
        '{"a": 1}'.encode("utf-16"),
    ],
)
async def test_a_body_that_is_not_json_by_the_letter_is_no_answer(body: bytes) -> None:
    async with Server([Answer(body)]) as server:
        error = await failure_of(model_at(server.url))
    assert type(error) is InvalidAnswer
    assert error.retryable
    assert error.__cause__ is None
    assert error.__context__ is None


async def test_an_answer_without_end_is_cut_off() -> None:
    async with Server([Answer(b'"' + b"x" * 4096 + b'"')]) as server:
        endpoint = Endpoint(path="/ask", base_url=server.url, key_required=False, max_response_bytes=1024)
        error = await failure_of(HttpModel("m-1", provider="test", endpoint=endpoint))
    assert type(error) is InvalidAnswer
    assert not error.retryable
    assert "1024 bytes" in str(error)


async def test_the_cap_holds_for_what_a_compressed_answer_becomes() -> None:
    bomb = gzip.compress(b'"' + b"x" * 1_000_000 + b'"')
    async with Server([Answer(bomb, headers={"content-encoding": "gzip"})]) as server:
        endpoint = Endpoint(path="/ask", base_url=server.url, key_required=False, max_response_bytes=10_000)
        error = await failure_of(HttpModel("m-1", provider="test", endpoint=endpoint))
    assert type(error) is InvalidAnswer


async def test_a_broken_compression_is_no_answer() -> None:
    async with Server([Answer(b"not gzip", headers={"content-encoding": "gzip"})]) as server:
        error = await failure_of(model_at(server.url))
    assert type(error) is InvalidAnswer
    assert error.retryable


async def test_a_request_over_the_limit_is_refused_before_any_io() -> None:
    async with Server([]) as server:
        endpoint = Endpoint(path="/ask", base_url=server.url, key_required=False, max_request_bytes=10)
        with pytest.raises(InputTooLarge, match="10 bytes"):
            await HttpModel("m-1", provider="test", endpoint=endpoint).post_json({"state": "x" * 10})
    assert server.connections == 0


@pytest.mark.parametrize("text", ["\ud83d", "é😀", "\u2028\x00", '"\\'])
async def test_any_text_travels(text: str) -> None:
    async with Server([Answer({})]) as server:
        model = model_at(server.url)
        await model.post_json({"state": text})
        await model.aclose()
    assert server.calls[0].json == {"state": text}


# -- settings ---------------------------------------------------------------------------------------------


def configurable(**fields: object) -> HttpModel:
    endpoint = Endpoint(
        path="/ask",
        base_url_variables=("T_URL",),
        api_key_variables=("T_KEY", "T_OTHER_KEY"),
        **fields,  # type: ignore[arg-type] # each test names the fields it is about
    )
    return HttpModel("m-1", provider="test", endpoint=endpoint)


def test_configure_lists_every_problem_at_once_and_names_the_variables() -> None:
    problems = configurable().configure({})
    assert len(problems) == 2
    assert "T_URL" in problems[0]
    assert "T_KEY or T_OTHER_KEY" in problems[1]


@pytest.mark.parametrize(
    "address",
    [
        "ftp://h",
        "h:80",
        "http://",
        "http://h:99999",
        "http://[",
        "http://u:p@h",
        "http://h?key=1",
        "http://h#x",
    ],
)
def test_an_address_that_cannot_be_right_is_a_problem(address: str) -> None:
    (problem,) = configurable().configure({"T_URL": address, "T_KEY": "k"})
    assert "T_URL" in problem
    assert "u:p" not in problem


@pytest.mark.parametrize("key", ["clé-secrète", "two words", "line\nbreak"])
def test_a_key_that_a_header_cannot_carry_is_a_problem_that_does_not_show_it(key: str) -> None:
    (problem,) = configurable().configure({"T_URL": "http://h", "T_KEY": key})
    assert "T_KEY" in problem
    assert key not in problem


def test_a_header_that_cannot_be_sent_is_a_problem_that_does_not_show_it() -> None:
    (problem,) = configurable(headers={"x-title": "Größe"}).configure({"T_URL": "http://h", "T_KEY": "k"})
    assert "x-title" in problem
    assert "Größe" not in problem


async def test_an_unconfigured_model_names_what_it_lacks() -> None:
    with pytest.raises(ConfigurationError, match="T_KEY"):
        await configurable(base_url="http://127.0.0.1:9").post_json({})


@pytest.mark.parametrize("variable", ["T_KEY", "T_OTHER_KEY"])
async def test_either_variable_gives_the_key_and_its_line_end_is_dropped(variable: str) -> None:
    async with Server([Answer({})]) as server:
        model = configurable()
        assert model.configure({"T_URL": f"{server.url}/", variable: "sk-1\n"}) == ()
        await model.post_json({})
        await model.aclose()
    assert server.calls[0].headers["authorization"] == "Bearer sk-1"
    assert server.calls[0].path == "/ask"


async def test_arguments_win_over_variables_and_the_key_goes_where_the_service_wants_it() -> None:
    async with Server([Answer({})]) as server:
        model = configurable(base_url=server.url, api_key="mine", auth=key_header("x-goog-api-key"))
        model.configure({"T_URL": "http://127.0.0.1:9", "T_KEY": "other"})
        await model.post_json({}, headers={"x-extra": "1"}, path="/other?version=1")
        await model.aclose()
    (call,) = server.calls
    assert call.path == "/other?version=1"
    assert (call.headers["x-goog-api-key"], call.headers["x-extra"]) == ("mine", "1")
    assert "authorization" not in call.headers


async def test_a_proxy_named_by_the_usual_variables_is_used_unless_the_host_is_excepted() -> None:
    async with Server(lambda _: Answer({})) as proxy, Server([Answer({})]) as server:
        model = configurable(api_key="k")
        model.configure({"T_URL": "http://service.invalid", "HTTP_PROXY": proxy.url})
        await model.post_json({})
        excepted = {"T_URL": server.url, "HTTP_PROXY": proxy.url, "NO_PROXY": "127.0.0.1"}
        model.configure(excepted)
        await model.post_json({})
        await model.aclose()
    assert [call.path for call in proxy.calls] == ["http://service.invalid/ask"]
    assert len(server.calls) == 1


# -- secrets ----------------------------------------------------------------------------------------------


def test_a_secret_shows_nothing_and_is_not_pickled() -> None:
    secret = Secret("sk-secret-1")
    assert f"{secret} {secret!r} {[secret]}" == "Secret(***) Secret(***) [Secret(***)]"
    assert secret.reveal() == "sk-secret-1"
    with pytest.raises(TypeError):
        pickle.dumps(secret)


KEYS = st.text(st.characters(min_codepoint=33, max_codepoint=126), min_size=8, max_size=60).map(
    "sk~{}".format
)


def everything_shown(model: HttpModel, error: BaseException) -> str:
    members = inspect.getmembers(model, lambda value: not callable(value))
    raised = "".join(traceback.format_exception(error))
    return f"{model!r} {model} {members} {error!r} {error} {raised} {vars(error)}"


@pytest.fixture(scope="module")
def echo() -> Iterator[Server]:
    """A server that sends the key back in every place it can."""

    def reply(call: Call) -> Answer:
        key = call.headers["authorization"].removeprefix("Bearer ")
        body: JSON = {"error": {"code": key, "type": key, "message": key}, "detail": key}
        return Answer(body, 401, {"x-request-id": key})

    with in_thread(reply) as server:
        yield server


@given(key=KEYS)
@settings(max_examples=60, deadline=None)
def test_a_key_never_leaks(key: str, echo: Server) -> None:
    records: list[str] = []
    handler = logging.Handler()
    handler.emit = lambda record: records.append(record.getMessage())  # type: ignore[method-assign]
    root = logging.getLogger()
    level = root.level
    root.addHandler(handler)
    root.setLevel(logging.DEBUG)
    try:
        model = model_at(echo.url, key=key)
        error = asyncio.run(failure_of(model))
        unreachable = asyncio.run(failure_of(model_at("http://127.0.0.1:1", key=key)))
    finally:
        root.removeHandler(handler)
        root.setLevel(level)
    shown = everything_shown(model, error) + everything_shown(model, unreachable) + "".join(records)
    assert key not in shown
    assert key[:8] not in shown
    assert records
    assert type(error) is AuthenticationFailed


def test_a_reply_does_not_show_its_body_or_headers() -> None:
    reply = Reply(200, {"state": "private"}, (), httpx.Headers({"x": "private"}), None, NOW)
    assert "private" not in repr(reply)
