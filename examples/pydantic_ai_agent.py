"""The agent of `examples/pydantic_ai_support.py`, in a module of its own that the sandbox passes through."""

from __future__ import annotations

from pydantic_ai import Agent
from pydantic_ai.durable_exec.temporal import TemporalDurability
from pydantic_ai.models.openai import OpenAIChatModel

from classifier.adapters.pydantic_ai import Guardrails

CARDS = {"1001": "active", "1002": "blocked"}


def card_status(card: str) -> str:
    """The state of a card, by its last four digits."""
    return CARDS.get(card, "unknown")


def write_note(note: str) -> str:
    """Puts a note about the conversation into the customer's file."""
    return f"written: {note}"


guardrails = Guardrails[dict[str, str]](
    input=["topic"], output=["quality"], arguments=["civil"], tools=["write_note"], context=dict
)

support = Agent(
    OpenAIChatModel("gpt-6-luna"),
    name="support",
    deps_type=dict[str, str],
    instructions="You help customers of a bank. Be brief. Never promise an outcome.",
    tools=[card_status, write_note],
    capabilities=[guardrails, TemporalDurability[dict[str, str]]()],
)
