"""One streaming call of a language model over the `openai` SDK (the extra `chat`). I/O; never retries.

Yields text as it comes, then the finished tool calls, then one `Finished`. A stream that breaks off is an
error: what it would have said is unknown.
"""

from __future__ import annotations

import importlib.util
from collections.abc import AsyncGenerator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, cast

from classifier.agent import Agent, LanguageModel, Tool, key_variable_of
from classifier.errors import ConfigurationError, InvalidAnswer, ModelError, ModelUnavailable, RequestRejected
from classifier.messages import TextDelta
from classifier.models.chat import OPENAI_URL
from classifier.models.endpoint import Endpoint, Settings, Timeouts, resolve
from classifier.models.http_errors import ErrorAnswer, error_codes, failure, retry_after
from classifier.models.trust import trusted
from classifier.models.wire import decode_json, short_text
from classifier.values import JSON

if TYPE_CHECKING:
    from openai import AsyncOpenAI

CONTENT_FILTER = "content_filter"


@dataclass(frozen=True, slots=True)
class Wanted:
    """A whole tool call, as the model wrote it."""

    id: str
    name: str
    arguments: str


@dataclass(frozen=True, slots=True)
class Finished:
    """The end of a reply: why, by which model, and what it took."""

    reason: str
    model: str | None = None
    input_tokens: int | None = None
    output_tokens: int | None = None


@dataclass(slots=True)
class _Reply:
    """What has come so far that is not text."""

    calls: dict[int, dict[str, str]] = field(default_factory=dict[int, dict[str, str]])
    reason: str | None = None
    model: str | None = None
    usage: tuple[int | None, int | None] = (None, None)

    def called(self, piece: Any) -> None:
        """A piece of a tool call; only the first one names it."""
        call = self.calls.setdefault(piece.index or 0, {"id": "", "name": "", "arguments": ""})
        call["id"] = call["id"] or piece.id or ""
        if piece.function is not None:
            call["name"] = call["name"] or piece.function.name or ""
            call["arguments"] += piece.function.arguments or ""


class ChatModels:
    """Clients of the language models of agents, opened when they are first asked.

    Args:
        environ: Where addresses and keys are.
    """

    def __init__(self, environ: Mapping[str, str]) -> None:
        self._environ = environ
        self._clients: dict[str, tuple[Settings, AsyncOpenAI]] = {}

    async def aclose(self) -> None:
        """Closes every connection."""
        clients, self._clients = self._clients, {}
        for _, client in clients.values():
            await client.close()

    async def reply(
        self, agent: Agent, messages: Sequence[Mapping[str, Any]]
    ) -> AsyncGenerator[TextDelta | Wanted | Finished]:
        """Asks once.

        Raises:
            ModelError: No usable reply; `retryable` says whether asking again can help.
            ConfigurationError: A key or the extra `chat` is missing.
        """
        settings, client = self._client(agent)
        reply = _Reply()
        chunks = await self._opened(agent, settings, client, messages)
        try:
            async for chunk in _believed(chunks, agent.model, settings):
                for text in _pieces(chunk, reply):
                    yield TextDelta(text)
        finally:
            await chunks.close()
        for part in _ended(reply, _named(agent.model)):
            yield part

    async def _opened(
        self, agent: Agent, settings: Settings, client: AsyncOpenAI, messages: Sequence[Mapping[str, Any]]
    ) -> Any:
        model = agent.model
        tools = [_declared(tool) for tool in agent.tools if isinstance(tool, Tool)]
        fields: dict[str, Any] = {"tools": tools} if tools else {}
        system = [{"role": "system", "content": agent.instructions}] if agent.instructions else []
        try:
            return await client.chat.completions.create(
                model=model.name,
                messages=cast("Any", [*system, *messages]),
                stream=True,
                stream_options={"include_usage": True},
                extra_body=dict(model.options),
                **fields,
            )
        except Exception as error:  # noqa: BLE001 - the SDK's errors hold the service's words
            problem = _problem(error, model, settings)
        raise problem

    def _client(self, agent: Agent) -> tuple[Settings, AsyncOpenAI]:
        found = self._clients.get(agent.id)
        if found is None:
            found = self._clients[agent.id] = _connected(agent.model, self._environ)
        return found


def _connected(model: LanguageModel, environ: Mapping[str, str]) -> tuple[Settings, AsyncOpenAI]:
    """A client that never retries, follows no redirect, and takes proxies from our settings only."""
    if importlib.util.find_spec("openai") is None:
        raise ConfigurationError("agents need the openai SDK; install temporal-classifier[chat]")
    import openai  # noqa: PLC0415 - the extra `chat` may not be installed

    key = key_variable_of(model)
    endpoint = Endpoint(
        path="/chat/completions",
        base_url=model.base_url,
        default_base_url=OPENAI_URL,
        base_url_variables=() if model.base_url_variable is None else (model.base_url_variable,),
        api_key_variables=() if key is None else (key,),
        key_required=key is not None,
        timeouts=Timeouts(read=model.seconds),
    )
    settings = resolve(endpoint, environ, _named(model))
    if settings.problems:
        raise ConfigurationError("; ".join(settings.problems))
    transport = openai.DefaultAsyncHttpxClient(
        follow_redirects=False, trust_env=False, proxy=settings.proxy, verify=trusted()
    )
    client = openai.AsyncOpenAI(
        base_url=settings.address,
        api_key=settings.secrets[0].reveal() if settings.secrets else "none",
        admin_api_key="",
        max_retries=0,
        timeout=openai.Timeout(**endpoint.timeouts.by_phase()),
        http_client=transport,
    )
    return settings, client


async def _believed(chunks: Any, model: LanguageModel, settings: Settings) -> AsyncGenerator[Any]:
    """The chunks; what the SDK raises in between becomes an error of ours, without the service's words."""
    problem: ModelError
    try:
        async for chunk in chunks:
            yield chunk
    except Exception as error:  # noqa: BLE001 - the SDK lets errors of its transport through
        problem = _problem(error, model, settings)
    else:
        return
    raise problem


def _pieces(chunk: Any, reply: _Reply) -> Sequence[str]:
    """The text of a chunk; everything else is noted."""
    reply.model = reply.model or short_text(getattr(chunk, "model", None))
    usage = getattr(chunk, "usage", None)
    if usage is not None:
        reply.usage = (_count(usage.prompt_tokens), _count(usage.completion_tokens))
    texts: list[str] = []
    for choice in chunk.choices or ():
        delta = choice.delta
        if delta is not None:
            texts += [text for text in (delta.content, delta.refusal) if text]
            for piece in delta.tool_calls or ():
                reply.called(piece)
        reply.reason = choice.finish_reason or reply.reason
    return texts


def _ended(reply: _Reply, service: str) -> Sequence[Wanted | Finished]:
    if reply.reason is None:
        raise InvalidAnswer(f"{service} broke off its reply", unreadable=True)
    if reply.reason == CONTENT_FILTER:
        raise RequestRejected(f"{service} ended its reply by a content filter", provider_code=CONTENT_FILTER)
    calls = [
        Wanted(call["id"] or f"call_{index}", call["name"], call["arguments"])
        for index, call in sorted(reply.calls.items())
    ]
    read, wrote = reply.usage
    return [*calls, Finished(reply.reason, reply.model, read, wrote)]


def _problem(error: Exception, model: LanguageModel, settings: Settings) -> ModelError:
    import openai  # noqa: PLC0415 - the extra `chat` may not be installed

    service = _named(model)
    if isinstance(error, openai.APIStatusError):
        codes = settings.without_secrets(error_codes(_body(error)))
        wait = retry_after(error.response.headers, datetime.now(UTC))
        return failure(ErrorAnswer(error.status_code, codes, wait), service)
    if isinstance(error, openai.APITimeoutError | TimeoutError):
        return ModelUnavailable(f"{service} did not answer in time ({type(error).__name__})")
    if isinstance(error, openai.APIConnectionError | OSError):
        return ModelUnavailable(f"{service} cannot be reached ({type(error).__name__})")
    return InvalidAnswer(f"{service} sent no readable stream ({type(error).__name__})", unreadable=True)


def _body(error: Any) -> JSON:
    try:
        return decode_json(error.response.content)
    except (ValueError, RuntimeError):  # a streamed body that was not read
        return None


def _declared(tool: Tool) -> dict[str, Any]:
    function = {"name": tool.id, "description": tool.description, "parameters": dict(tool.parameters)}
    return {"type": "function", "function": function}


def _count(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None


def _named(model: LanguageModel) -> str:
    return f"language model {model.name!r}"
