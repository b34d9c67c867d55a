"""A language model behind an OpenAI-compatible endpoint that checks its caller and streams what a test says.

    async with LLM(["Hello", " you"], calls("refund", {"order": 1})) as llm:
        ... an agent whose model is at llm.url ...
        llm.requests[0]["messages"]

A reply is a list of what to send: text as deltas, `Wants` as a tool call, `Pause` for an event or a time,
`Broken` to break off, `Status` for an error. A function of the request may give it instead. With
`streamed=False` it serves callers that ask for whole replies.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Self, TypeAlias

ROLES = {"system", "user", "assistant", "tool"}
KEY = "sk-test-agents"
USAGE = {"prompt_tokens": 11, "completion_tokens": 7, "total_tokens": 18}


@dataclass(frozen=True)
class Wants:
    """A tool call, its arguments sent in two pieces."""

    name: str
    arguments: Any
    id: str = "call_1"


@dataclass(frozen=True)
class Pause:
    """Waits for an event, or for seconds."""

    until: asyncio.Event | float


@dataclass(frozen=True)
class Broken:
    """Closes the connection in the middle of the stream."""


@dataclass(frozen=True)
class Status:
    """An error instead of a stream."""

    code: int
    headers: dict[str, str] = field(default_factory=dict[str, str])
    body: Any = None


@dataclass(frozen=True)
class Finish:
    """Another reason to end than the usual one."""

    reason: str


Part: TypeAlias = str | Wants | Pause | Broken | Status | Finish
Reply: TypeAlias = Sequence[Part]
Script: TypeAlias = Callable[[dict[str, Any]], "Reply | Awaitable[Reply]"]


class LLM:
    """The server.

    Attributes:
        requests: Every request's body.
        faults: What callers did wrong.
        left: Set when a caller closed the connection in the middle of a reply.
        at: Set when the caller has been sent all parts before a `Pause`.
    """

    def __init__(self, *replies: Sequence[Any], script: Script | None = None, streamed: bool = True) -> None:
        self._script = script or _in_turn(replies)
        self._streamed = streamed
        self.requests: list[dict[str, Any]] = []
        self.faults: list[str] = []
        self.left = asyncio.Event()
        self.at = asyncio.Event()
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}/v1"

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        return self

    async def __aexit__(self, kind: object, *rest: object) -> None:
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._server.wait_closed()
        assert kind is not None or not self.faults, self.faults

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            while await self._exchange(reader, writer):
                pass
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        except asyncio.CancelledError:  # the server is being left; asyncio would log it as an error
            pass
        finally:
            self._tasks.discard(task)
            writer.close()
            with contextlib.suppress(ConnectionError):
                await writer.wait_closed()

    async def _exchange(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
        first, *lines = head.rstrip("\r\n").split("\r\n")
        headers = {name.lower(): text.strip() for name, _, text in (line.partition(":") for line in lines)}
        body = json.loads(await reader.readexactly(int(headers["content-length"])))
        self.requests.append(body)
        self.faults += _faults(first, headers, body, streamed=self._streamed)
        replied = self._script(body)
        parts = replied if isinstance(replied, Sequence) else await replied
        if parts and isinstance(parts[0], Status):
            await _fail(writer, parts[0])
            return True
        if not self._streamed:
            # Clients of frameworks outlive a test; their connections need not.
            await _answer(writer, 200, {"connection": "close"}, json.dumps(_whole(parts)).encode())
            return False
        return await self._stream(parts, reader, writer)

    async def _stream(self, parts: Reply, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        writer.write(
            b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
        )
        gone = asyncio.create_task(reader.read(1))
        sending = asyncio.create_task(self._send(parts, writer))
        try:
            await asyncio.wait({gone, sending}, return_when=asyncio.FIRST_COMPLETED)
            if not sending.done():
                self.left.set()
                return False
            whole = await sending
            if whole:
                return False
            return False
        finally:
            for task in (gone, sending):
                task.cancel()
            await asyncio.gather(gone, sending, return_exceptions=True)

    async def _send(self, parts: Reply, writer: asyncio.StreamWriter) -> bool:
        async for event in self._events(parts):
            data = b"data: " + event.encode() + b"\n\n"
            writer.write(f"{len(data):x}\r\n".encode() + data + b"\r\n")
            await writer.drain()
        if any(isinstance(part, Broken) for part in parts):
            return False
        writer.write(b"0\r\n\r\n")
        await writer.drain()
        return True

    async def _events(self, parts: Reply) -> AsyncGenerator[str]:
        reason, index = "stop", 0
        for part in parts:
            match part:
                case str():
                    yield _chunk({"content": part})
                case Wants(name, arguments, call_id):
                    reason = "tool_calls"
                    async for each in _wanted(name, arguments, call_id, index):
                        yield each
                    index += 1
                case Pause(until):
                    self.at.set()
                    await (until.wait() if isinstance(until, asyncio.Event) else asyncio.sleep(until))
                case Broken():
                    return
                case Finish(other):
                    reason = other
                case Status():
                    raise AssertionError("an error comes first")
        yield _chunk({}, finish=reason)
        yield json.dumps({**_head(), "choices": [], "usage": USAGE})
        yield "[DONE]"


async def _wanted(name: str, arguments: Any, call_id: str, index: int) -> AsyncIterator[str]:
    text = arguments if isinstance(arguments, str) else json.dumps(arguments)
    first = {"index": index, "id": call_id, "type": "function", "function": {"name": name, "arguments": ""}}
    yield _chunk({"tool_calls": [first]})
    for piece in (text[: len(text) // 2], text[len(text) // 2 :]):
        yield _chunk({"tool_calls": [{"index": index, "function": {"arguments": piece}}]})


async def _fail(writer: asyncio.StreamWriter, status: Status) -> None:
    content = json.dumps(status.body or {"error": {"message": "secret words", "code": "nothing"}}).encode()
    await _answer(writer, status.code, status.headers, content)


async def _answer(writer: asyncio.StreamWriter, code: int, extra: dict[str, str], content: bytes) -> None:
    headers = {"content-type": "application/json", "content-length": str(len(content)), **extra}
    head = "\r\n".join(f"{name}: {value}" for name, value in headers.items())
    writer.write(f"HTTP/1.1 {code} Status\r\n{head}\r\n\r\n".encode() + content)
    await writer.drain()


def _whole(parts: Reply) -> dict[str, Any]:
    """A reply in one piece."""
    wants = [part for part in parts if isinstance(part, Wants)]
    text = "".join(part for part in parts if isinstance(part, str))
    calls = [
        {
            "id": want.id,
            "type": "function",
            "function": {"name": want.name, "arguments": json.dumps(want.arguments)},
        }
        for want in wants
    ]
    message = {"role": "assistant", "content": text or None, **({"tool_calls": calls} if calls else {})}
    reason = "tool_calls" if calls else "stop"
    return {
        **_head(),
        "object": "chat.completion",
        "choices": [{"index": 0, "message": message, "finish_reason": reason}],
        "usage": USAGE,
    }


def _head() -> dict[str, Any]:
    return {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": "tested-1"}


def _chunk(delta: dict[str, Any], finish: str | None = None) -> str:
    return json.dumps({**_head(), "choices": [{"index": 0, "delta": delta, "finish_reason": finish}]})


def _in_turn(replies: Iterable[Sequence[Any]]) -> Script:
    following = iter(replies)

    def reply(request: dict[str, Any]) -> Reply:
        return next(following, [Status(400)])

    return reply


def _faults(first: str, headers: dict[str, str], body: dict[str, Any], *, streamed: bool) -> list[str]:
    """What a strict service would not accept."""
    faults = [] if first == "POST /v1/chat/completions HTTP/1.1" else [f"an unknown request: {first}"]
    if headers.get("authorization") != f"Bearer {KEY}":
        faults.append("another key than the given one")
    if not streamed and body.get("stream"):
        faults.append("asked to stream")
    if streamed and (body.get("stream") is not True or body.get("stream_options") != {"include_usage": True}):
        faults.append("not asked to stream with usage")
    waiting: list[str] = []
    for message in body["messages"]:
        faults += _message_faults(message, waiting)
    if waiting:
        faults.append(f"tool calls without a result: {waiting}")
    names = [tool["function"]["name"] for tool in body.get("tools", [])]
    if len(names) != len(set(names)):
        faults.append("a tool twice")
    return faults


def _message_faults(message: dict[str, Any], waiting: list[str]) -> list[str]:
    faults: list[str] = []
    role, content, calls = message["role"], message.get("content"), message.get("tool_calls")
    if role not in ROLES:
        faults.append(f"an unknown role {role}")
    parts = role == "user" and isinstance(content, list)
    if not isinstance(content, str) and not parts and not (role == "assistant" and calls):
        faults.append(f"a message of {role} without content")
    if role == "tool":
        if message.get("tool_call_id") not in waiting:
            return [*faults, "a tool result that nobody asked for"]
        waiting.remove(message["tool_call_id"])
    elif waiting:
        faults.append("a message between a tool call and its result")
    for call in calls or ():
        waiting.append(call["id"])
        json.loads(call["function"]["arguments"])
    return faults
