"""Runs conformance cases of the stream form through `agent.chat` in a thread: one worker for all of them."""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import AsyncGenerator, Sequence
from typing import TypeAlias

from temporalio import activity
from temporalio.client import Client
from temporalio.worker import Worker

from activities.chat import ChatActivities
from activities.chat_messages import CHAT, DESCRIBE, NOTE, AgentNote, ChatRequest, ChatResult, Outline
from classifier.app import App
from classifier.audit.memory import MemoryStore
from classifier.decision import Tripwire
from classifier.errors import ConfigurationError
from classifier.temporal.plugin import PURE_MODULES, RecordsBeforeClose, with_passthrough
from tests.agents.llm import LLM
from tests.agents.support import ENVIRON, agent, events, send
from tests.classifier.conformance import Form, Observed, Setup
from tests.classifier.plain import logged
from worker import WORKFLOW_MODULES
from workflows.agent import AgentWorkflow
from workflows.agent_messages import ThreadRequest

Came: TypeAlias = tuple[str, tuple[object, ...], Tripwire | None]


class Through:
    """A runner of conformance cases; a thread's activities are those of its case."""

    def __init__(self, client: Client, queue: str) -> None:
        self._client = client
        self._queue = queue
        self._cases: dict[str, ChatActivities] = {}

    async def __call__(self, setup: Setup, form: Form) -> Observed:
        assert form == "stream"
        name, store = f"case-{uuid.uuid4()}", MemoryStore()
        texts = [part for part in setup.stream if isinstance(part, str)]
        with logged() as written:
            async with LLM(texts) as llm:
                try:
                    helper = agent(llm, stream=[each.id for each in setup.processors], failures_allowed=1)
                    app = App(processors=setup.processors, agents=[helper]).resolve(ENVIRON)
                    self._cases[name] = ChatActivities(app, store, environ=ENVIRON)
                    outcome, passed, tripwire = await self._run(name, setup)
                    await self._cases[name].aclose()
                except ConfigurationError as error:
                    outcome, passed, tripwire = error.code, (), None
        return Observed(outcome, passed, tripwire, tuple(store.decisions.values()), written.getvalue())

    async def _run(self, name: str, setup: Setup) -> Came:
        request = ThreadRequest("helper", dict(setup.context), "", setup.ids.resource)
        thread = await self._client.start_workflow(
            AgentWorkflow.run, request, id=name, task_queue=self._queue
        )
        turn = await send(thread, "hi", "m1")
        seen = await events(self._client, thread, "m1")
        released = [event["text"] for event in seen if event["type"] == "text"]
        released = split("".join(released), [part for part in setup.stream if isinstance(part, str)])
        setup.seen.extend(("out", text) for text in released)
        if turn.outcome == "failed":
            return turn.code or "", (), None
        found = turn.tripwire
        tripwire = None if found is None else Tripwire(found["reason"], found["metadata"])
        return ("aborted" if turn.outcome == "blocked" else "allowed"), tuple(released), tripwire

    @activity.defn(name=CHAT)
    async def chat(self, request: ChatRequest) -> ChatResult:
        return await self._case().chat(request)

    @activity.defn(name=DESCRIBE)
    async def describe(self, name: str) -> Outline:
        return await self._case().describe(name)

    @activity.defn(name=NOTE)
    async def note(self, note: AgentNote) -> None:
        await self._case().note(note)

    def _case(self) -> ChatActivities:
        return self._cases[activity.info().workflow_id or ""]


def split(released: str, chunks: Sequence[str]) -> list[str]:
    """The chunks that were let through; readers get several in one event."""
    passed: list[str] = []
    for chunk in chunks:
        if chunk and released.startswith(chunk):
            passed.append(chunk)
            released = released.removeprefix(chunk)
    assert not released, "more was released than there was"
    return passed


@contextlib.asynccontextmanager
async def through_threads(client: Client) -> AsyncGenerator[Through]:
    """A runner and its worker."""
    queue = f"queue-{uuid.uuid4()}"
    runner = Through(client, queue)
    async with Worker(
        client,
        task_queue=queue,
        workflows=[AgentWorkflow],
        activities=[runner.chat, runner.describe, runner.note],
        interceptors=[RecordsBeforeClose()],
        workflow_runner=with_passthrough((*PURE_MODULES, *WORKFLOW_MODULES))(None),
    ):
        yield runner
