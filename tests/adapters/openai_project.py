"""Runs the project of `openai_workflows`: its worker, its store, and what came of a message."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncGenerator
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from agents import OpenAIProvider, set_trace_processors
from temporalio.client import Client, WorkflowFailureError
from temporalio.exceptions import ApplicationError
from temporalio.openai_agents import ModelActivityParameters, OpenAIAgentsPlugin
from temporalio.worker import Worker

from classifier.adapters.tripwires import TripwirePlugin
from classifier.audit.memory import MemoryStore
from classifier.temporal.plugin import ClassifierPlugin
from tests.adapters.guards import app, failure_of
from tests.adapters.openai_workflows import Asked, Support, SupportByUpdate, look_up
from tests.agents.llm import KEY, LLM

set_trace_processors([])  # which would send traces to OpenAI where the tester has a key


@dataclass
class Project:
    """The project at work.

    Attributes:
        client: Talks to it.
        queue: Its task queue.
        store: What it decided.
    """

    client: Client
    queue: str
    store: MemoryStore

    async def ask(self, asked: Asked) -> str | ApplicationError:
        """The answer, or what the run failed with."""
        try:
            return await self.client.execute_workflow(
                Support.run, asked, id=self.queue, task_queue=self.queue
            )
        except WorkflowFailureError as error:
            return failure_of(error)


def agents_plugin(llm: LLM) -> OpenAIAgentsPlugin:
    """The plugin of the framework, with its models at the server."""
    return OpenAIAgentsPlugin(
        model_params=ModelActivityParameters(start_to_close_timeout=timedelta(seconds=30)),
        model_provider=provider(llm),
    )


def provider(llm: LLM) -> OpenAIProvider:
    """Its models at the server."""
    return OpenAIProvider(api_key=KEY, base_url=llm.url, use_responses=False)


@contextlib.asynccontextmanager
async def working(address: str, queue: str, llm: LLM) -> AsyncGenerator[Project]:
    """A worker with the three plugins, and nothing else that it would not have anyway."""
    client = await Client.connect(address, plugins=[agents_plugin(llm)])
    store = MemoryStore()
    plugins: list[Any] = [ClassifierPlugin(app().resolve({}), store), TripwirePlugin()]
    async with Worker(
        client,
        task_queue=queue,
        workflows=[Support, SupportByUpdate],
        activities=[look_up],
        plugins=plugins,
    ):
        yield Project(client, queue, store)
