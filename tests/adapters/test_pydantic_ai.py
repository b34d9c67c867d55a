"""The capability of Pydantic AI in workflows: nothing passes unjudged, and nothing is judged twice."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncGenerator, Sequence
from typing import TYPE_CHECKING, Any

import pytest
from temporalio.client import Client, WorkflowFailureError
from temporalio.exceptions import ApplicationError
from temporalio.worker import Replayer, Worker

from classifier.adapters.judge import Filtered
from classifier.adapters.plain import Plain
from classifier.audit.memory import MemoryStore
from classifier.decision import Tripwire
from classifier.errors import ConfigurationError
from classifier.temporal.plugin import CallerPlugin, ClassifierPlugin
from classifier.temporal.workflow import tripwire_of
from classifier.verdict import Tripped
from tests import late
from tests.adapters.guards import app, failure_of, ids, owners, rows
from tests.agents.llm import LLM, Reply, Wants

if TYPE_CHECKING:
    from pydantic_ai.durable_exec.temporal import PydanticAIPlugin
    from pydantic_ai.messages import ModelMessage, ModelRequest, ModelResponse, TextPart, UserPromptPart

    from classifier.adapters.pydantic_ai import Guardrails
    from tests.adapters.pydantic_agents import Desk, agent_with, guarded_by
    from tests.adapters.pydantic_workflows import Support

ANSWER: Reply = ["fine"]
CALL: Reply = [Wants("look_up", {"card": "1"})]
BAD_CALL: Reply = [Wants("look_up", {"card": "bad"})]
BAD_ARGUMENTS = '{"card":"bad"}'


@pytest.fixture(scope="module", autouse=True)
def framework() -> None:
    late.imports(globals())


class Project:
    """The project at work, and its model's server."""

    def __init__(self, client: Client, queue: str, llm: LLM) -> None:
        self.client, self.queue, self.llm = client, queue, llm
        self.store = MemoryStore()

    async def ask(
        self, agent: str, message: str, history: Sequence[ModelMessage] = ()
    ) -> str | ApplicationError:
        """The answer, or what the run failed with."""
        given = [agent, message, Desk(self.llm.url), list(history)]
        try:
            answer: str = await self.client.execute_workflow(
                "Support", args=given, id=self.queue, task_queue=self.queue, result_type=str
            )
        except WorkflowFailureError as error:
            return failure_of(error)
        return answer


@contextlib.asynccontextmanager
async def project(temporal_address: str, queue: str, *replies: Reply) -> AsyncGenerator[Project]:
    client = await Client.connect(temporal_address, plugins=[PydanticAIPlugin()])
    async with LLM(*replies, streamed=False) as llm:
        made = Project(client, queue, llm)
        plugin = ClassifierPlugin(app().resolve({}), made.store)
        async with Worker(client, task_queue=queue, workflows=[Support], plugins=[plugin]):
            yield made


@pytest.mark.slow  # the first of the file waits for the framework to load
async def test_what_is_allowed_is_recorded_once_at_each_point(temporal_address: str, queue: str) -> None:
    async with project(temporal_address, queue, CALL, ANSWER) as made:
        assert await made.ask("strict", "hello") == "fine"
    assert rows(made.store) == [
        ("strict", "input", "hello", "allowed"),
        ("strict", "output", '{"card":"1"}', "allowed"),
        ("strict", "input", "card 1 is blocked", "allowed"),
        ("strict", "output", "fine", "allowed"),
    ]
    assert owners(made.store) == {("acme", "t-7")}


async def test_no_model_is_called_before_the_input_passes(temporal_address: str, queue: str) -> None:
    async with project(temporal_address, queue) as made:
        failed = await made.ask("strict", "bad")
        assert made.llm.requests == []
    assert isinstance(failed, ApplicationError)
    assert failed.type == "TRIPWIRE"
    assert tripwire_of(failed) == Tripwire("unsafe", {"policy": "p1"})
    assert [failed.details[0]["decision_id"]] == ids(made.store)


async def test_an_output_that_aborts_fails_the_run(temporal_address: str, queue: str) -> None:
    async with project(temporal_address, queue, ["bad"]) as made:
        failed = await made.ask("strict", "hello")
    assert isinstance(failed, ApplicationError)
    assert tripwire_of(failed) == Tripwire("unsafe", {"policy": "p1"})
    assert rows(made.store)[-1] == ("strict", "output", "bad", "aborted")


async def test_typed_output_is_judged_as_json(temporal_address: str, queue: str) -> None:
    offer: Reply = [Wants("final_result", {"text": "bad", "price": 1})]
    async with project(temporal_address, queue, offer) as made:
        failed = await made.ask("typed", "hello")
    assert isinstance(failed, ApplicationError)
    assert failed.type == "TRIPWIRE"
    assert rows(made.store)[1:] == [("strict", "output", '{"text":"bad","price":1}', "aborted")]


async def test_a_message_that_is_filtered_whole_ends_the_run_before_the_model(
    temporal_address: str, queue: str
) -> None:
    async with project(temporal_address, queue) as made:
        failed = await made.ask("dropping", "bad")
        assert made.llm.requests == []
    assert isinstance(failed, ApplicationError)
    assert failed.type == "FILTERED"
    assert failed.details[0]["decision_ids"] == ids(made.store)


async def test_an_output_that_is_filtered_ends_the_run(temporal_address: str, queue: str) -> None:
    async with project(temporal_address, queue, ["bad"]) as made:
        failed = await made.ask("dropping", "hello")
    assert isinstance(failed, ApplicationError)
    assert failed.type == "FILTERED"
    assert failed.details[0]["phase"] == "output"


async def test_an_older_message_that_is_filtered_is_not_sent(temporal_address: str, queue: str) -> None:
    history: list[ModelMessage] = [
        ModelRequest([UserPromptPart("bad")]),
        ModelResponse([TextPart("as before")]),
    ]
    async with project(temporal_address, queue, CALL, ANSWER) as made:
        assert await made.ask("dropping", "hello", history) == "fine"
        for request in made.llm.requests:
            assert [each["content"] for each in request["messages"]][:3] == [
                "You help.",
                "as before",
                "hello",
            ]
    assert rows(made.store)[:2] == [
        ("dropping", "input", "bad", "filtered"),
        ("dropping", "input", "hello", "allowed"),
    ]
    assert [phase for _, phase, _, _ in rows(made.store)] == ["input", "input", "output", "input", "output"]


async def test_a_tool_whose_arguments_abort_does_not_run(temporal_address: str, queue: str) -> None:
    async with project(temporal_address, queue, BAD_CALL) as made:
        failed = await made.ask("strict", "hello")
        assert len(made.llm.requests) == 1
    assert isinstance(failed, ApplicationError)
    assert failed.type == "TRIPWIRE"
    assert rows(made.store)[1:] == [("strict", "output", BAD_ARGUMENTS, "aborted")]


async def test_of_filtered_arguments_the_model_sees_that_they_were_withheld(
    temporal_address: str, queue: str
) -> None:
    async with project(temporal_address, queue, BAD_CALL, ANSWER) as made:
        assert await made.ask("dropping", "hello") == "fine"
        assert made.llm.requests[1]["messages"][-1]["content"] == "(withheld)"
    assert rows(made.store)[1:] == [
        ("dropping", "output", BAD_ARGUMENTS, "filtered"),
        ("dropping", "output", "fine", "allowed"),
    ]


@pytest.mark.parametrize(("agent", "code"), [("unknown", "CONFIGURATION"), ("faulty", "POLICY_ERROR")])
async def test_a_fault_of_the_project_fails_the_run_for_good(
    agent: str, code: str, temporal_address: str, queue: str
) -> None:
    async with project(temporal_address, queue) as made:
        failed = await made.ask(agent, "hello")
    assert isinstance(failed, ApplicationError)
    assert failed.type == code
    assert rows(made.store) == []


async def test_guarded_runs_replay(temporal_address: str, queue: str) -> None:
    async with project(temporal_address, queue, CALL, ["bad"]) as made:
        failed = await made.ask("strict", "hello")
        assert isinstance(failed, ApplicationError)
        history = await made.client.get_workflow_handle(queue).fetch_history()
    replayer = Replayer(workflows=[Support], plugins=[PydanticAIPlugin(), CallerPlugin()])
    await replayer.replay_workflow(history)


async def test_in_plain_asyncio_the_same_guards_judge_through_an_app_and_a_store() -> None:
    store = MemoryStore()
    plain = Plain(app().resolve({}), store)
    async with LLM(ANSWER, BAD_CALL, ["bad"], streamed=False) as llm:
        desk = Desk(llm.url)
        assert (await guarded_by("strict", plain=plain).run("hello", deps=desk)).output == "fine"
        with pytest.raises(Tripped) as raised:
            await guarded_by("strict", plain=plain).run("bad", deps=desk)
        assert raised.value.tripwire == Tripwire("unsafe", {"policy": "p1"})
        assert [str(each.decision_id) for each in raised.value.judgements] == ids(store)[-1:]
        with pytest.raises(Filtered) as filtered:
            await guarded_by("dropping", plain=plain).run("hello", deps=desk)
        assert filtered.value.stop.decision_ids == tuple(ids(store)[-1:])
        assert len(llm.requests) == 3


async def test_a_filtered_result_is_withheld() -> None:
    store = MemoryStore()
    async with LLM(BAD_CALL, ANSWER, streamed=False) as llm:
        agent = results_guarded(Plain(app().resolve({}), store), ["look_up"])
        assert (await agent.run("hello", deps=Desk(llm.url))).output == "fine"
        assert llm.requests[1]["messages"][-1]["content"] == "(withheld)"
    assert rows(store) == [("dropping", "input", "card bad is blocked", "filtered")]


async def test_only_the_tools_that_are_named_are_guarded() -> None:
    store = MemoryStore()
    async with LLM(BAD_CALL, ANSWER, streamed=False) as llm:
        agent = results_guarded(Plain(app().resolve({}), store), ["another"])
        assert (await agent.run("hello", deps=Desk(llm.url))).output == "fine"
    assert rows(store) == []


def results_guarded(plain: Plain, tools: list[str]) -> Any:
    """An agent whose tools' results alone are guarded."""
    return agent_with(Guardrails[Desk](results=["dropping"], tools=tools, plain=plain))


async def test_without_a_workflow_and_without_an_app_nothing_runs_unjudged() -> None:
    async with LLM(streamed=False) as llm:
        with pytest.raises(ConfigurationError, match="outside a workflow"):
            await guarded_by("strict").run("hello", deps=Desk(llm.url))
        assert llm.requests == []


def test_guardrails_without_processors_are_refused() -> None:
    with pytest.raises(ConfigurationError, match="at least one processor"):
        Guardrails()
