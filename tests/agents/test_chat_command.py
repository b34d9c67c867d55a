"""`classifier chat` as a process: what it says without configuration, live replies, stops, coming back."""

from __future__ import annotations

import asyncio
import os
import signal

import pytest

from tests.agents.llm import KEY, LLM, Pause, Reply, Wants
from tests.processes import environment, run, started, state_folder

pytestmark = pytest.mark.slow
APP = "examples.support_agent:app"
HELLO = "Hello! You can see your card in the app."


async def test_with_nothing_configured_it_says_in_one_sentence_what_to_set() -> None:
    with state_folder() as home:
        finished = await run("chat", environ=environment(home))
        assert finished.code == 1
        assert finished.sentence == (
            "there is no agent to talk to; set CLASSIFIER_APP to an app that has one, such as "
            "examples.support_agent:app, and OPENAI_API_KEY for its model"
        )


async def test_without_a_key_it_names_the_variable() -> None:
    with state_folder() as home:
        finished = await run("chat", environ=environment(home, CLASSIFIER_APP=APP))
        assert finished.code == 1
        assert "set OPENAI_API_KEY" in finished.errors
        assert "Traceback" not in finished.errors


async def test_an_unknown_agent_is_named_with_the_known() -> None:
    with state_folder() as home:
        finished = await run("chat", "--agent", "x", environ=environment(home, CLASSIFIER_APP=APP))
        assert finished.sentence == "say with --agent which agent to talk to: support"


async def test_a_conversation_is_shown_live_stopped_and_come_back_to() -> None:
    go_on = asyncio.Event()
    replies: list[Reply] = [
        [HELLO[:7], Pause(go_on), HELLO[7:]],
        [Wants("block_card", {"card": "1001"})],
        ["It is blocked. ", Pause(3600.0)],
    ]
    async with LLM(*replies) as llm:
        with state_folder() as home:
            given = {"CLASSIFIER_APP": APP, "OPENAI_API_KEY": KEY, "OPENAI_BASE_URL": llm.url}
            environ = environment(home, **given)
            reads, writes = os.pipe()
            async with started("chat", "--thread", "ada", environ=environ, stdin=reads) as chat:
                os.close(reads)
                await chat.said("come back with --thread ada")
                os.write(writes, b"Where is my new card?\n")
                await llm.at.wait()
                go_on.set()
                llm.at.clear()
                os.write(writes, b"My card 1001 was stolen, block it\n")
                await chat.said("allow it? (y/n)")
                os.write(writes, b"y\n")
                await chat.said("block_card: finished")
                await llm.at.wait()
                os.kill(chat.pid, signal.SIGINT)
                await asyncio.wait_for(llm.left.wait(), 10)
                await chat.said("[stopped]")
                os.close(writes)
                finished = await chat.finished()
            assert (finished.code, "Traceback" in finished.errors) == (0, False)
            assert HELLO in finished.output
            again = await run("chat", "--thread", "ada", environ=environ)
            assert f"> Where is my new card?\n{HELLO}\n" in again.output
            assert len(llm.requests) == 3
            listed = await run("history", "list", "--json", environ=environ)
            phases = {each["phase"] for each in listed.json["decisions"]}
            assert phases == {"input", "stream", "output"}
