"""An agent of Pydantic AI in a Temporal workflow, guarded by our processors.

    temporal server start-dev
    OPENAI_API_KEY=... python -m examples.pydantic_ai_support "Is my card 1002 blocked?"

Prints each answer, then every decision that was recorded. The guards ask the embedded local model. Needs
temporal-classifier[pydantic-ai,chat,local]; OPENAI_BASE_URL takes the agent to any server that speaks chat
completions.
"""

from __future__ import annotations

import asyncio
import os
import sys
import uuid

from temporalio import workflow
from temporalio.client import Client, WorkflowFailureError
from temporalio.worker import Worker

with workflow.unsafe.imports_passed_through():
    from pydantic_ai.durable_exec.temporal import PydanticAIPlugin, PydanticAIWorkflow

    from classifier import ClassifierPlugin, MemoryStore
    from classifier.temporal.workflow import TripwireError, tripwire_of
    from examples.agent_guards import app
    from examples.pydantic_ai_agent import support

QUEUE = "pydantic-ai-support"


@workflow.defn
class Support(PydanticAIWorkflow):
    """Answers one message of a customer."""

    __pydantic_ai_agents__ = (support,)

    @workflow.run
    async def run(self, message: str) -> str:
        """The answer; a reply that may not stand fails the run."""
        about = {"thread_id": workflow.info().workflow_id}
        try:
            result = await support.run(message, deps=about)
        except TripwireError as error:
            if error.processor_id != "topic":
                raise
            return str(error.tripwire.metadata["say"])
        return result.output


async def main(messages: list[str]) -> None:
    """A worker of its own, and one run for each message."""
    address = os.environ.get("TEMPORAL_ADDRESS", "localhost:7233")
    client = await Client.connect(address, plugins=[PydanticAIPlugin()])
    store = MemoryStore()  # a PostgresStore in earnest
    async with Worker(
        client,
        task_queue=QUEUE,
        workflows=[Support],
        plugins=[ClassifierPlugin(app.resolve(os.environ), store)],
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
