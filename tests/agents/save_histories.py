"""Saves a thread's history, once per release: `python -m tests.agents.save_histories`."""

from __future__ import annotations

import asyncio
import contextlib
import json
import tempfile
import uuid
from importlib.metadata import version
from pathlib import Path

from temporalio.client import Client, WorkflowFailureError

from classifier.agent import Tool
from classifier.audit.memory import MemoryStore
from embedded.stack import Stack
from tests.agents.llm import LLM, Pause, Reply, Wants
from tests.agents.support import Handle, agent, guarding, send, start, update, working
from tests.classifier.temporal.letters import until
from tests.workflows.save_histories import HISTORIES, _portable
from workflows.agent_messages import APPROVE, STATE, STOP, Approval, Stop, ThreadState

THREADS = HISTORIES / "agents"


async def thread(client: Client, queue: str) -> Handle:
    """Two turns that finish, the second with a tool that a person approves; a stop, an abort, the end."""
    pay = Tool("pay", lambda given: {"paid": given}, needs_approval=True, arguments=["q"], results=["g"])
    replies: list[Reply] = [
        ["Hello, ", "how can I help?"],
        [Wants("pay", {"euros": 5})],
        ["It is paid."],
        ["A long story ", Pause(3600.0)],
    ]
    guards = [guarding("g", "bad"), guarding("s", "never"), guarding("q", "never")]
    async with LLM(*replies) as llm:
        helper = agent(llm, input=["g"], stream=["s"], output=["q"], tools=[pay])
        async with working(client, queue, helper, *guards, store=MemoryStore(), identity="saved"):
            handle = await start(client, queue)
            assert (await send(handle, "Hello", "m1")).outcome == "finished"
            paid = asyncio.create_task(send(handle, "Pay, please", "m2"))
            await until(lambda: _waits(handle))
            await update(handle, APPROVE, Approval("m2:1", "kim"))
            assert (await paid).outcome == "finished"
            stopped = asyncio.create_task(send(handle, "Tell me a story", "m3"))
            await llm.at.wait()
            await handle.signal(STOP, Stop(by="ada"))
            assert (await stopped).outcome == "stopped"
            assert (await send(handle, "bad words", "m4")).outcome == "blocked"
            await handle.cancel()
            with contextlib.suppress(WorkflowFailureError):
                await handle.result()
    return handle


async def _waits(handle: Handle) -> bool:
    state: ThreadState = await handle.query(STATE, result_type=ThreadState)
    return state.waiting is not None


async def main() -> None:
    """Into the folder of the installed version."""
    folder = THREADS / ".".join(version("temporal-classifier").split(".")[:2])
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="classifier-histories-") as home:
        async with Stack(Path(home), database=False) as stack:
            assert stack.addresses.temporal_address is not None
            client = await Client.connect(stack.addresses.temporal_address, identity="saved")
            history = await (await thread(client, f"queue-{uuid.uuid4()}")).fetch_history()
    text = json.dumps(_portable(history.to_json_dict()), indent=1, sort_keys=True)
    (folder / "thread.json").write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    asyncio.run(main())
