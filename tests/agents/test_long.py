"""Threads that outlive their runs: what they take along, and how large their histories get."""

from __future__ import annotations

import asyncio
import json
import uuid
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from temporalio.client import Client

from tests.agents.llm import LLM
from tests.agents.support import Handle, agent, begin, guarding, send, start, update, working
from workflows.agent import AgentWorkflow
from workflows.agent_client import Thread
from workflows.agent_memory import carried, forgetting, turn_from_json, turn_to_json
from workflows.agent_messages import (
    SEND,
    STATE,
    TRANSCRIPT,
    Done,
    Send,
    Step,
    ThreadRequest,
    ThreadState,
    Turn,
)
from workflows.readers import Readers


async def runs(client: Client, thread: str) -> list[int]:
    """How long the history of each of its runs is."""
    found = client.list_workflows(f"WorkflowId = '{thread}'")
    return [each.history_length async for each in found]


async def test_a_thread_goes_on_as_a_new_run_and_takes_everything_along(client: Client, queue: str) -> None:
    async with (
        LLM(script=lambda body: [f"reply to {body['messages'][-1]['content']}"]) as llm,
        working(client, queue, agent(llm, stream=["s"]), guarding("s", "never")),
    ):
        thread = await start(client, queue, events=60)
        readers = Readers(client)
        reading = asyncio.create_task(_replies(readers, thread, 8))
        first = await send(thread, "number 0", "m0")
        for number in range(1, 8):
            await send(thread, f"number {number}", f"m{number}")
        assert (await thread.describe()).run_id != thread.first_execution_run_id
        again = client.get_workflow_handle(thread.id)
        known: Turn = await update(again, SEND, Send("m0", "number 0"), Turn, "once-more")
        assert known == first
        assert len(llm.requests) == 8
        assert await reading == [f"reply to number {number}" for number in range(8)]
        said = [message["content"] for message in llm.requests[7]["messages"]]
        assert said[1:5] == ["number 0", "reply to number 0", "number 1", "reply to number 1"]
        assert len(said) == 1 + 2 * 7 + 1
        turns: list[Turn] = await again.query(TRANSCRIPT, result_type=list[Turn])
        assert [turn.id for turn in turns] == [f"m{number}" for number in range(8)]
        state: ThreadState = await again.query(STATE, result_type=ThreadState)
        assert (state.status, state.turns) == ("idle", 8)
        await readers.aclose()


async def _replies(readers: Readers, thread: Handle, count: int) -> list[str]:
    texts: list[str] = []
    async for seen in readers.events(thread.id):
        match seen.event["type"]:
            case "started":
                texts.append("")
            case "text":
                texts[-1] += seen.event["text"]
            case "ended" if len(texts) == count:
                break
            case _:
                pass
    return texts


async def test_messages_that_come_while_it_goes_on_are_answered_once(client: Client, queue: str) -> None:
    async with (
        LLM(script=lambda body: ["yes"]) as llm,
        working(client, queue, agent(llm)),
    ):
        thread = Thread(client, queue, "helper", queue)
        await client.start_workflow(
            AgentWorkflow.run,
            ThreadRequest("helper", events=20),
            id=thread.workflow_id,
            task_queue=queue,
        )
        turns = [turn for some in await asyncio.gather(*map(_talk, [thread] * 3)) for turn in some]
        assert {turn.outcome for turn in turns} == {"finished"}
        assert len(llm.requests) == len(turns) == 30
        assert len(await runs(client, thread.workflow_id)) > 3


async def _talk(thread: Thread) -> list[Turn]:
    return [await thread.send("hi") for _ in range(10)]


@pytest.mark.long
async def test_two_thousand_turns_stay_under_ten_thousand_events_a_run(client: Client, queue: str) -> None:
    async with (
        LLM(script=lambda body: ["a reply of ", "some length"]) as llm,
        working(client, queue, agent(llm, memory=2_000, stream=["s"]), guarding("s", "never")),
    ):
        thread = await start(client, queue)
        for number in range(2_000):
            turn = await begin(client, queue, thread.id, "a message of some length", f"m{number}")
            assert turn.outcome == "finished"
        lengths = await runs(client, thread.id)
        assert max(lengths) < 10_000
        first = await begin(client, queue, thread.id, "a message of some length", "m0")
        assert (first.id, first.outcome) == ("m0", "finished")
        assert len(llm.requests) == 2_000


def turn(number: int, size: int) -> Turn:
    call = Done(f"m{number}:1", "call", "tool", "{}", "finished", "r" * size)
    steps = [Step("x" * size, [call])]
    return Turn(f"m{number}", "finished", "finished", "t" * size, steps, decision_ids=["d"])


def test_old_turns_lose_their_texts_before_their_ids() -> None:
    kept = carried([turn(number, 10_000) for number in range(100)])
    assert [each.id for each in kept] == [f"m{number}" for number in range(100)]
    assert kept[-1] == turn(99, 10_000)
    forgotten = [each for each in kept if each.forgotten]
    assert forgotten == kept[: len(forgotten)]
    assert 0 < len(forgotten) < 100
    assert {(each.text, each.outcome) for each in forgotten} == {("", "finished")}


def test_over_a_thousand_older_turns_keep_their_outcome() -> None:
    kept = carried([replace(turn(0, 1_000), id=str(uuid.uuid4())) for _ in range(5_000)])
    assert sum(each.forgotten for each in kept) > 1_000


LONG = ["\u0448" * 3_000, '"' * 5_000, "\n" * 5_000, "\0" * 3_000, "\\" * 5_000, "\U0001f600" * 2_000]
TEXTS = st.one_of(st.text(max_size=40), st.sampled_from(LONG))
DONE = st.builds(Done, TEXTS, TEXTS, TEXTS, TEXTS, st.just("finished"), TEXTS)
TURNS = st.builds(
    Turn,
    st.text(min_size=1, max_size=200),
    st.sampled_from(["finished", "blocked"]),
    st.just("retracted"),
    TEXTS,
    st.lists(st.builds(Step, TEXTS, st.lists(DONE, max_size=2)), max_size=3),
    st.one_of(st.none(), st.fixed_dictionaries({"reason": TEXTS, "metadata": st.none()})),
    decision_ids=st.lists(st.text(max_size=36), max_size=3),
    input_tokens=st.integers(0, 10),
)


@given(TURNS)
def test_a_turn_is_carried_without_loss(one: Turn) -> None:
    assert turn_from_json(turn_to_json(one)) == one
    assert turn_from_json(turn_to_json(forgetting(one))) == forgetting(one)


@settings(max_examples=20, deadline=None)
@given(st.lists(TURNS, min_size=1, max_size=4))
def test_what_is_carried_fits_a_payload_whatever_was_said(some: list[Turn]) -> None:
    kept = carried(some * 200)
    assert len(json.dumps([turn_to_json(each) for each in kept])) < 1_300_000
    assert len(kept) > 100
    assert kept[-1].id == some[-1].id
