"""Local HTTP servers for tests: they check their caller, keep every request, and misbehave on demand.

    async with Server([Answer({"ok": True}), Hang()]) as server:
        ... model at server.url ...
        server.calls[0].json, server.calls[0].headers["authorization"], server.most_at_once

A script is a list of replies, one per request, or a function of the request. A request that the script has no
reply for, or that is not well-formed HTTP with a JSON body, fails the test when the server is left.
`in_thread` runs a server on an event loop of its own.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import threading
from collections.abc import Awaitable, Callable, Generator, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any, Self, TypeAlias

PAUSE = 0.05
"""Seconds between two drops."""


@dataclass(frozen=True, slots=True)
class Call:
    """One request as the server saw it; header names are in lower case."""

    method: str
    path: str
    headers: Mapping[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


@dataclass(frozen=True, slots=True)
class Answer:
    """An ordinary answer; `body` is sent as JSON, bytes as they are."""

    body: Any = None
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict[str, str])

    def encoded(self) -> bytes:
        content = self.body if isinstance(self.body, bytes) else json.dumps(self.body).encode()
        headers = {
            "content-type": "application/json",
            "content-length": str(len(content)),
            **self.headers,
        }
        reason = HTTPStatus(self.status).phrase if self.status in set(HTTPStatus) else "Unknown"
        lines = [f"HTTP/1.1 {self.status} {reason}", *(f"{name}: {text}" for name, text in headers.items())]
        return "\r\n".join(lines).encode("latin-1") + b"\r\n\r\n" + content


@dataclass(frozen=True, slots=True)
class Raw:
    """Bytes as they are, then the connection is closed: half a body, no HTTP at all, nothing."""

    data: bytes = b""


@dataclass(frozen=True, slots=True)
class Hang:
    """No answer, or only `data`, until the caller leaves."""

    data: bytes = b""


@dataclass(frozen=True, slots=True)
class Drip:
    """`data`, and then `drop` again and again, until the caller leaves."""

    data: bytes
    drop: bytes


Reply: TypeAlias = Answer | Raw | Hang | Drip
Script: TypeAlias = "Iterable[Reply] | Callable[[Call], Reply | Awaitable[Reply]]"


def half_of(answer: Answer) -> Raw:
    """An answer that breaks off in the middle of its body."""
    data = answer.encoded()
    head, _, body = data.partition(b"\r\n\r\n")
    return Raw(head + b"\r\n\r\n" + body[: len(body) // 2])


class Server:
    """An HTTP/1.1 server on a free port of this machine."""

    def __init__(self, script: Script) -> None:
        self._reply = script if callable(script) else _one_after_another(script)
        self._connections: set[asyncio.Task[None]] = set()
        self.calls: list[Call] = []
        self.faults: list[str] = []
        self.connections = 0
        self.at_once = 0
        self.most_at_once = 0
        self.asked = asyncio.Event()
        self.left = asyncio.Event()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        return self

    async def __aexit__(self, kind: object, *rest: object) -> None:
        self._server.close()
        for connection in self._connections:
            connection.cancel()
        await asyncio.gather(*self._connections, return_exceptions=True)
        await self._server.wait_closed()
        assert kind is not None or not self.faults, self.faults

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._connections.add(task)
        self.connections += 1
        try:
            while await self._exchange(reader, writer):
                pass
        except (ConnectionError, asyncio.IncompleteReadError):
            self.left.set()
        except asyncio.CancelledError:  # the server is being left; asyncio would log it as an error
            pass
        finally:
            self._connections.discard(task)
            writer.close()
            with contextlib.suppress(ConnectionError):
                await writer.wait_closed()

    async def _exchange(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        call = await _read_call(reader)
        self.calls.append(call)
        self.faults += _faults(call)
        self.at_once += 1
        self.most_at_once = max(self.most_at_once, self.at_once)
        self.asked.set()
        try:
            return await self._answer(call, reader, writer)
        finally:
            self.at_once -= 1

    async def _answer(self, call: Call, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        try:
            reply = self._reply(call)
            reply = reply if isinstance(reply, Answer | Raw | Hang | Drip) else await reply
        except AssertionError as error:
            self.faults.append(str(error))
            reply = Answer({"fault": "see the server"}, status=500)
        writer.write(reply.encoded() if isinstance(reply, Answer) else reply.data)
        await writer.drain()
        while isinstance(reply, Drip):  # until writing says that nobody reads any more
            writer.write(reply.drop)
            await writer.drain()
            await asyncio.sleep(PAUSE)
        if isinstance(reply, Hang):
            await reader.read(1)
            self.left.set()
        return isinstance(reply, Answer)


async def _read_call(reader: asyncio.StreamReader) -> Call:
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
    first, *lines = head.rstrip("\r\n").split("\r\n")
    method, path, _ = first.split(" ")
    headers = {name.lower(): text.strip() for name, _, text in (line.partition(":") for line in lines)}
    body = await reader.readexactly(int(headers.get("content-length", "0")))
    return Call(method, path, headers, body)


def _faults(call: Call) -> Iterator[str]:
    if call.method != "POST":
        return
    if call.headers.get("content-type") != "application/json":
        yield "a body without its content type"
    if "cookie" in call.headers:
        yield "a cookie, which no decision model needs"
    try:
        json.loads(call.body.decode("ascii"), parse_constant=_refuse)
    except ValueError as error:
        yield f"a body that is not ASCII JSON ({error})"


def _refuse(token: str) -> None:
    raise ValueError(token)


def _one_after_another(script: Iterable[Reply]) -> Callable[[Call], Reply]:
    replies = iter(script)

    def reply(call: Call) -> Reply:
        following = next(replies, None)
        assert following is not None, f"the script has no reply for {call.method} {call.path}"
        return following

    return reply


@contextlib.contextmanager
def in_thread(script: Script) -> Generator[Server]:
    """A server on an event loop of its own, for callers that have several or none."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    server = Server(script)
    try:
        asyncio.run_coroutine_threadsafe(server.__aenter__(), loop).result()
        yield server
        asyncio.run_coroutine_threadsafe(server.__aexit__(None), loop).result()
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()
