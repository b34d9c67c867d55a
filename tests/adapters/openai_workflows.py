"""A project with an agent of the OpenAI Agents SDK, as its authors would write it."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from agents import Agent, FunctionTool, InputGuardrailTripwireTriggered, Runner
from temporalio import activity, workflow
from temporalio.common import RetryPolicy
from temporalio.openai_agents import workflow as framework

from classifier.adapters.openai_agents import (
    input_guardrail,
    output_guardrail,
    stop_in,
    tool_input_guardrail,
    tool_output_guardrail,
)
from classifier.values import JSON


@activity.defn
async def look_up(card: str) -> str:
    """The state of a card."""
    return f"card {card} is blocked"


@dataclass(frozen=True)
class Asked:
    """What a customer says, and which processors guard the answer."""

    message: Any
    input: list[str] = field(default_factory=list[str])
    output: list[str] = field(default_factory=list[str])
    arguments: list[str] = field(default_factory=list[str])
    results: list[str] = field(default_factory=list[str])
    stop_on_tool: bool = False
    catches: bool = False


def about(thread: str) -> dict[str, JSON]:
    """The request context of what the agent runs with."""
    return {"thread_id": thread, "tenant_id": "acme"}


@workflow.defn
class Support:
    """Answers one message."""

    @workflow.run
    async def run(self, asked: Asked) -> str:
        """The answer."""
        try:
            result = await Runner.run(agent_of(asked), asked.message, context="t-7")
        except InputGuardrailTripwireTriggered as error:
            stop = stop_in(error)
            if stop is None or not asked.catches:
                raise
            return f"{stop.outcome} by {stop.processor_id}"
        return str(result.final_output)


@workflow.defn
class SupportByUpdate:
    """Answers messages that come as updates."""

    @workflow.run
    async def run(self) -> None:
        """Lives until it is cancelled."""
        await workflow.wait_condition(lambda: False)

    @workflow.update
    async def ask(self, asked: Asked) -> str:
        """The answer."""
        return str((await Runner.run(agent_of(asked), asked.message, context="t-7")).final_output)


def agent_of(asked: Asked) -> Agent[Any]:
    """A support agent with one tool."""
    tool: Any = framework.activity_as_tool(  # pyright: ignore[reportUnknownMemberType] - the framework leaves a callable untyped
        look_up,
        start_to_close_timeout=timedelta(seconds=10),
        retry_policy=RetryPolicy(maximum_attempts=2),
    )
    assert isinstance(tool, FunctionTool)
    if asked.arguments:
        tool.tool_input_guardrails = [tool_input_guardrail(*asked.arguments, context=about)]
    if asked.results:
        tool.tool_output_guardrails = [tool_output_guardrail(*asked.results, context=about)]
    return Agent(
        name="support",
        model="tested",
        instructions="You help.",
        tools=[tool],
        tool_use_behavior="stop_on_first_tool" if asked.stop_on_tool else "run_llm_again",
        input_guardrails=[input_guardrail(*asked.input, context=about)] if asked.input else [],
        output_guardrails=[output_guardrail(*asked.output, context=about)] if asked.output else [],
    )
