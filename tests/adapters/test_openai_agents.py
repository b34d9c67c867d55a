"""Guardrails of the OpenAI Agents SDK in workflows: nothing passes unjudged, and nothing is judged twice."""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import AsyncGenerator
from typing import TYPE_CHECKING, Any

import pytest
from temporalio.client import WorkflowUpdateFailedError
from temporalio.exceptions import ApplicationError
from temporalio.worker import Replayer

from classifier.adapters.plain import Plain
from classifier.audit.memory import MemoryStore
from classifier.decision import Tripwire
from classifier.errors import ConfigurationError
from classifier.temporal.plugin import CallerPlugin
from classifier.temporal.workflow import tripwire_of
from tests import late
from tests.adapters.guards import app, ids, owners, rows
from tests.agents.llm import LLM, Reply, Wants
from tests.agents.support import update

if TYPE_CHECKING:
    from agents import (
        Agent,
        InputGuardrailTripwireTriggered,
        OutputGuardrailTripwireTriggered,
        Runner,
        SQLiteSession,
    )

    from classifier.adapters.openai_agents import input_guardrail, output_guardrail, stop_in
    from classifier.adapters.tripwires import TripwirePlugin
    from tests.adapters.openai_project import Project, agents_plugin, provider, working
    from tests.adapters.openai_workflows import Asked, Support, SupportByUpdate

ANSWER: Reply = ["fine"]
CALL: Reply = [Wants("look_up", {"card": "1"})]
BAD_CALL: Reply = [Wants("look_up", {"card": "bad"})]
BAD_ARGUMENTS = '{"card": "bad"}'


@pytest.fixture(scope="module", autouse=True)
def framework() -> None:
    late.imports(globals())


@contextlib.asynccontextmanager
async def project(temporal_address: str, queue: str, *replies: Reply) -> AsyncGenerator[tuple[Project, LLM]]:
    async with LLM(*replies, streamed=False) as llm, working(temporal_address, queue, llm) as made:
        yield made, llm


@pytest.mark.slow  # the first of the file waits for the framework to load
async def test_what_is_allowed_is_recorded_once_at_each_point(temporal_address: str, queue: str) -> None:
    every = ["strict"]
    async with project(temporal_address, queue, CALL, ANSWER) as (made, _):
        assert await made.ask(Asked("hello", every, every, every, every)) == "fine"
    assert rows(made.store) == [
        ("strict", "input", "hello", "allowed"),
        ("strict", "output", '{"card": "1"}', "allowed"),
        ("strict", "input", "card 1 is blocked", "allowed"),
        ("strict", "output", "fine", "allowed"),
    ]
    assert owners(made.store) == {("acme", "t-7")}


async def test_no_model_is_called_before_the_input_passes(temporal_address: str, queue: str) -> None:
    async with project(temporal_address, queue) as (made, llm):
        failed = await made.ask(Asked("bad", ["strict"], ["strict"]))
        assert llm.requests == []
    assert isinstance(failed, ApplicationError)
    assert failed.type == "TRIPWIRE"
    assert tripwire_of(failed) == Tripwire("unsafe", {"policy": "p1"})
    assert failed.details[0]["decision_ids"] == ids(made.store)
    assert "bad" not in str(failed)


async def test_a_workflow_may_catch_the_exception_it_knows_and_read_why(
    temporal_address: str, queue: str
) -> None:
    async with project(temporal_address, queue) as (made, _):
        assert await made.ask(Asked("bad", ["strict"], catches=True)) == "aborted by strict"


async def test_an_output_that_aborts_fails_the_run(temporal_address: str, queue: str) -> None:
    async with project(temporal_address, queue, ["bad"]) as (made, _):
        failed = await made.ask(Asked("hello", ["strict"], ["strict"]))
    assert isinstance(failed, ApplicationError)
    assert tripwire_of(failed) == Tripwire("unsafe", {"policy": "p1"})
    assert rows(made.store)[-1] == ("strict", "output", "bad", "aborted")


@pytest.mark.parametrize("phase", ["input", "output"])
async def test_where_nothing_can_be_dropped_a_filter_stops_the_run(
    phase: str, temporal_address: str, queue: str
) -> None:
    asked = Asked("bad", ["dropping"]) if phase == "input" else Asked("hello", [], ["dropping"])
    async with project(temporal_address, queue, ["bad"]) as (made, _):
        failed = await made.ask(asked)
    assert isinstance(failed, ApplicationError)
    assert failed.type == "FILTERED"
    assert failed.details[0]["reason"] is None
    assert rows(made.store) == [("dropping", phase, "bad", "filtered")]


async def test_a_tool_whose_arguments_abort_does_not_run(temporal_address: str, queue: str) -> None:
    async with project(temporal_address, queue, BAD_CALL) as (made, llm):
        failed = await made.ask(Asked("hello", arguments=["strict"], results=["strict"]))
        assert len(llm.requests) == 1
    assert isinstance(failed, ApplicationError)
    assert failed.type == "TRIPWIRE"
    assert rows(made.store) == [("strict", "output", BAD_ARGUMENTS, "aborted")]


async def test_of_filtered_arguments_the_model_sees_that_they_were_withheld(
    temporal_address: str, queue: str
) -> None:
    async with project(temporal_address, queue, BAD_CALL, ANSWER) as (made, llm):
        assert await made.ask(Asked("hello", arguments=["dropping"], results=["strict"])) == "fine"
        assert llm.requests[1]["messages"][-1]["content"] == "(withheld)"
    assert rows(made.store) == [("dropping", "output", BAD_ARGUMENTS, "filtered")]


async def test_a_result_that_aborts_never_reaches_the_model(temporal_address: str, queue: str) -> None:
    async with project(temporal_address, queue, BAD_CALL) as (made, llm):
        failed = await made.ask(Asked("hello", results=["strict"]))
        assert len(llm.requests) == 1
    assert isinstance(failed, ApplicationError)
    assert failed.type == "TRIPWIRE"
    assert rows(made.store) == [("strict", "input", "card bad is blocked", "aborted")]


async def test_a_filtered_result_is_withheld(temporal_address: str, queue: str) -> None:
    async with project(temporal_address, queue, BAD_CALL, ANSWER) as (made, llm):
        assert await made.ask(Asked("hello", results=["dropping"])) == "fine"
        assert llm.requests[1]["messages"][-1]["content"] == "(withheld)"


async def test_every_message_of_the_user_is_judged_and_nobody_elses(
    temporal_address: str, queue: str
) -> None:
    image = {"type": "input_image", "image_url": "data:image/png;base64,AAAA", "detail": "auto"}
    said = [
        {"role": "user", "content": "first"},
        {"role": "assistant", "content": "a bad word of ours"},
        {"role": "user", "content": [{"type": "input_text", "text": "second"}, image]},
    ]
    async with project(temporal_address, queue, ANSWER) as (made, _):
        assert await made.ask(Asked(said, ["strict"])) == "fine"
    assert rows(made.store) == [
        ("strict", "input", "first", "allowed"),
        ("strict", "input", "second", "allowed"),
    ]


@pytest.mark.parametrize("named", ["nobody", "faulty"])
async def test_a_fault_of_the_project_fails_the_run_for_good(
    named: str, temporal_address: str, queue: str
) -> None:
    async with project(temporal_address, queue, CALL) as (made, _):
        failed = await made.ask(Asked("hello", [named]))
    assert isinstance(failed, ApplicationError)
    assert failed.type == {"nobody": "CONFIGURATION", "faulty": "POLICY_ERROR"}[named]
    assert rows(made.store) == []


async def test_a_fault_in_a_tools_guard_is_not_told_to_the_model(temporal_address: str, queue: str) -> None:
    async with project(temporal_address, queue, CALL) as (made, llm):
        failed = await made.ask(Asked("hello", arguments=["faulty"]))
        assert len(llm.requests) == 1
    assert isinstance(failed, ApplicationError)
    cause = failed.cause
    assert isinstance(cause, ApplicationError)
    assert cause.type == "POLICY_ERROR"


async def test_where_a_tool_has_the_last_word_its_abort_ends_the_run_without_a_reason(
    temporal_address: str, queue: str
) -> None:
    async with project(temporal_address, queue, BAD_CALL) as (made, _):
        failed = await made.ask(Asked("hello", output=["strict"], stop_on_tool=True))
    assert isinstance(failed, ApplicationError)
    assert failed.type == "OutputGuardrailTripwireTriggered"
    assert rows(made.store) == [("strict", "output", "card bad is blocked", "aborted")]


async def test_a_tripwire_in_an_update_fails_the_update_and_the_workflow_lives_on(
    temporal_address: str, queue: str
) -> None:
    async with project(temporal_address, queue, ANSWER) as (made, _):
        handle = await made.client.start_workflow(SupportByUpdate.run, id=queue, task_queue=queue)
        with pytest.raises(WorkflowUpdateFailedError) as raised:
            await update(handle, "ask", Asked("bad", ["strict"]), str)
        assert tripwire_of(raised.value.cause) == Tripwire("unsafe", {"policy": "p1"})
        assert await update(handle, "ask", Asked("hello", ["strict"]), str) == "fine"
        await handle.terminate()


async def test_guarded_runs_replay(temporal_address: str, queue: str) -> None:
    every = ["strict"]
    async with project(temporal_address, queue, CALL, ["bad"]) as (made, llm):
        failed = await made.ask(Asked("hello", every, every, every, every))
        assert isinstance(failed, ApplicationError)
        history = await made.client.get_workflow_handle(queue).fetch_history()
        replayer = Replayer(
            workflows=[Support], plugins=[agents_plugin(llm), CallerPlugin(), TripwirePlugin()]
        )
        await replayer.replay_workflow(history)


async def test_in_plain_asyncio_the_same_guards_judge_through_an_app_and_a_store() -> None:
    store = MemoryStore()
    plain = Plain(app().resolve({}), store)
    async with LLM(ANSWER, streamed=False) as llm:
        agent: Agent[Any] = Agent(
            name="plain",
            model=provider(llm).get_model("tested"),
            input_guardrails=[input_guardrail("strict", plain=plain)],
            output_guardrails=[output_guardrail("dropping", plain=plain)],
        )
        assert (await Runner.run(agent, "hello")).final_output == "fine"
        with pytest.raises(InputGuardrailTripwireTriggered) as raised:
            await Runner.run(agent, "bad")
        assert len(llm.requests) == 1
    stop = stop_in(raised.value)
    assert stop is not None
    assert (stop.phase, stop.processor_id, stop.tripwire) == (
        "input",
        "strict",
        Tripwire("unsafe", {"policy": "p1"}),
    )
    assert rows(store) == [
        ("strict", "input", "hello", "allowed"),
        ("dropping", "output", "fine", "allowed"),
        ("strict", "input", "bad", "aborted"),
    ]
    assert list(stop.decision_ids) == ids(store)[-1:]


async def test_what_was_blocked_is_not_answered_later_either_though_the_sdk_remembers_it() -> None:
    store = MemoryStore()
    plain = Plain(app().resolve({}), store)
    session = SQLiteSession("t-7")
    async with LLM(["bad"], ANSWER, streamed=False) as llm:
        agent: Agent[Any] = Agent(
            name="plain",
            model=provider(llm).get_model("tested"),
            input_guardrails=[input_guardrail("strict", plain=plain)],
            output_guardrails=[output_guardrail("strict", plain=plain)],
        )
        with pytest.raises(OutputGuardrailTripwireTriggered):
            await Runner.run(agent, "hello", session=session)
        for message in ("bad words", "hello again"):
            with pytest.raises(InputGuardrailTripwireTriggered):
                await Runner.run(agent, message, session=session)
        for _ in range(2):
            await session.pop_item()  # as the documents say
        assert (await Runner.run(agent, "hello again", session=session)).final_output == "fine"
        assert [each["content"] for each in llm.requests[-1]["messages"]] == ["hello", "hello again"]
    session.close()


async def test_without_a_workflow_and_without_an_app_nothing_runs_unjudged() -> None:
    async with LLM(streamed=False) as llm:
        agent: Agent[Any] = Agent(
            name="plain",
            model=provider(llm).get_model("tested"),
            input_guardrails=[input_guardrail("strict")],
        )
        with pytest.raises(ConfigurationError, match="outside a workflow"):
            await Runner.run(agent, f"hello {uuid.uuid4()}")
        assert llm.requests == []


def test_a_guardrail_without_processors_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="at least one processor"):
        input_guardrail()


def test_other_errors_have_no_stop() -> None:
    assert stop_in(ValueError("x")) is None
