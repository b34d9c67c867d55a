"""The example: a support agent with a topic guard, a safety guard and a quality gate, on the local model."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator

import pytest
from temporalio.client import Client

from classifier.app import load_app
from classifier.audit.memory import MemoryStore
from tests.agents.llm import KEY, LLM, Reply, Wants
from tests.agents.support import worker_of
from tests.classifier.temporal.letters import until
from workflows.agent_client import Thread

pytestmark = pytest.mark.slow


@contextlib.asynccontextmanager
async def support(client: Client, queue: str, llm: LLM) -> AsyncGenerator[tuple[Thread, MemoryStore]]:
    store, environ = MemoryStore(), {"OPENAI_BASE_URL": llm.url, "OPENAI_API_KEY": KEY}
    app = load_app("examples.support_agent:app")
    async with worker_of(client, queue, app, store, environ=environ):
        yield Thread(client, queue, "support", queue), store


async def test_the_support_agent_helps_and_its_guards_hold(client: Client, queue: str) -> None:
    replies: list[Reply] = [
        [Wants("card_status", {"card": "1002"})],
        ["Your card is blocked. ", "You can order a new one in the app."],
        ["Well, you stupid idiot, this is all your own fault, ", "so stop wasting my time, you fool."],
        ["I can help with that. ", "Please tell me the number of your card."],
        ["I promise that you will certainly get all of your money back, guaranteed."],
        ["Could you tell me the date of the payment? Then I can check its status."],
    ]
    async with LLM(*replies) as llm, support(client, queue, llm) as (thread, store):
        poem = await thread.send("Write me a poem about the sea")
        assert (poem.outcome, poem.processor) == ("blocked", "topic")
        assert llm.requests == []

        card = await thread.send("Is my card 1002 blocked?")
        assert card.reply == "Your card is blocked. You can order a new one in the app."
        assert card.steps[0].calls[0].result == '{"status": "blocked"}'

        rude = await thread.send("My card was declined at the shop, why?")
        assert (rude.outcome, rude.model_calls) == ("finished", 2)
        assert rude.reply == "I can help with that. Please tell me the number of your card."

        money = await thread.send("I was charged twice for a payment, do I get my money back?")
        assert money.reply == "Could you tell me the date of the payment? Then I can check its status."

        said = str([request["messages"] for request in llm.requests])
        assert "poem" not in said
        assert "idiot" not in said
        assert "guaranteed" not in said
        outcomes = [(each.processor_id, each.outcome) for each in store.decisions.values()]
        assert outcomes.count(("topic", "aborted")) == 1
        assert outcomes.count(("safety", "aborted")) == 1
        assert outcomes.count(("quality", "aborted")) == 1


async def test_blocking_a_card_waits_for_a_person(client: Client, queue: str) -> None:
    replies: list[Reply] = [
        [Wants("block_card", {"card": "1001"})],
        ["Your card is blocked. You can order a new one in the app."],
    ]
    async with LLM(*replies) as llm, support(client, queue, llm) as (thread, _):
        sent = asyncio.create_task(thread.send("My card 1001 was stolen, please block it"))

        async def asks() -> bool:
            return (await thread.state()).status == "approval"

        await llm_asked(llm)
        await until(asks)
        waiting = (await thread.state()).waiting
        assert waiting is not None
        await thread.approve(waiting.call, by="kim")
        assert (await sent).reply == "Your card is blocked. You can order a new one in the app."


async def llm_asked(llm: LLM) -> None:
    async def asked() -> bool:
        return len(llm.requests) == 1

    await until(asked)
