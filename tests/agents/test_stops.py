"""Stops, in every phase of a turn: the call is closed, the thread goes on, what was released is kept."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from typing import Any

import pytest
from temporalio.client import Client, WorkflowExecutionStatus, WorkflowFailureError

from classifier.agent import Tool
from classifier.audit.memory import MemoryStore
from classifier.classifier import Classifier
from classifier.models.systemone import SystemOne
from classifier.processor import ClassifierProcessor
from tests.agents.llm import LLM, Pause, Wants
from tests.agents.support import Handle, agent, events, guarding, send, shown, start, update, working
from tests.classifier.conformance import SafetyQuestions, abort_unsafe
from tests.classifier.temporal.letters import until
from tests.servers import Hang, Server
from workflows.agent_client import Thread
from workflows.agent_messages import STATE, STOP, TRANSCRIPT, Stop, ThreadState, Turn
from workflows.readers import Readers, Seen

NEVER = Pause(3600.0)


async def stop(thread: Handle, **given: Any) -> Turn | None:
    """Stops by update, which takes no longer than two seconds."""
    began = time.monotonic()
    turn: Turn | None = await update(thread, STOP, Stop(**given), Turn)
    assert time.monotonic() - began < 2
    return turn


async def reply_is(thread: Handle, text: str) -> None:
    async def there() -> bool:
        state: ThreadState = await thread.query(STATE, result_type=ThreadState)
        return state.reply == text

    await until(there)


def hanging(server: Server, name: str) -> ClassifierProcessor[Any]:
    """A processor whose model never answers."""
    classifier = Classifier(name, SystemOne("m", base_url=server.url), SafetyQuestions)
    return ClassifierProcessor(classifier=classifier, on_result=abort_unsafe, id=name)


async def test_a_stop_while_an_input_processor_is_asked_closes_its_request(
    client: Client, queue: str
) -> None:
    async with (
        Server([Hang()]) as server,
        LLM() as llm,
        working(client, queue, agent(llm, input=["g"]), hanging(server, "g")) as store,
    ):
        thread = await start(client, queue)
        sent = asyncio.create_task(send(thread, "hi", "m1"))
        await server.asked.wait()
        turn = await stop(thread)
        await asyncio.wait_for(server.left.wait(), 2)
        assert await sent == turn
        assert turn is not None
        assert (turn.outcome, turn.event, turn.text) == ("stopped", "stopped", "")
        assert store.decisions == {}
        assert llm.requests == []


async def test_a_stop_before_the_first_word_closes_the_request(client: Client, queue: str) -> None:
    async with LLM([NEVER]) as llm, working(client, queue, agent(llm)):
        thread = await start(client, queue)
        sent = asyncio.create_task(send(thread, "hi"))
        await llm.at.wait()
        await stop(thread)
        await asyncio.wait_for(llm.left.wait(), 2)
        assert (await sent).steps == []


@pytest.mark.parametrize("by_signal", [True, False])
async def test_a_stop_in_the_middle_keeps_what_was_released_and_the_thread_goes_on(
    client: Client, queue: str, by_signal: bool
) -> None:
    safety = guarding("safety", "never", hold_back=4)
    async with (
        LLM(["first ", "second ", NEVER], ["next"]) as llm,
        working(client, queue, agent(llm, stream=["safety"]), safety) as store,
    ):
        thread = await start(client, queue)
        sent = asyncio.create_task(send(thread, "hi", "m1"))
        await reply_is(thread, "first ")
        if by_signal:
            await thread.signal(STOP, Stop(by="kim", reason="enough"))
        else:
            await stop(thread, by="kim", reason="enough")
        await asyncio.wait_for(llm.left.wait(), 2)
        turn = await sent
        assert (turn.outcome, turn.reply) == ("stopped", "first ")
        seen = await events(client, thread, "m1")
        assert shown(seen) == "first "
        assert [event["event"] for event in seen if event["type"] == "ended"] == ["stopped"]
        assert (await send(thread, "go on", "m2")).reply == "next"
        assert llm.requests[1]["messages"][2] == {"role": "assistant", "content": "first "}

        async def noted() -> bool:
            return len(store.history) == 1

        await until(noted)
        (event,) = store.history.values()
        assert (event.kind, event.actor, event.body) == (
            "stop", "kim", {"turn": "m1", "reason": "enough"},
        )  # fmt: skip


async def test_a_stop_while_a_tool_runs_reaches_it(client: Client, queue: str) -> None:
    began, ended = asyncio.Event(), asyncio.Event()

    async def slow(arguments: dict[str, Any]) -> str:
        began.set()
        try:
            await asyncio.sleep(60)
        finally:
            ended.set()
        return "done"

    async with (
        LLM(["I try. ", Wants("slow", {})], ["next"]) as llm,
        working(client, queue, agent(llm, tools=[Tool("slow", slow)])),
    ):
        thread = await start(client, queue)
        sent = asyncio.create_task(send(thread, "hi", "m1"))
        await began.wait()
        await stop(thread)
        await asyncio.wait_for(ended.wait(), 2)
        turn = await sent
        assert (turn.outcome, turn.reply) == ("stopped", "I try. ")
        assert [call.state for call in turn.steps[0].calls] == ["stopped"]
        await send(thread, "again", "m2")
        assert llm.requests[1]["messages"][3]["content"] == "(stopped)"


async def test_a_stop_while_a_person_is_asked(client: Client, queue: str) -> None:
    tool = Tool("refund", _nothing, needs_approval=True)
    async with LLM([Wants("refund", {})]) as llm, working(client, queue, agent(llm, tools=[tool])):
        thread = await start(client, queue)
        sent = asyncio.create_task(send(thread, "hi"))

        async def waits() -> bool:
            state: ThreadState = await thread.query(STATE, result_type=ThreadState)
            return state.status == "approval"

        await until(waits)
        await stop(thread)
        assert (await sent).outcome == "stopped"


async def _nothing(arguments: dict[str, Any]) -> None:
    raise AssertionError("nobody approved this")


async def test_a_stop_while_the_output_is_judged_closes_that_request(client: Client, queue: str) -> None:
    async with (
        Server([Hang()]) as server,
        LLM(["hello"]) as llm,
        working(client, queue, agent(llm, output=["g"]), hanging(server, "g")),
    ):
        thread = await start(client, queue)
        sent = asyncio.create_task(send(thread, "hi"))
        await server.asked.wait()
        await stop(thread)
        await asyncio.wait_for(server.left.wait(), 2)
        assert ((await sent).outcome, (await sent).reply) == ("stopped", "hello")


async def test_a_stop_while_a_stream_processor_is_asked_closes_both(client: Client, queue: str) -> None:
    async with (
        Server([Hang()]) as server,
        LLM(["hello", NEVER]) as llm,
        working(client, queue, agent(llm, stream=["g"]), hanging(server, "g")) as store,
    ):
        thread = await start(client, queue)
        sent = asyncio.create_task(send(thread, "hi"))
        await server.asked.wait()
        await stop(thread)
        await asyncio.wait_for(asyncio.gather(server.left.wait(), llm.left.wait()), 2)
        assert ((await sent).outcome, (await sent).reply) == ("stopped", "")
        assert store.decisions == {}


async def test_a_message_that_waits_can_be_stopped_by_its_id(client: Client, queue: str) -> None:
    async with LLM([NEVER], ["third"]) as llm, working(client, queue, agent(llm)):
        thread = await start(client, queue)
        first = asyncio.create_task(send(thread, "one", "m1"))
        await llm.at.wait()
        second = asyncio.create_task(send(thread, "two", "m2"))

        async def queued() -> bool:
            state: ThreadState = await thread.query(STATE, result_type=ThreadState)
            return state.queued == ["m2"]

        await until(queued)
        await stop(thread, turn="m2")
        assert (await second).outcome == "stopped"
        await stop(thread)
        assert (await first).outcome == "stopped"
        assert (await send(thread, "three", "m3")).reply == "third"
        assert len(llm.requests) == 2


async def test_there_is_nothing_to_stop_in_an_idle_thread(client: Client, queue: str) -> None:
    async with LLM(["hi"]) as llm, working(client, queue, agent(llm)):
        thread = await start(client, queue)
        assert await stop(thread) is None
        done = await send(thread, "hi", "m1")
        assert await stop(thread, turn="m1") == done


async def test_a_cancelled_run_ends_its_turn_and_answers_who_waits(client: Client, queue: str) -> None:
    async with LLM(["some ", NEVER]) as llm, working(client, queue, agent(llm)):
        thread = await start(client, queue)
        sent = asyncio.create_task(send(thread, "hi", "m1"))
        await reply_is(thread, "some ")
        await thread.cancel()
        await asyncio.wait_for(llm.left.wait(), 2)
        assert ((await sent).outcome, (await sent).reply) == ("stopped", "some ")
        with pytest.raises(WorkflowFailureError):
            await thread.result()
        assert (await thread.describe()).status is WorkflowExecutionStatus.CANCELED


async def test_can_o04_a_worker_that_leaves_does_not_stop_the_reply(client: Client, queue: str) -> None:
    store = MemoryStore()
    async with LLM(["half ", NEVER], ["whole"]) as llm:
        safety = guarding("safety", "never")
        helper = agent(llm, stream=["safety"])
        async with working(client, queue, helper, safety, store=store):
            thread = await start(client, queue)
            sent = asyncio.create_task(send(thread, "hi", "m1"))
            await reply_is(thread, "half ")
        async with working(client, queue, helper, safety, store=store):
            turn = await sent
            assert (turn.outcome, turn.reply) == ("finished", "whole")
            seen = await events(client, thread, "m1")
            assert [e["type"] for e in seen] == ["started", "text", "restart", "text", "ended"]
            assert shown(seen) == "whole"
    assert store.history == {}
    states = [(each.state, each.outcome) for each in store.decisions.values()]
    assert states == [("half ", "allowed"), ("whole", "allowed")]


@pytest.mark.parametrize("on_disconnect", ["continue", "stop"])
async def test_can_o06_who_leaves_stops_the_reply_only_where_that_was_asked_for(
    client: Client, queue: str, on_disconnect: Any
) -> None:
    go_on = asyncio.Event()
    async with LLM(["some ", Pause(go_on), "more"]) as llm, working(client, queue, agent(llm)):
        thread = Thread(client, queue, "helper", queue)
        waiting = asyncio.create_task(thread.send("hi", message="m1", on_disconnect=on_disconnect))
        await llm.at.wait()
        await reply_is(thread.handle, "some ")
        waiting.cancel()
        await asyncio.wait({waiting})
        if on_disconnect == "stop":
            await asyncio.wait_for(llm.left.wait(), 5)
        else:
            go_on.set()
        turn = await thread.send("hi", message="m1")
        expected = ("stopped", "some ") if on_disconnect == "stop" else ("finished", "some more")
        assert (turn.outcome, turn.reply) == expected


async def test_can_o06_one_of_two_readers_leaving_changes_nothing(client: Client, queue: str) -> None:
    go_on = asyncio.Event()
    async with LLM(["some ", Pause(go_on), "more"]) as llm, working(client, queue, agent(llm)):
        thread = await start(client, queue)
        sent = asyncio.create_task(send(thread, "hi", "m1"))
        readers = Readers(client)
        one, other = readers.events(thread.id), readers.events(thread.id)
        assert [(await anext(one)).event["type"] for _ in range(2)] == ["started", "text"]
        await one.aclose()
        go_on.set()
        types = [seen.event["type"] async for seen in _until_ended(other)]
        assert types == ["started", "text", "text", "ended"]
        assert (await sent).reply == "some more"
        await readers.aclose()
        turns: list[Turn] = await thread.query(TRANSCRIPT, result_type=list[Turn])
        assert len(turns) == 1


async def _until_ended(events_of: AsyncIterator[Seen]) -> AsyncIterator[Seen]:
    async for seen in events_of:
        yield seen
        if seen.event["type"] == "ended":
            return
