"""Turns of a thread: their order, what they leave behind, and what a model is given of it."""

from __future__ import annotations

import asyncio
import uuid
from typing import Any

import pytest
from temporalio.client import Client, WorkflowUpdateFailedError

from classifier.agent import Tool
from classifier.decision import Decision
from classifier.policy import PolicyContext
from classifier.values import JSON
from tests.agents.llm import LLM, Finish, Pause, Wants
from tests.agents.support import (
    Handle,
    agent,
    begin,
    events,
    finding,
    guarding,
    send,
    shown,
    start,
    update,
    working,
)
from tests.classifier.conformance import broken, filter_unsafe
from workflows.agent import AgentWorkflow
from workflows.agent_messages import SEND, TRANSCRIPT, Send, ThreadRequest, Turn


async def transcript(thread: Handle) -> list[Turn]:
    turns: list[Turn] = await thread.query(TRANSCRIPT, result_type=list[Turn])
    return turns


async def test_a_message_is_answered_and_remembered(client: Client, queue: str) -> None:
    async with LLM(["Hello", " Ada"], ["Yes"]) as llm, working(client, queue, agent(llm)):
        thread = await start(client, queue)
        turn = await send(thread, "I am Ada", "m1")
        assert (turn.outcome, turn.event, turn.reply) == ("finished", "finished", "Hello Ada")
        assert (turn.model_calls, turn.input_tokens, turn.output_tokens) == (1, 11, 7)
        assert (await send(thread, "Do you know my name?", "m2")).reply == "Yes"
        assert llm.requests[1]["messages"] == [
            {"role": "system", "content": "You help."},
            {"role": "user", "content": "I am Ada"},
            {"role": "assistant", "content": "Hello Ada"},
            {"role": "user", "content": "Do you know my name?"},
        ]
        assert [each.id for each in await transcript(thread)] == ["m1", "m2"]
        seen = await events(client, thread, "m1")
        assert [event["type"] for event in seen][0 :: len(seen) - 1] == ["started", "ended"]
        assert shown(seen) == "Hello Ada"


async def test_the_same_message_gets_the_same_turn_and_the_model_is_asked_once(
    client: Client, queue: str
) -> None:
    thread = f"thread-{uuid.uuid4()}"
    async with LLM(["one"], ["two"]) as llm, working(client, queue, agent(llm)):
        first, same = await asyncio.gather(
            begin(client, queue, thread, "hi", "m1"), begin(client, queue, thread, "hi", "m1")
        )
        handle: Handle = client.get_workflow_handle(thread)
        again = await update(handle, SEND, Send("m1", "hi"), Turn, "another")
        assert first == same == again
        assert len(llm.requests) == 1


async def test_messages_sent_at_once_are_answered_in_order(client: Client, queue: str) -> None:
    async with (
        LLM(script=lambda body: [body["messages"][-1]["content"].upper()]) as llm,
        working(client, queue, agent(llm)),
    ):
        thread = await start(client, queue)
        turns = await asyncio.gather(*(send(thread, f"say {n}", f"m{n}") for n in range(4)))
        assert [turn.reply for turn in turns] == [f"SAY {n}" for n in range(4)]
        assert len(await transcript(thread)) == 4


async def test_agt_o01_no_model_and_no_tool_before_the_input_passes(client: Client, queue: str) -> None:
    called: list[Any] = []
    slow = guarding("topic", "attack", model=finding("attack", latency=0.5))
    declared: dict[str, JSON] = {"type": "object", "properties": {"to": {"type": "string"}}}
    mail = Tool("send_mail", called.append, parameters=declared)
    async with LLM([Wants("send_mail", {"to": "x"})], ["sent"]) as llm:
        helper = agent(llm, input=["topic"], tools=[mail])
        async with working(client, queue, helper, slow) as store:
            thread = await start(client, queue)
            turn = await send(thread, "attack now", "m1")
            assert (turn.outcome, turn.phase, turn.tripwire) == (
                "blocked", "input", {"reason": "unsafe", "metadata": {"policy": "p1"}},
            )  # fmt: skip
            assert llm.requests == []
            assert called == []
            assert turn.text == ""
            seen = await events(client, thread, "m1")
            assert [event["type"] for event in seen] == ["started", "ended"]
            assert seen[-1]["event"] == "blocked"
            (decision,) = store.decisions.values()
            assert (decision.phase, decision.ids.message) == ("input", "m1")
            assert turn.decision_ids == [str(decision.decision_id)]
            assert (await send(thread, "fine", "m2")).outcome == "finished"
            assert "attack" not in str(llm.requests)
            assert called == [{"to": "x"}]


async def test_an_input_that_is_filtered_ends_the_turn_without_a_model_call(
    client: Client, queue: str
) -> None:
    topic = guarding("topic", "spam", policy=filter_unsafe)
    async with LLM() as llm, working(client, queue, agent(llm, input=["topic"]), topic):
        turn = await send(await start(client, queue), "spam")
        assert (turn.outcome, turn.event, turn.text, turn.steps) == ("filtered", "filtered", "", [])
        assert llm.requests == []


async def test_agt_o02_blocked_output_is_retracted_and_never_comes_back(client: Client, queue: str) -> None:
    quality = guarding("quality", "SECRET")
    async with (
        LLM(["the SECRET", " is out"], ["fine"]) as llm,
        working(client, queue, agent(llm, output=["quality"]), quality) as store,
    ):
        thread = await start(client, queue)
        turn = await send(thread, "tell me", "m1")
        assert (turn.outcome, turn.event, turn.phase) == ("blocked", "retracted", "output")
        assert turn.steps == []
        (decision,) = store.decisions.values()
        assert decision.state == "the SECRET is out"
        seen = await events(client, thread, "m1")
        assert [event["type"] for event in seen].count("ended") == 1
        assert shown(seen) == ""
        await send(thread, "again", "m2")
        assert llm.requests[1]["messages"][1:] == [
            {"role": "user", "content": "tell me"},
            {"role": "user", "content": "again"},
        ]
        assert "SECRET" not in str(await transcript(thread))


async def test_filtered_output_is_retracted_too(client: Client, queue: str) -> None:
    quality = guarding("quality", "rude", policy=filter_unsafe)
    async with LLM(["rude"]) as llm, working(client, queue, agent(llm, output=["quality"]), quality):
        turn = await send(await start(client, queue), "hi")
        assert (turn.outcome, turn.event, turn.steps) == ("filtered", "retracted", [])


async def test_output_processors_judge_exactly_what_was_released(client: Client, queue: str) -> None:
    states: list[Any] = []

    def note(decision: Decision) -> None:
        if decision.phase == "output":
            states.append(decision.state)

    safety = guarding("safety", "bad", policy=filter_unsafe)
    quality = guarding("quality", "never", on_decision=note)
    helper_options = {"stream": ["safety"], "output": ["quality"]}
    async with (
        LLM(["good ", "bad ", "end"]) as llm,
        working(client, queue, agent(llm, **helper_options), safety, quality),
    ):
        thread = await start(client, queue)
        turn = await send(thread, "hi", "m1")
        assert turn.reply == "good end"
        assert states == ["good end"]
        assert shown(await events(client, thread, "m1")) == "good end"


async def test_an_abort_in_the_stream_ends_the_turn_and_releases_nothing_after_it(
    client: Client, queue: str
) -> None:
    safety = guarding("safety", "HUNTER2", hold_back=6)
    async with (
        LLM(["the code is ", "HUN", "TER2", " ok"], ["fine"]) as llm,
        working(client, queue, agent(llm, stream=["safety"]), safety) as store,
    ):
        thread = await start(client, queue)
        turn = await send(thread, "tell me", "m1")
        assert (turn.outcome, turn.phase, turn.processor) == ("blocked", "stream", "safety")
        seen = await events(client, thread, "m1")
        assert "HUN" not in shown(seen)
        assert [event["event"] for event in seen if event["type"] == "ended"] == ["blocked"]
        assert "HUN" not in str(await transcript(thread))
        await send(thread, "and now?", "m2")
        assert "code" not in str(llm.requests[1]["messages"])
        assert {decision.phase for decision in store.decisions.values()} == {"stream"}


async def test_str_o05_streaming_is_always_guarded_and_recorded_with_nobody_reading(
    client: Client, queue: str
) -> None:
    async with (
        LLM(["this is ", "HUNTER2"]) as llm,
        working(client, queue, agent(llm, stream=["s"]), guarding("s", "HUNTER2")) as store,
    ):
        turn = await send(await start(client, queue), "hi")
        assert turn.outcome == "blocked"
        assert [each.outcome for each in store.decisions.values()] == ["allowed", "aborted"]


@pytest.mark.parametrize(
    ("retries", "outcome", "calls"), [(2, "finished", 3), (1, "blocked", 2), (0, "blocked", 1)]
)
async def test_agt_o06_each_retry_judges_its_own_output_and_k_means_k(
    client: Client, queue: str, retries: int, outcome: str, calls: int
) -> None:
    quality = guarding("quality", "bad")
    async with LLM(["bad one"], ["bad two"], ["good"]) as llm:
        helper = agent(llm, output=["quality"], max_retries=retries)
        async with working(client, queue, helper, quality) as store:
            thread = await start(client, queue)
            turn = await send(thread, "hi", "m1")
            assert (turn.outcome, turn.model_calls) == (outcome, calls)
            assert len(llm.requests) == len(store.decisions) == calls
            assert [each.state for each in store.decisions.values()] == ["bad one", "bad two", "good"][:calls]
            assert "bad" not in str([request["messages"] for request in llm.requests])
            if retries:
                assert "unsafe" in llm.requests[1]["messages"][-1]["content"]
            assert shown(await events(client, thread, "m1")) == ("good" if outcome == "finished" else "")


async def test_a_failing_classifier_is_not_held_against_the_model(client: Client, queue: str) -> None:
    quality = guarding("quality")
    async with LLM(["it is down"]) as llm:
        helper = agent(llm, output=["quality"], max_retries=3, failures_allowed=1)
        async with working(client, queue, helper, quality):
            turn = await send(await start(client, queue), "hi")
            assert (turn.outcome, turn.model_calls) == ("blocked", 1)


async def test_agt_o05_a_broken_policy_fails_the_turn_and_not_the_thread(client: Client, queue: str) -> None:
    processors = [guarding("in", policy=broken), guarding("s", policy=broken), guarding("out", policy=broken)]
    for phase, processor in zip(("input", "stream", "output"), processors, strict=True):
        async with LLM(["hello"]) as llm:
            helper = agent(llm, **{phase: [processor.id]})
            async with working(client, f"{queue}-{phase}", helper, processor):
                thread = await start(client, f"{queue}-{phase}")
                turn = await send(thread, "hi", "m1")
                assert (turn.outcome, turn.code, turn.steps) == ("failed", "POLICY_ERROR", [])
                assert shown(await events(client, thread, "m1")) == ""


async def test_an_unknown_agent_fails_the_turn_by_name(client: Client, queue: str) -> None:
    async with LLM() as llm, working(client, queue, agent(llm)):
        thread = await client.start_workflow(
            AgentWorkflow.run, ThreadRequest("nobody"), id=f"t-{uuid.uuid4()}", task_queue=queue
        )
        assert ((await send(thread, "hi")).code) == "CONFIGURATION"


@pytest.mark.parametrize(("message", "text"), [("", "hi"), ("m" * 201, "hi"), ("m1", "  ")])
async def test_a_message_that_cannot_be_answered_is_refused(
    client: Client, queue: str, message: str, text: str
) -> None:
    async with LLM() as llm, working(client, queue, agent(llm)):
        thread = await start(client, queue)
        with pytest.raises(WorkflowUpdateFailedError):
            await update(thread, SEND, Send(message, text), Turn)


async def test_a_reply_that_ran_out_of_tokens_is_finished_as_it_is(client: Client, queue: str) -> None:
    async with LLM(["cut o", Finish("length")]) as llm, working(client, queue, agent(llm)):
        assert (await send(await start(client, queue), "hi")).reply == "cut o"


async def test_a_reply_that_the_service_filtered_fails_the_turn(client: Client, queue: str) -> None:
    async with LLM(["half", Finish("content_filter")]) as llm, working(client, queue, agent(llm)):
        turn = await send(await start(client, queue), "hi")
        assert (turn.outcome, turn.code, turn.steps) == ("failed", "REQUEST_REJECTED", [])


async def test_policy_gets_the_request_context_and_the_thread(client: Client, queue: str) -> None:
    seen: list[Any] = []

    def policy(answers: Any, context: PolicyContext[Any]) -> None:
        seen.append((context.phase, context.request_context["tenant_id"], context.request_context["plan"]))

    guards = [guarding(name, policy=policy) for name in ("a", "b", "c")]
    async with LLM(["hello", Pause(0.01)]) as llm:
        helper = agent(llm, input=["a"], stream=["b"], output=["c"])
        async with working(client, queue, helper, *guards) as store:
            thread = await start(
                client, queue, context={"tenant_id": "acme", "plan": "x"}, thread="t-7", resource="ada"
            )
            await send(thread, "hi", "m1")
            assert seen == [(phase, "acme", "x") for phase in ("input", "stream", "output")]
            ids = {(each.ids.thread, each.ids.resource, each.tenant) for each in store.decisions.values()}
            assert ids == {("t-7", "ada", "acme")}
