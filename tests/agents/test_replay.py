"""Threads replay: every kind of turn, on this version's code, with the converter that encrypts too."""

from __future__ import annotations

import asyncio
import base64

from temporalio.client import Client
from temporalio.worker import Replayer

from classifier.agent import Tool
from classifier.audit.memory import MemoryStore
from classifier.temporal.codec import CodecKeys, encrypted
from classifier.temporal.plugin import PURE_MODULES, RecordsBeforeClose, with_passthrough
from tests.agents.llm import LLM, Broken, Pause, Reply, Wants
from tests.agents.support import agent, events, guarding, send, shown, start, update, working
from tests.classifier.temporal.letters import Interrupted, until
from worker import WORKFLOW_MODULES
from workflows.agent import AgentWorkflow
from workflows.agent_messages import DENY, STATE, STOP, Approval, Stop, ThreadState


async def test_a_thread_with_a_stop_a_refusal_an_outage_and_a_restart_replays(
    client: Client, queue: str
) -> None:
    store = Interrupted(MemoryStore())
    tool = Tool("pay", lambda given: None, needs_approval=True)
    replies: list[Reply] = [
        ["half", Broken()],
        ["fine"],
        ["bad"],
        [Wants("pay", {})],
        ["no"],
        ["some ", Pause(3600.0)],
    ]
    guards = [guarding("g", "never"), guarding("s", "never"), guarding("q", "bad")]
    async with LLM(*replies) as llm:
        helper = agent(llm, input=["g"], stream=["s"], output=["q"], tools=[tool])
        async with working(client, queue, helper, *guards, store=store):
            thread = await start(client, queue)
            assert (await send(thread, "one", "m1")).outcome == "finished"
            store.away = True
            assert (await send(thread, "two", "m2")).event == "retracted"
            store.away = False
            denied = asyncio.create_task(send(thread, "three", "m3"))

            async def waits() -> bool:
                state: ThreadState = await thread.query(STATE, result_type=ThreadState)
                return state.waiting is not None

            await until(waits)
            await update(thread, DENY, Approval("m3:1", "kim"))
            await denied
            stopped = asyncio.create_task(send(thread, "four", "m4"))
            await llm.at.wait()
            await thread.signal(STOP, Stop())
            assert (await stopped).outcome == "stopped"
            history = await thread.fetch_history()
    replayer = Replayer(
        workflows=[AgentWorkflow],
        interceptors=[RecordsBeforeClose()],
        workflow_runner=with_passthrough((*PURE_MODULES, *WORKFLOW_MODULES))(None),
    )
    await replayer.replay_workflow(history)


async def test_with_a_codec_nothing_that_was_said_is_readable_in_the_history(
    client: Client, queue: str
) -> None:
    config = client.config()
    config["data_converter"] = encrypted(
        keys=CodecKeys.parse(f"k1:{base64.b64encode(bytes(32)).decode()}"), plaintext="refuse"
    )
    secret = Client(**config)
    async with (
        LLM(["a SECRET reply"]) as llm,
        working(secret, queue, agent(llm, stream=["s"]), guarding("s", "never")),
    ):
        thread = await start(secret, queue)
        turn = await send(thread, "a SECRET question", "m1")
        assert turn.reply == "a SECRET reply"
        assert shown(await events(secret, thread, "m1")) == "a SECRET reply"
        plain = client.get_workflow_handle(thread.id)
        history = (await plain.fetch_history()).to_json()
        for start_of in range(3):  # a text in base64 begins at one of three places of its four letters
            shifted = base64.b64encode(b"x" * start_of + b"SECRET").decode()[4 * (start_of > 0) : -4]
            assert shifted not in history
        assert "SECRET" not in history
