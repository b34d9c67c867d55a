"""Attempts of a model call that fail, die or come twice, and a store that is away meanwhile."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest
from temporalio import activity
from temporalio.client import Client
from temporalio.converter import DataConverter
from temporalio.exceptions import ApplicationError
from temporalio.worker import ActivityInboundInterceptor, ExecuteActivityInput, Interceptor

from activities.chat_messages import CHAT, publisher_of, text_event
from activities.chat_publish import Publisher
from classifier.audit.memory import MemoryStore
from classifier.decision import Decision
from classifier.models.protocol import DecisionRequest
from classifier.models.scripted import ScriptedModel
from tests.agents.llm import LLM, Broken, Pause, Status
from tests.agents.support import Handle, agent, events, guarding, send, shown, start, working
from tests.classifier.conformance import answering
from tests.classifier.temporal.letters import Interrupted, activities, until
from workflows.agent_messages import STATE, ThreadState


async def test_half_a_stream_is_voided_by_a_restart_marker_and_written_anew(
    client: Client, queue: str
) -> None:
    async with (
        LLM(["half of", Broken()], ["all ", "of it"]) as llm,
        working(client, queue, agent(llm, stream=["s"]), guarding("s", "x")) as store,
    ):
        thread = await start(client, queue)
        turn = await send(thread, "hi", "m1")
        assert (turn.outcome, turn.reply, turn.model_calls) == ("finished", "all of it", 1)
        seen = await events(client, thread, "m1")
        assert shown(seen) == "all of it"
        assert "restart" in [event["type"] for event in seen]
        assert [event["type"] for event in seen].count("ended") == 1
        places = {each.coordinates.activity_id for each in store.decisions.values()}
        assert places == {"agent.chat-1/1", "agent.chat-1/2"}


@pytest.mark.parametrize(
    ("status", "requests", "code"),
    [(401, 1, "AUTHENTICATION_FAILED"), (400, 1, "REQUEST_REJECTED"), (500, 2, "MODEL_UNAVAILABLE")],
)
async def test_errors_of_the_model_are_retried_by_temporal_alone_within_the_budget(
    client: Client, queue: str, status: int, requests: int, code: str
) -> None:
    async with (
        LLM(script=lambda body: [Status(status)]) as llm,
        working(client, queue, agent(llm, failures_allowed=2)),
    ):
        thread = await start(client, queue)
        turn = await send(thread, "hi")
        assert (turn.outcome, turn.code) == ("failed", code)
        assert len(llm.requests) == requests
        history = await thread.fetch_history()
        assert "secret words" not in history.to_json()


async def test_a_wait_that_the_service_asks_for_is_kept(client: Client, queue: str) -> None:
    async with (
        LLM([Status(429, {"retry-after-ms": "1500"})], ["hello"]) as llm,
        working(client, queue, agent(llm)),
    ):
        began = time.monotonic()
        assert (await send(await start(client, queue), "hi")).reply == "hello"
        assert time.monotonic() - began >= 1.5
        assert len(llm.requests) == 2


async def test_a_judgement_that_fails_for_now_is_asked_again_without_a_new_reply(
    client: Client, queue: str
) -> None:
    asked = 0

    def reply(request: DecisionRequest) -> Any:
        nonlocal asked
        asked += 1
        return answering(request) if asked > 1 else answering(DecisionRequest("down", request.questions))

    safety = guarding("s", model=ScriptedModel(reply))
    async with LLM(["fine"]) as llm, working(client, queue, agent(llm, stream=["s"]), safety) as store:
        turn = await send(await start(client, queue), "hi")
        assert (turn.outcome, len(llm.requests)) == ("finished", 1)
        (decision,) = store.decisions.values()
        assert (decision.outcome, decision.attempts, decision.failure) == ("allowed", 2, None)


class LosesTheFirstReport(Interceptor):
    """The worker dies between the end of the first model call and its report to Temporal."""

    def intercept_activity(self, next: ActivityInboundInterceptor) -> ActivityInboundInterceptor:  # noqa: A002 - the SDK's name
        return _Losing(next)


class _Losing(ActivityInboundInterceptor):
    async def execute_activity(self, input: ExecuteActivityInput) -> Any:  # noqa: A002 - the SDK's name
        result = await super().execute_activity(input)
        if activity.info().activity_type == CHAT and activity.info().attempt == 1:
            raise ApplicationError("lost")
        return result


async def test_an_abort_that_an_earlier_attempt_recorded_stays_final(client: Client, queue: str) -> None:
    async with (
        LLM(["good ", "bad"], ["all good now"]) as llm,
        working(
            client,
            queue,
            agent(llm, stream=["s"]),
            guarding("s", "bad"),
            interceptors=[LosesTheFirstReport()],
        ) as store,
    ):
        turn = await send(await start(client, queue), "hi", "m1")
        assert (turn.outcome, turn.phase, turn.processor) == ("blocked", "stream", "s")
        assert turn.tripwire == {"reason": "unsafe", "metadata": {"policy": "p1"}}
        assert len(llm.requests) == 1
        assert [each.outcome for each in store.decisions.values()] == ["allowed", "aborted"]


async def test_deferred_streams_on_while_the_store_is_away_and_the_rows_follow(
    client: Client, queue: str
) -> None:
    memory = MemoryStore()
    store = Interrupted(memory)
    store.away = True
    told: list[Decision] = []
    safety = guarding("s", "x", on_decision=told.append)
    async with (
        LLM(["one ", "two ", "three"]) as llm,
        working(client, queue, agent(llm, stream=["s"]), safety, store=store),
    ):
        thread = await start(client, queue)
        turn = await send(thread, "hi", "m1")
        assert (turn.outcome, turn.reply) == ("finished", "one two three")
        assert memory.decisions == {}
        assert "classifier.record" in await activities(thread)
        store.away = False

        async def recorded() -> bool:
            return len(memory.decisions) == 3

        await until(recorded)
        assert [each.state for each in memory.decisions.values()] == ["one ", "two ", "three"]
        assert {str(each.decision_id) for each in memory.decisions.values()} == set(turn.decision_ids)


async def test_an_abort_while_the_store_is_away_is_recorded_once_it_is_back(
    client: Client, queue: str
) -> None:
    memory = MemoryStore()
    store = Interrupted(memory)
    store.away = True
    async with (
        LLM(["one ", "bad"]) as llm,
        working(client, queue, agent(llm, stream=["s"]), guarding("s", "bad"), store=store),
    ):
        thread = await start(client, queue)
        assert (await send(thread, "hi")).outcome == "blocked"
        store.away = False

        async def recorded() -> bool:
            return len(memory.decisions) == 2

        await until(recorded)
        assert [each.outcome for each in memory.decisions.values()] == ["allowed", "aborted"]


async def test_required_releases_nothing_before_its_row_is_durable(client: Client, queue: str) -> None:
    memory = MemoryStore()
    store = Interrupted(memory)
    store.away = True
    async with LLM(script=lambda body: ["one ", "two"]) as llm:
        helper = agent(llm, stream=["s"], audit="required")
        async with working(client, queue, helper, guarding("s", "x"), store=store):
            thread = await start(client, queue)
            sent = asyncio.create_task(send(thread, "hi", "m1"))
            await store.tried.wait()
            state: ThreadState = await thread.query(STATE, result_type=ThreadState)
            assert (state.status, state.reply) == ("working", "")
            store.away = False
            assert (await sent).reply == "one two"
            rows = {str(each.state) for each in memory.decisions.values()}
            assert rows == {"one ", "two"}


async def publisher(thread: Handle) -> str:
    """The first attempt of the first model call."""
    return publisher_of((await thread.describe()).run_id or "", "agent.chat-1", 1)


async def test_publishing_from_an_attempt_that_was_replaced_is_ignored(client: Client, queue: str) -> None:
    """A worker that hung and came back writes after its successor has begun."""
    go_on = asyncio.Event()
    async with (
        LLM(["half", Broken()], ["all", Pause(go_on), " of it"]) as llm,
        working(client, queue, agent(llm)),
    ):
        thread = await start(client, queue)
        sent = asyncio.create_task(send(thread, "hi", "m1"))
        await llm.at.wait()

        async def second() -> bool:
            state: ThreadState = await thread.query(STATE, result_type=ThreadState)
            return state.reply == "all"

        await until(second)
        late = Publisher(thread, DataConverter.default.payload_converter, await publisher(thread), list)
        late.add(text_event("m1", 1, "STALE"))
        await late.flush()
        go_on.set()
        assert (await sent).reply == "all of it"
        assert "STALE" not in str(await events(client, thread, "m1"))


async def test_a_batch_that_is_sent_twice_is_shown_once(client: Client, queue: str) -> None:
    go_on = asyncio.Event()
    async with LLM([Pause(go_on), "end"]) as llm, working(client, queue, agent(llm)):
        thread = await start(client, queue)
        sent = asyncio.create_task(send(thread, "hi", "m1"))
        await llm.at.wait()
        for _ in range(2):
            same = Publisher(thread, DataConverter.default.payload_converter, await publisher(thread), list)
            same.add(text_event("m1", 1, "once "))
            await same.flush()
        state: ThreadState = await thread.query(STATE, result_type=ThreadState)
        assert state.reply == "once "
        go_on.set()
        await sent
