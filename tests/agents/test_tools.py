"""Tools: checked arguments, processors of their own, people who approve, and effects that happen once."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from temporalio.client import Client, WorkflowExecutionStatus, WorkflowUpdateFailedError

from activities.chat_tools import idempotency_key
from classifier.agent import Tool
from classifier.errors import ConfigurationError, ModelUnavailable, PolicyError
from classifier.values import JSON
from tests.agents.llm import LLM, Reply, Wants
from tests.agents.support import Handle, agent, events, guarding, send, start, update, working
from tests.classifier.conformance import filter_unsafe
from tests.classifier.temporal.letters import until
from workflows.agent_messages import APPROVE, DENY, STATE, Approval, ThreadState, Turn

ORDER: dict[str, JSON] = {
    "type": "object",
    "properties": {"order": {"type": "integer"}},
    "required": ["order"],
    "additionalProperties": False,
}


class Desk:
    """A tool that remembers what it did."""

    def __init__(self, result: Any = "done", error: Exception | None = None) -> None:
        self.calls: list[Any] = []
        self.keys: list[str] = []
        self._result = result
        self._error = error

    def tool(self, name: str = "refund", **options: Any) -> Tool:
        return Tool(name, self.refund, parameters=ORDER, **options)

    async def refund(self, arguments: dict[str, Any]) -> Any:
        self.calls.append(arguments)
        self.keys.append(idempotency_key())
        if self._error is not None:
            raise self._error
        return self._result


async def state(thread: Handle) -> ThreadState:
    found: ThreadState = await thread.query(STATE, result_type=ThreadState)
    return found


def told(llm: LLM, request: int = 1) -> Any:
    """What the model was told about its last tool call."""
    return llm.requests[request]["messages"][-1]["content"]


async def test_a_tool_runs_and_the_model_is_told(client: Client, queue: str) -> None:
    desk = Desk({"paid": True})
    replies: list[Reply] = [["I look. ", Wants("refund", {"order": 7})], ["It is paid."]]
    async with LLM(*replies) as llm, working(client, queue, agent(llm, tools=[desk.tool()])):
        thread = await start(client, queue)
        turn = await send(thread, "refund 7", "m1")
        assert turn.reply == "I look. It is paid."
        assert desk.calls == [{"order": 7}]
        assert llm.requests[0]["tools"][0]["function"]["parameters"] == ORDER
        assert llm.requests[1]["messages"][2:] == [
            {
                "role": "assistant",
                "content": "I look. ",
                "tool_calls": [
                    {
                        "id": "call_1",
                        "type": "function",
                        "function": {"name": "refund", "arguments": '{"order": 7}'},
                    }
                ],
            },
            {"role": "tool", "tool_call_id": "call_1", "content": '{"paid": true}'},
        ]
        seen = await events(client, thread, "m1")
        assert [event["state"] for event in seen if event["type"] == "tool"] == ["started", "finished"]
        (call,) = turn.steps[0].calls
        assert (call.name, call.state, call.result) == ("refund", "finished", '{"paid": true}')


@pytest.mark.parametrize(
    ("wants", "problem"),
    [
        (
            Wants("refund", {"order": "seven"}),
            "(not run: the arguments do not match the schema at $.order: type)",
        ),
        (Wants("refund", {}), "(not run: the arguments do not match the schema at $: required)"),
        (Wants("refund", []), "(not run: the arguments are not a JSON object)"),
        (Wants("fly", {}), "(not run: there is no such tool)"),
    ],
)
async def test_arguments_that_do_not_fit_are_not_run(
    client: Client, queue: str, wants: Wants, problem: str
) -> None:
    desk = Desk()
    async with LLM([wants], ["sorry"]) as llm, working(client, queue, agent(llm, tools=[desk.tool()])):
        turn = await send(await start(client, queue), "hi")
        assert turn.outcome == "finished"
        assert desk.calls == []
        assert told(llm) == problem


async def test_arguments_that_are_not_json_are_not_run_and_not_sent_back(client: Client, queue: str) -> None:
    desk = Desk()
    async with (
        LLM([Wants("refund", "{nonsense")], ["sorry"]) as llm,
        working(client, queue, agent(llm, tools=[desk.tool()])),
    ):
        await send(await start(client, queue), "hi")
        assert desk.calls == []
        assert told(llm) == "(not run: the arguments are not JSON)"


async def test_processors_of_arguments_see_them_before_the_tool_does(client: Client, queue: str) -> None:
    desk = Desk()
    guard = guarding("numbers", "13")
    tool = desk.tool(arguments=["numbers"])
    async with (
        LLM([Wants("refund", {"order": 13})], ["x"]) as llm,
        working(client, queue, agent(llm, tools=[tool]), guard) as store,
    ):
        thread = await start(client, queue)
        turn = await send(thread, "hi", "m1")
        assert (turn.outcome, turn.phase) == ("blocked", "arguments")
        assert desk.calls == []
        (decision,) = store.decisions.values()
        assert (decision.phase, decision.state) == ("output", '{"order": 13}')
        await send(thread, "again", "m2")
        assert "13" not in str(llm.requests[1]["messages"])


async def test_results_that_are_filtered_are_withheld_from_the_model(client: Client, queue: str) -> None:
    desk = Desk("the PIN is 1234")
    guard = guarding("secrets", "PIN", policy=filter_unsafe)
    tool = desk.tool(results=["secrets"])
    async with (
        LLM([Wants("refund", {"order": 1})], ["I may not say"]) as llm,
        working(client, queue, agent(llm, tools=[tool]), guard) as store,
    ):
        turn = await send(await start(client, queue), "hi")
        assert turn.outcome == "finished"
        assert told(llm) == "(withheld)"
        assert [each.phase for each in store.decisions.values()] == ["input"]
        assert turn.steps[0].calls[0].state == "withheld"


async def test_a_result_that_aborts_blocks_the_turn_and_its_effect_stays_visible(
    client: Client, queue: str
) -> None:
    desk = Desk("the PIN is 1234")
    tool = desk.tool(results=["secrets"])
    async with (
        LLM([Wants("refund", {"order": 1})], ["fine"]) as llm,
        working(client, queue, agent(llm, tools=[tool]), guarding("secrets", "PIN")),
    ):
        thread = await start(client, queue)
        turn = await send(thread, "hi", "m1")
        assert (turn.outcome, turn.phase) == ("blocked", "results")
        await send(thread, "again", "m2")
        messages = llm.requests[1]["messages"]
        assert messages[3] == {"role": "tool", "tool_call_id": "call_1", "content": "(withheld)"}
        assert "PIN" not in str(messages)
        assert len(desk.calls) == 1


async def test_agt_o02_tools_that_ran_in_a_blocked_turn_stay_visible(client: Client, queue: str) -> None:
    desk = Desk("paid")
    async with LLM(["On it. ", Wants("refund", {"order": 1})], ["SECRET"], ["fine"]) as llm:
        helper = agent(llm, tools=[desk.tool()], output=["quality"])
        async with working(client, queue, helper, guarding("quality", "SECRET")):
            thread = await start(client, queue)
            assert (await send(thread, "hi", "m1")).event == "retracted"
            await send(thread, "again", "m2")
            roles = [message["role"] for message in llm.requests[2]["messages"]]
            assert roles == ["system", "user", "assistant", "tool", "user"]
            assert llm.requests[2]["messages"][2]["content"] is None
            assert "SECRET" not in str(llm.requests[2])


async def waiting_for(thread: Handle) -> ThreadState:
    async def asks() -> bool:
        return (await state(thread)).status == "approval"

    await until(asks)
    return await state(thread)


@pytest.mark.parametrize("by_signal", [True, False])
async def test_a_call_that_needs_approval_waits_for_it(client: Client, queue: str, by_signal: bool) -> None:
    desk = Desk("paid")
    tool = desk.tool(needs_approval=True)
    async with (
        LLM([Wants("refund", {"order": 1})], ["done"]) as llm,
        working(client, queue, agent(llm, tools=[tool])) as store,
    ):
        thread = await start(client, queue)
        sent = asyncio.create_task(send(thread, "hi", "m1"))
        found = await waiting_for(thread)
        assert found.waiting is not None
        assert (found.waiting.name, found.waiting.arguments) == ("refund", {"order": 1})
        assert desk.calls == []
        approval = Approval(found.waiting.call, by="kim", reason="known customer")
        if by_signal:
            await thread.signal(APPROVE, approval)
        else:
            await update(thread, APPROVE, approval)
        assert (await sent).reply == "done"
        assert len(desk.calls) == 1
        await until(lambda: recorded(store))
        (event,) = store.history.values()
        assert (event.kind, event.actor, event.body["approved"]) == ("approval", "kim", True)
        states = [e["state"] for e in await events(client, thread, "m1") if e["type"] == "tool"]
        assert states == ["approval", "started", "finished"]


async def recorded(store: Any) -> bool:
    return len(store.history) > 0


async def test_a_denied_call_does_not_run_and_the_model_is_told_why(client: Client, queue: str) -> None:
    desk = Desk()
    tool = desk.tool(needs_approval=True)
    async with (
        LLM([Wants("refund", {"order": 1})], ["I may not"]) as llm,
        working(client, queue, agent(llm, tools=[tool])),
    ):
        thread = await start(client, queue)
        sent = asyncio.create_task(send(thread, "hi"))
        found = await waiting_for(thread)
        assert found.waiting is not None
        await update(thread, DENY, Approval(found.waiting.call, "kim", "too old"))
        assert (await sent).outcome == "finished"
        assert desk.calls == []
        assert told(llm) == "(a person denied this: too old)"


async def test_an_approval_of_something_else_is_refused(client: Client, queue: str) -> None:
    async with LLM() as llm, working(client, queue, agent(llm)):
        thread = await start(client, queue)
        with pytest.raises(WorkflowUpdateFailedError):
            await update(thread, APPROVE, Approval("m1:1", "kim"))
        await thread.signal(APPROVE, Approval("m1:1", "kim"))
        assert (await state(thread)).status == "idle"


async def test_agt_o04_what_was_done_before_a_wait_is_not_done_again(client: Client, queue: str) -> None:
    charge, ship = Desk("charged"), Desk("shipped")
    tools = [charge.tool("charge"), ship.tool("ship", needs_approval=True)]
    replies: list[Reply] = [
        [Wants("charge", {"order": 1})],
        [Wants("ship", {"order": 1}, "call_2")],
        ["done"],
    ]
    async with LLM(*replies) as llm:
        helper = agent(llm, tools=tools)
        async with working(client, queue, helper):
            thread = await start(client, queue)
            sent = asyncio.create_task(send(thread, "buy", "m1"))
            found = await waiting_for(thread)
        for _ in range(3):
            async with working(client, queue, helper, max_cached_workflows=0):
                assert await waiting_for(thread) == found
        async with working(client, queue, helper):
            assert found.waiting is not None
            await thread.signal(APPROVE, Approval(found.waiting.call, "kim"))
            assert (await sent).reply == "done"
    assert (len(charge.calls), len(ship.calls)) == (1, 1)


@pytest.mark.parametrize(
    ("error", "tries"),
    [
        (ValueError("secret"), 2),
        (ModelUnavailable("x"), 2),
        (PolicyError("x"), 1),
        (ConfigurationError("x"), 1),
    ],
)
async def test_agt_o05_a_tool_that_raises_ends_and_its_words_stay_with_it(
    client: Client, queue: str, error: Exception, tries: int
) -> None:
    desk = Desk(error=error)
    async with (
        LLM([Wants("refund", {"order": 1})], ["it failed"]) as llm,
        working(client, queue, agent(llm, tools=[desk.tool(attempts=2)])),
    ):
        turn = await asyncio.wait_for(send(await start(client, queue), "hi"), 10)
        assert turn.outcome == "finished"
        assert told(llm) == f"(the tool failed: {type(error).__name__})"
        assert len(desk.calls) == tries
        assert len(set(desk.keys)) == 1


async def test_a_model_that_never_stops_calling_is_stopped(client: Client, queue: str) -> None:
    desk = Desk()
    async with (
        LLM(script=lambda body: [Wants("refund", {"order": 1})]) as llm,
        working(client, queue, agent(llm, tools=[desk.tool()], max_turns=3)),
    ):
        turn: Turn = await send(await start(client, queue), "hi")
        assert (turn.outcome, turn.code, turn.model_calls) == ("failed", "TOO_MANY_MODEL_CALLS", 3)


async def test_str_o08_a_term_around_a_tool_call_is_seen_as_one(client: Client, queue: str) -> None:
    desk = Desk()
    safety = guarding("safety", "HUNTER2", hold_back=6)
    async with (
        LLM(["HUN", Wants("refund", {"order": 1})], ["TER2", " ok"]) as llm,
        working(client, queue, agent(llm, tools=[desk.tool()], stream=["safety"]), safety),
    ):
        thread = await start(client, queue)
        turn = await send(thread, "hi", "m1")
        assert (turn.outcome, turn.phase) == ("blocked", "stream")
        texts = [e["text"] for e in await events(client, thread, "m1") if e["type"] == "text"]
        assert "".join(texts) == "HUN"


async def test_several_calls_of_one_reply_run_one_after_another(client: Client, queue: str) -> None:
    desk = Desk()
    reply = [Wants("refund", {"order": 1}, "a"), Wants("refund", {"order": 2}, "b")]
    async with LLM(reply, ["done"]) as llm, working(client, queue, agent(llm, tools=[desk.tool()])):
        await send(await start(client, queue), "hi")
        assert desk.calls == [{"order": 1}, {"order": 2}]
        assert len(set(desk.keys)) == 2


async def test_results_beyond_what_temporal_carries_are_cut_and_then_left_out(
    client: Client, queue: str
) -> None:
    desk = Desk("\u0448" * 60_000)
    async with (
        LLM(script=lambda body: [Wants("refund", {"order": 1})]) as llm,
        working(client, queue, agent(llm, tools=[desk.tool()])),
    ):
        turn: Turn = await send(await start(client, queue), "more and more", "m1")
        assert (turn.outcome, turn.code) == ("failed", "TOO_MANY_MODEL_CALLS")
        results = [call.result for step in turn.steps for call in step.calls]
        assert results[0].endswith(" (cut)")
        assert results[-1] == "(too long to keep)"


async def test_a_conversation_beyond_what_temporal_carries_fails_the_turn_and_not_the_thread(
    client: Client, queue: str
) -> None:
    async with (
        LLM(script=lambda body: ["\u0448" * 40_000]) as llm,
        working(client, queue, agent(llm, memory=10_000_000)),
    ):
        thread = await start(client, queue)
        turns: list[Turn] = [await send(thread, "\u0448" * 130_000) for _ in range(2)]
        assert [(turn.outcome, turn.code) for turn in turns] == [
            ("finished", None), ("failed", "INPUT_TOO_LARGE"),
        ]  # fmt: skip
        assert (await thread.describe()).status is WorkflowExecutionStatus.RUNNING


async def test_a_reply_without_end_fails_the_turn(client: Client, queue: str) -> None:
    async with LLM(["x" * 40_000] * 5) as llm, working(client, queue, agent(llm)):
        turn: Turn = await send(await start(client, queue), "hi")
        assert (turn.outcome, turn.code, turn.steps) == ("failed", "INVALID_ANSWER", [])
