"""An agent under test: its app, its worker, and short ways to talk to it."""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import AsyncGenerator, Mapping
from typing import Any

from temporalio.client import Client, WithStartWorkflowOperation, WorkflowHandle
from temporalio.common import WorkflowIDConflictPolicy
from temporalio.worker import Worker

from activities.chat import ChatActivities
from activities.chat_tools import tool_activities
from classifier.agent import Agent, LanguageModel
from classifier.answers import Answer, BooleanAnswer
from classifier.app import App
from classifier.audit.memory import MemoryStore
from classifier.classifier import Classifier
from classifier.errors import ModelUnavailable
from classifier.models.protocol import DecisionModel, DecisionRequest
from classifier.models.scripted import ScriptedModel
from classifier.processor import ClassifierProcessor
from classifier.temporal.plugin import ClassifierPlugin, with_passthrough
from tests.agents.llm import KEY, LLM
from tests.classifier.conformance import SafetyQuestions, abort_unsafe
from worker import WORKFLOW_MODULES
from workflows.agent import AgentWorkflow
from workflows.agent_messages import AGENT, SEND, Send, ThreadRequest, Turn
from workflows.readers import Readers

Processor = ClassifierProcessor[Any]
Handle = WorkflowHandle[AgentWorkflow, None]
ENVIRON = {"TEST_KEY": KEY}


def finding(*terms: str, latency: float = 0.0) -> ScriptedModel:
    """A model that finds any of the terms; "down" makes it fail."""

    def reply(request: DecisionRequest) -> Mapping[str, Answer] | Exception:
        text = str(request.state)
        if "down" in text:
            return ModelUnavailable("scripted")
        found = any(term in text for term in terms)
        return dict.fromkeys(request.questions, BooleanAnswer(0.99 if found else 0.01))

    return ScriptedModel(reply, latency=latency)


def guarding(
    name: str, *terms: str, model: DecisionModel | None = None, policy: Any = abort_unsafe, **options: Any
) -> Processor:
    """A processor of its own classifier that acts on terms."""
    classifier = Classifier(name, model or finding(*terms), SafetyQuestions)
    return ClassifierProcessor(classifier=classifier, on_result=policy, id=name, **options)


def agent(llm: LLM | str, **options: Any) -> Agent:
    """The agent `helper`."""
    url = llm if isinstance(llm, str) else llm.url
    model = LanguageModel("tested", base_url=url, key_variable="TEST_KEY")
    return Agent("helper", model=model, instructions="You help.", **options)


@contextlib.asynccontextmanager
async def working(
    client: Client, queue: str, agents: Agent, *processors: Processor, store: Any = None, **options: Any
) -> AsyncGenerator[Any]:
    """A worker for one agent; gives its store."""
    store = MemoryStore() if store is None else store
    async with worker_of(client, queue, App(processors=processors, agents=[agents]), store, **options):
        yield store


@contextlib.asynccontextmanager
async def worker_of(
    client: Client,
    queue: str,
    app: App,
    store: Any,
    *,
    environ: Mapping[str, str] = ENVIRON,
    **options: Any,
) -> AsyncGenerator[None]:
    """A worker as `worker.py` makes it, over any store."""
    resolved = app.resolve(environ)
    chat = ChatActivities(resolved, store, environ=environ)
    async with (
        contextlib.aclosing(chat),
        Worker(
            client,
            task_queue=queue,
            workflows=[AgentWorkflow],
            activities=[chat.chat, chat.describe, chat.note, *tool_activities(resolved)],
            plugins=[ClassifierPlugin(resolved, store)],
            workflow_runner=with_passthrough(WORKFLOW_MODULES)(None),
            **options,
        ),
    ):
        yield


async def start(client: Client, queue: str, **request: Any) -> Handle:
    """A thread of its own."""
    return await client.start_workflow(
        AgentWorkflow.run,
        ThreadRequest(agent="helper", **request),
        id=f"thread-{uuid.uuid4()}",
        task_queue=queue,
    )


async def send(handle: Handle, text: str, message: str | None = None) -> Turn:
    """A message and its turn."""
    name = message or f"m-{uuid.uuid4()}"
    turn: Turn = await update(handle, SEND, Send(name, text), Turn, name)
    return turn


async def update(
    handle: WorkflowHandle[Any, Any], name: str, given: Any, result: Any = None, key: str | None = None
) -> Any:
    """Any update; an overload of the SDK's method is untyped."""
    thread: Any = handle
    return await thread.execute_update(name, given, id=key, result_type=result)


async def begin(client: Client, queue: str, thread: str, text: str, message: str) -> Turn:
    """Update-with-start: the thread is made where there is none."""
    operation: WithStartWorkflowOperation[Any, Any] = WithStartWorkflowOperation(
        AGENT,
        ThreadRequest(agent="helper"),
        id=thread,
        task_queue=queue,
        id_conflict_policy=WorkflowIDConflictPolicy.USE_EXISTING,
    )
    turn: Turn = await client.execute_update_with_start_workflow(  # pyright: ignore[reportUnknownMemberType] - an overload of the SDK is untyped
        SEND, Send(message, text), start_workflow_operation=operation, id=message, result_type=Turn
    )
    return turn


async def events(client: Client, thread: Handle, turn: str) -> list[dict[str, Any]]:
    """The events of a turn, to its end."""
    readers = Readers(client)
    found: list[dict[str, Any]] = []
    async for seen in readers.events(thread.id):
        if seen.event["turn"] == turn:
            found.append(seen.event)
        if seen.event["type"] == "ended" and seen.event["turn"] == turn:
            break
    await readers.aclose()
    return found


def shown(seen: list[dict[str, Any]]) -> str:
    """What a reader has on the screen at the end."""
    text: dict[int, str] = {}
    for event in seen:
        match event["type"]:
            case "text":
                text[event["step"]] = text.get(event["step"], "") + event["text"]
            case "restart" if event["step"] < 0:
                text.clear()
            case "restart":
                text.pop(event["step"], None)
            case "ended" if event["event"] == "retracted":
                text.clear()
            case _:
                pass
    return "".join(text.values())
