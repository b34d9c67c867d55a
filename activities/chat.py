"""The agents' activities: `agent.chat`, `agent.describe`, `agent.note`.

`agent.chat` owns the model's stream, the processors over it and the publishing; readers only read. A retried
attempt generates other text, so its decisions are others, and a restart marker goes first. An abort that an
earlier attempt recorded is final. The thread's own signals and updates are in `workflows.agent`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from dataclasses import asdict, dataclass, field

from temporalio import activity
from temporalio.exceptions import ApplicationError
from temporalio.service import RPCError

from activities.chat_guard import Before, ChatGuard, guard_of
from activities.chat_messages import (
    CHAT,
    DESCRIBE,
    NOTE,
    AgentNote,
    ChatRequest,
    ChatResult,
    Outline,
    ToolCall,
    publisher_of,
    restart_event,
    text_event,
)
from activities.chat_model import ChatModels, Finished, Wanted
from activities.chat_publish import Publisher
from activities.happened import happened, keep
from classifier.agent import Agent, arguments_of
from classifier.app import ResolvedApp
from classifier.audit.store import AuditStore
from classifier.context import checked_context
from classifier.decision import Decision
from classifier.errors import ClassifierError, InvalidAnswer, ModelError, ModelUnavailable
from classifier.messages import TextDelta
from classifier.stream import STREAM_FAILED, End
from classifier.temporal.failures import as_application_error
from classifier.values import JSON

log = logging.getLogger(__name__)

MAX_REPLY_CHARACTERS = 150_000
"""Of one model call; as JSON a character may take six bytes, and a payload has two million."""

_BEAT = 0.4
_LAST_WORDS = 3.0
"""Seconds that a stopped call may take to publish what it has released."""


@dataclass
class _Work:
    """What one attempt has come to so far."""

    text: list[str] = field(default_factory=list[str])
    wanted: list[Wanted] = field(default_factory=list[Wanted])
    finished: Finished | None = None
    end: End | None = None
    deltas: int = 0
    failures: int = 0
    characters: int = 0

    def add(self, text: str) -> None:
        """Text that was released.

        Raises:
            InvalidAnswer: The reply is longer than a thread can keep.
        """
        self.text.append(text)
        self.characters += len(text)
        if self.characters > MAX_REPLY_CHARACTERS:
            raise InvalidAnswer(f"the reply is longer than {MAX_REPLY_CHARACTERS:,} characters")

    def beat(self) -> None:
        """Tells the server, and a next attempt."""
        activity.heartbeat(self.deltas, self.failures)


class ChatActivities:
    """Runs the model calls of agents, and says what they are.

    Args:
        app: Where agents and processors are.
        store: Where decisions and stops are kept.
        environ: Where addresses and keys of language models are.
    """

    def __init__(self, app: ResolvedApp, store: AuditStore, *, environ: Mapping[str, str]) -> None:
        self._app = app
        self._store = store
        self._models = ChatModels(environ)

    async def aclose(self) -> None:
        """Closes the connections to language models."""
        await self._models.aclose()

    @activity.defn(name=DESCRIBE)
    async def describe(self, agent: str) -> Outline:
        """What a thread has to know of its agent."""
        try:
            found = self._app.agents[agent]
        except ClassifierError as error:
            raise as_application_error(error) from None
        return Outline(
            input=list(found.input),
            output=list(found.output),
            max_turns=found.max_turns,
            max_retries=found.max_retries,
            feedback=found.feedback,
            memory=found.memory,
            audit=found.audit,
            failures_allowed=found.failures_allowed,
            seconds=found.seconds,
        )

    @activity.defn(name=CHAT)
    async def chat(self, request: ChatRequest) -> ChatResult:
        """Streams one reply under the agent's stream processors."""
        work = _earlier()
        try:
            return await self._chat(request, work)
        except ClassifierError as error:
            raise self._for_temporal(error, work, request.agent) from None
        except (ApplicationError, RPCError, TimeoutError):
            raise
        except Exception as error:  # noqa: BLE001 - counted like any other failed call
            log.error("a model call raised %s", type(error).__name__)  # noqa: TRY400 - its text may hold content
            raise self._for_temporal(_unexpected(error), work, request.agent) from None

    @activity.defn(name=NOTE)
    async def note(self, note: AgentNote) -> None:
        """Keeps who stopped, approved or denied what."""
        given = {"turn": note.turn, "call": note.call, "approved": note.approved, "reason": note.reason}
        facts: dict[str, JSON] = {name: value for name, value in given.items() if value is not None}
        await keep(self._store, happened(note.kind, facts, tenant=note.tenant, at=note.at, actor=note.by))

    def _for_temporal(self, error: ClassifierError, work: _Work, name: str) -> Exception:
        """The error, no longer to be retried where the budget for failed calls is spent."""
        if not error.retryable:
            return as_application_error(error)
        if isinstance(error, ModelError):
            work.failures += 1
            if work.failures >= self._app.agents[name].failures_allowed:
                return ApplicationError(str(error), type=error.code, non_retryable=True)
        work.beat()
        return as_application_error(error)

    async def _chat(self, request: ChatRequest, work: _Work) -> ChatResult:
        info = activity.info()
        agent = self._app.agents[request.agent]
        checked_context(request.context)
        processors = [self._app.processors[name] for name in agent.stream]
        guard = guard_of(agent, processors, request, self._store)
        aborted = await guard.earlier_abort(work.deltas)
        if aborted is not None:
            return _aborted_before(aborted)
        thread = activity.client().get_workflow_handle(info.workflow_id or "")
        publisher = Publisher(
            thread,
            activity.payload_converter(),
            publisher_of(info.workflow_run_id or "", info.activity_id, info.attempt),
            guard.travelling,
        )
        async with publisher, _Beating(work):
            if info.attempt > 1:
                publisher.add(restart_event(request.turn, request.step))
            try:
                await self._stream(agent, request, guard, publisher, work)
            except asyncio.CancelledError:
                if not _is_stopped():
                    raise
                async with asyncio.timeout(_LAST_WORDS):
                    await publisher.flush()
                return ChatResult("stopped", "".join(work.text), pending=guard.travelling())
            await publisher.flush()
        return _result(agent, guard, work)

    async def _stream(
        self, agent: Agent, request: ChatRequest, guard: ChatGuard, publisher: Publisher, work: _Work
    ) -> None:
        async with guard.over(self._counted(agent, request, work)) as parts:
            async for part in parts:
                match part:
                    case Before():
                        pass
                    case TextDelta(text):
                        work.add(text)
                        publisher.add(text_event(request.turn, request.step, text))
                    case Wanted():
                        work.wanted.append(part)
                    case Finished():
                        work.finished = part
                    case End():
                        work.end = part
                    case _:
                        pass
        if work.end is not None and work.end.outcome == "failed":
            raise _failure(work.end)

    async def _counted(self, agent: Agent, request: ChatRequest, work: _Work) -> AsyncGenerator[object]:
        before = request.before[-tail:] if (tail := guard_tail(agent, self._app)) else ""
        if before:
            yield Before(before)
        async with aclosing(self._models.reply(agent, request.messages)) as parts:
            async for part in parts:
                work.deltas += 1
                yield part


def guard_tail(agent: Agent, app: ResolvedApp) -> int:
    """How much earlier text the stream processors see again, so that a term around a tool call is whole."""
    return max((app.processors[name].hold_back for name in agent.stream), default=0)


def _result(agent: Agent, guard: ChatGuard, work: _Work) -> ChatResult:
    end, finished = work.end, work.finished
    assert end is not None
    tripwire = None if end.tripwire is None else asdict(end.tripwire)
    last = end.judgements[-1] if end.judgements else None
    aborted = end.outcome == "aborted"
    return ChatResult(
        "aborted" if aborted else "finished",
        "".join(work.text),
        calls=[] if aborted else [_call(agent, wanted) for wanted in work.wanted],
        finish=None if finished is None else finished.reason,
        model=None if finished is None else finished.model,
        tripwire=tripwire,
        processor=last.processor_id if aborted and last is not None else None,
        failed=aborted and last is not None and last.failure is not None,
        decision_ids=[str(judgement.decision_id) for judgement in end.judgements],
        pending=guard.travelling(),
        input_tokens=None if finished is None else finished.input_tokens,
        output_tokens=None if finished is None else finished.output_tokens,
    )


def _call(agent: Agent, wanted: Wanted) -> ToolCall:
    tool = agent.tool(wanted.name)
    if tool is None:
        return ToolCall(wanted.id, wanted.name, "{}", problem="there is no such tool")
    arguments = arguments_of(wanted.arguments, tool)
    is_ours = not isinstance(tool.activity, str)
    return ToolCall(
        id=wanted.id,
        name=wanted.name,
        text=wanted.arguments,
        values=arguments.values,
        problem=arguments.problem,
        activity=tool.activity_name,
        needs_approval=tool.needs_approval,
        arguments=list(tool.arguments),
        results=list(tool.results),
        seconds=tool.seconds,
        attempts=tool.attempts,
        heartbeat=tool.heartbeat or (5.0 if is_ours else None),
        task_queue=tool.task_queue,
    )


def _aborted_before(decision: Decision) -> ChatResult:
    """An earlier attempt recorded this abort and died; it stays."""
    return ChatResult(
        "aborted",
        tripwire=None if decision.tripwire is None else asdict(decision.tripwire),
        processor=decision.processor_id,
        failed=decision.failure is not None,
        decision_ids=[str(decision.decision_id)],
    )


def _earlier() -> _Work:
    """Where the last attempt left off."""
    details = activity.info().heartbeat_details
    deltas, failures = (details[0], details[1]) if len(details) > 1 else (0, 0)
    return _Work(deltas=deltas, failures=failures)


class _Beating:
    """Beats until the block ends, so that a stop reaches the call."""

    def __init__(self, work: _Work) -> None:
        self._work = work

    async def __aenter__(self) -> None:
        self._beats = asyncio.create_task(self._beat())

    async def __aexit__(self, *raised: object) -> None:
        self._beats.cancel()
        await asyncio.wait({self._beats})

    async def _beat(self) -> None:
        while True:
            self._work.beat()
            await asyncio.sleep(_BEAT)


def _failure(end: End) -> ClassifierError:
    error = end.error
    if isinstance(error, ClassifierError):
        return error
    failed = ClassifierError(f"the stream failed ({type(error).__name__})")
    failed.code = STREAM_FAILED
    return failed


def _unexpected(error: Exception) -> ModelError:
    return ModelUnavailable(f"the model call raised {type(error).__name__}")


def _is_stopped() -> bool:
    details = activity.cancellation_details()
    return details is not None and details.cancel_requested
