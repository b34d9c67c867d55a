"""A workflow of a project with Pydantic AI, as its authors would write it."""

from __future__ import annotations

from temporalio import workflow

with workflow.unsafe.imports_passed_through():
    from pydantic_ai.durable_exec.temporal import PydanticAIWorkflow
    from pydantic_ai.messages import ModelMessage

    from tests.adapters.pydantic_agents import AGENTS, Desk


@workflow.defn
class Support(PydanticAIWorkflow):
    """Answers one message."""

    __pydantic_ai_agents__ = tuple(AGENTS.values())

    @workflow.run
    async def run(self, agent: str, message: str, desk: Desk, history: list[ModelMessage]) -> str:
        """The answer."""
        result = await AGENTS[agent].run(message, deps=desk, message_history=history)
        return str(result.output)
