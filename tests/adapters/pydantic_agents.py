"""The agents of a project with Pydantic AI; the sandbox passes them through."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from pydantic_ai import Agent, RunContext
from pydantic_ai.capabilities import ResolveModelId
from pydantic_ai.durable_exec.temporal import TemporalDurability
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai import OpenAIProvider

from classifier.adapters.plain import Plain
from classifier.adapters.pydantic_ai import Guardrails
from classifier.values import JSON
from tests.agents.llm import KEY


@dataclass(frozen=True)
class Desk:
    """What the agents run with: where their model is, and whose conversation this is."""

    url: str
    thread: str = "t-7"


@dataclass(frozen=True)
class Offer:
    """A typed output."""

    text: str
    price: int


def about(desk: Desk) -> dict[str, JSON]:
    """The request context of what an agent runs with."""
    return {"thread_id": desk.thread, "tenant_id": "acme"}


def model_at(ctx: Any, model_id: str) -> OpenAIChatModel:
    """The model behind the desk's address."""
    return OpenAIChatModel(model_id, provider=OpenAIProvider(base_url=ctx.deps.url, api_key=KEY))


def look_up(ctx: RunContext[Desk], card: str) -> str:
    """The state of a card."""
    del ctx
    return f"card {card} is blocked"


def guarded_by(name: str, output_type: Any = str, plain: Plain | None = None) -> Agent[Desk, Any]:
    """An agent whose messages and tools one processor guards."""
    guardrails = Guardrails[Desk](
        input=[name], output=[name], arguments=[name], results=[name], context=about, plain=plain
    )
    return agent_with(guardrails, f"support_{name}_{output_type.__name__}", output_type)


def agent_with(
    guardrails: Guardrails[Desk], name: str = "support", output_type: Any = str
) -> Agent[Desk, Any]:
    """An agent with one tool."""
    return Agent(
        "tested",
        name=name,
        deps_type=Desk,
        output_type=output_type,
        instructions="You help.",
        tools=[look_up],
        capabilities=[guardrails, ResolveModelId(model_at), TemporalDurability[Desk]()],
    )


# What the SDK loads when a model is first made; in a workflow it would take seconds.
OpenAIChatModel("tested", provider=OpenAIProvider(base_url="http://127.0.0.1:9", api_key=KEY))

AGENTS = {
    "strict": guarded_by("strict"),
    "dropping": guarded_by("dropping"),
    "typed": guarded_by("strict", Offer),
    "faulty": guarded_by("faulty"),
    "unknown": guarded_by("nobody"),
}
