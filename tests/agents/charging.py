"""An agent that charges an order through a desk over HTTP, for workers that die."""

from __future__ import annotations

from typing import Any

import httpx

from activities.chat_tools import idempotency_key
from classifier.agent import Agent, LanguageModel, Tool
from classifier.app import App
from tests.agents.support import guarding

REPLY = ("It is ", "charged ", "and shipped.")


def charging(llm_url: str, desk_url: str) -> App:
    """The app; the desk knows a charge that it has seen by its key."""

    async def charge(arguments: dict[str, Any]) -> Any:
        async with httpx.AsyncClient() as client:
            body = {"order": arguments["order"], "key": idempotency_key()}
            return (await client.post(desk_url, json=body)).json()

    parameters: dict[str, Any] = {"type": "object", "properties": {"order": {"type": "integer"}}}
    agent = Agent(
        "helper",
        model=LanguageModel("tested", base_url=llm_url, key_variable="TEST_KEY"),
        input=["topic"],
        stream=["safety"],
        output=["quality"],
        tools=[Tool("charge", charge, parameters=parameters, needs_approval=True)],
    )
    guards = [guarding("topic", "never"), guarding("safety", "never"), guarding("quality", "never")]
    return App(processors=guards, agents=[agent])
