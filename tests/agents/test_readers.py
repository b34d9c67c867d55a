"""Readers: one poller for all of a process, nothing missed, and a thread that stays reachable beside them."""

from __future__ import annotations

import asyncio
import time
import uuid
from typing import Any

import pytest
from temporalio.client import Client, WorkflowUpdateStage
from temporalio.contrib.workflow_streams import PollInput, PollResult, WorkflowStreamClient

from activities.chat_messages import POLL
from tests.agents.llm import LLM, Pause
from tests.agents.support import Handle, agent, guarding, send, start, update, working
from tests.classifier.temporal.letters import until
from workflows.agent_messages import STATE, STOP, Stop, ThreadState, Turn
from workflows.readers import Readers, Seen


async def read_turn(readers: Readers, thread: Handle, turn: str, after: int = 0) -> list[Seen]:
    found: list[Seen] = []
    async for seen in readers.events(thread.id, after=after):
        found.append(seen)
        if seen.event["type"] == "ended" and seen.event["turn"] == turn:
            break
    return found


def text(events: list[Seen]) -> str:
    return "".join(seen.event.get("text", "") for seen in events)


async def within_two_seconds(work: Any) -> Any:
    began = time.monotonic()
    result = await work
    assert time.monotonic() - began < 2
    return result


async def polls(thread: Handle) -> int:
    """Updates that readers have left in the run's history."""
    history = await thread.fetch_history()
    return sum(
        event.workflow_execution_update_accepted_event_attributes.accepted_request.input.name == POLL
        for event in history.events
    )


@pytest.mark.slow
async def test_fifty_readers_and_two_hundred_reconnects_leave_the_thread_reachable(
    client: Client, queue: str
) -> None:
    async with (
        LLM(script=lambda body: ["hello ", Pause(0.2), "you"]) as llm,
        working(client, queue, agent(llm)),
    ):
        thread = await start(client, queue)
        await send(thread, "hi", "m0")
        readers = Readers(client)
        reading = [asyncio.create_task(read_turn(readers, thread, "m1")) for _ in range(50)]
        for _ in range(200):
            coming = readers.events(thread.id)
            assert (await anext(coming)).event["type"] == "started"
            await coming.aclose()
        assert readers.pollers == 1
        assert await within_two_seconds(update(thread, STOP, Stop())) is None
        assert (await within_two_seconds(send(thread, "hi", "m1"))).reply == "hello you"
        seen = await asyncio.gather(*reading)
        assert {text(each) for each in seen} == {"hello youhello you"}
        assert await polls(thread) < 20
        await readers.aclose()


async def test_processes_that_come_and_go_without_a_word_clog_nothing(client: Client, queue: str) -> None:
    """Each leaves a poll behind that waits for ever; Temporal lets ten updates wait."""
    async with LLM(script=lambda body: ["hello"]) as llm, working(client, queue, agent(llm)):
        thread = await start(client, queue)
        await send(thread, "hi", "m0")
        state: ThreadState = await thread.query(STATE, result_type=ThreadState)
        poller: Any = thread  # an overload of the SDK is untyped
        for _ in range(4):
            await poller.start_update(
                POLL,
                PollInput(["thread"], state.offset),
                id=f"{uuid.uuid4().hex}/1",
                wait_for_stage=WorkflowUpdateStage.ACCEPTED,
                result_type=PollResult,
            )
        readers = [Readers(client) for _ in range(12)]
        reading = [asyncio.create_task(read_turn(each, thread, "m1", state.offset)) for each in readers]
        assert await within_two_seconds(update(thread, STOP, Stop())) is None
        assert (await within_two_seconds(send(thread, "hi", "m1"))).reply == "hello"
        assert {text(each) for each in await asyncio.gather(*reading)} == {"hello"}
        for each in readers:
            await each.aclose()


async def test_clients_of_plain_workflow_streams_can_read_too(client: Client, queue: str) -> None:
    async with LLM(["hello"]) as llm, working(client, queue, agent(llm)):
        thread = await start(client, queue)
        await send(thread, "hi", "m1")
        found: list[str] = []
        async for item in WorkflowStreamClient.create(client, thread.id).subscribe(["thread"]):
            found.append(item.data["type"])
            if item.data["type"] == "ended":
                break
        assert found == ["started", "text", "ended"]


async def test_a_reader_that_comes_back_misses_nothing_and_costs_no_second_judgement(
    client: Client, queue: str
) -> None:
    go_on = asyncio.Event()
    async with (
        LLM(["one ", Pause(go_on), "two"]) as llm,
        working(client, queue, agent(llm, stream=["s"]), guarding("s", "x")) as store,
    ):
        thread = await start(client, queue)
        sent = asyncio.create_task(send(thread, "hi", "m1"))
        readers = Readers(client)
        first = readers.events(thread.id)
        seen = [await anext(first), await anext(first)]
        await first.aclose()
        go_on.set()
        await sent
        other_process = Readers(client)
        rest = await read_turn(other_process, thread, "m1", seen[-1].next)
        assert text(seen + rest) == "one two"
        assert [each.event["type"] for each in seen + rest] == ["started", "text", "text", "ended"]
        assert len(store.decisions) == 2
        await readers.aclose()
        await other_process.aclose()


async def test_a_reader_ends_when_the_thread_has_ended(client: Client, queue: str) -> None:
    async with LLM(["hello"]) as llm, working(client, queue, agent(llm)):
        thread = await start(client, queue)
        await send(thread, "hi", "m1")
        readers = Readers(client)
        reading = asyncio.create_task(_all(readers, thread))

        async def is_reading() -> bool:
            return await polls(thread) > 0

        await until(is_reading)
        await thread.cancel()
        assert await asyncio.wait_for(reading, 10) == ["started", "text", "ended"]
        assert await asyncio.wait_for(_all(Readers(client), thread), 10) == ["started", "text", "ended"]


async def _all(readers: Readers, thread: Handle) -> list[str]:
    return [seen.event["type"] async for seen in readers.events(thread.id)]


async def test_str_o07_a_reader_of_a_blocked_turn_gets_one_terminal_event_at_once(
    client: Client, queue: str
) -> None:
    async with LLM() as llm, working(client, queue, agent(llm, input=["g"]), guarding("g", "bad")):
        thread = await start(client, queue)
        readers = Readers(client)
        reading = asyncio.create_task(read_turn(readers, thread, "m1"))
        turn: Turn = await send(thread, "bad", "m1")
        seen = await asyncio.wait_for(reading, 2)
        assert turn.outcome == "blocked"
        assert [each.event["type"] for each in seen] == ["started", "ended"]
        assert seen[-1].event == {
            "type": "ended", "turn": "m1", "outcome": "blocked", "event": "blocked",
            "reason": "unsafe", "processor": "g", "phase": "input",
        }  # fmt: skip
        await readers.aclose()
