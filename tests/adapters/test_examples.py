"""The two examples run as their reader would run them, against a model's server that checks its caller."""

from __future__ import annotations

import asyncio
import os
import sys

import pytest

from tests.agents.llm import KEY, LLM, Reply, Wants
from tests.tree import ROOT

POEM = "Write me a poem about the sea"
CARD = "Is my card 1002 blocked?"
MONEY = "I was charged twice for a payment, do I get my money back?"
NOTE = "My card was declined at the shop, why?"

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("example", ["openai_agents_support", "pydantic_ai_support"])
async def test_the_example_answers_and_its_guards_hold(example: str, temporal_address: str) -> None:
    replies: list[Reply] = [
        [Wants("card_status", {"card": "1002"})],
        ["Your card is blocked. You can order a new one in the app."],
        ["I promise that you will certainly get all of your money back, guaranteed."],
        [
            Wants(
                "write_note", {"note": "This stupid idiot of a customer, it is all his own fault, the fool."}
            )
        ],
        ["Could you tell me the number of your card? Then I can check its status."],
    ]
    async with LLM(*replies, streamed=False) as llm:
        printed = await run(example, [POEM, CARD, MONEY, NOTE], llm, temporal_address)
        assert printed[:4] == [
            "I can only help with your bank account.",
            "Your card is blocked. You can order a new one in the app.",
            "(withheld: it promises an outcome)",
            "Could you tell me the number of your card? Then I can check its status.",
        ]
        assert len(llm.requests) == len(replies)
        results = [
            message["content"] for message in llm.requests[-1]["messages"] if message["role"] == "tool"
        ]
        assert results == ["(withheld)"]
    assert [tuple(line.split()) for line in printed[4:]] == [
        ("aborted", "input", "topic"),
        ("allowed", "input", "topic"),
        ("allowed", "output", "quality"),
        ("allowed", "input", "topic"),
        ("aborted", "output", "quality"),
        ("allowed", "input", "topic"),
        ("filtered", "output", "civil"),
        ("allowed", "output", "quality"),
    ]


async def run(example: str, messages: list[str], llm: LLM, temporal_address: str) -> list[str]:
    """What it prints."""
    given = {"OPENAI_API_KEY": KEY, "OPENAI_BASE_URL": llm.url, "TEMPORAL_ADDRESS": temporal_address}
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        f"examples.{example}",
        *messages,
        cwd=ROOT,
        env={**os.environ, **given},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    output, errors = await process.communicate()
    assert process.returncode == 0, errors.decode()[-3000:]
    return output.decode().splitlines()
