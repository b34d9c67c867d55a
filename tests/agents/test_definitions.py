"""Agents and tools as they are declared: what is found before anything runs."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from classifier.agent import Agent, LanguageModel, Tool, arguments_of, key_variable_of
from classifier.app import App
from classifier.errors import ConfigurationError
from tests.agents.support import guarding

KEYED = {"OPENAI_API_KEY": "sk-1"}
PROBLEMS = {
    "the arguments are not JSON",
    "the arguments are not a JSON object",
    "the arguments do not match the schema at $: required",
    "the arguments do not match the schema at $.n: type",
}


def declared(**options: Any) -> Agent:
    return Agent("helper", model=options.pop("model", LanguageModel("m")), **options)


def problems(*processors: Any, environ: dict[str, str] | None = None, **options: Any) -> list[str]:
    tools = options.pop("registered", ())
    app = App(processors=processors, agents=[declared(**options)], tools=tools)
    return list(app.problems(KEYED if environ is None else environ))


def nothing(arguments: dict[str, Any]) -> None:
    return


def test_a_whole_agent_resolves_by_key_and_id_with_its_tools_looked_up() -> None:
    tool = Tool("refund", "orders.refund")
    app = App(
        processors=[guarding("g")],
        agents={"support": declared(input=["g"], tools=["pay back"])},
        tools={"pay back": tool},
    ).resolve(KEYED)
    assert app.agents["support"] == app.agents["helper"]
    assert app.agents["helper"].tools == (tool,)
    with pytest.raises(ConfigurationError, match="there is no agent 'x'; registered: support, helper"):
        app.agents["x"]


@pytest.mark.parametrize("phase", ["input", "stream", "output"])
def test_an_unknown_processor_is_named_with_its_phase(phase: str) -> None:
    options: dict[str, Any] = {phase: ["x"]}
    (problem,) = problems(guarding("g"), **options)
    assert problem == f"agent 'helper' names the processor 'x' for {phase}; registered: g"


def test_a_processor_for_another_phase_is_found() -> None:
    (problem,) = problems(guarding("g", phases=("output",)), input=["g"])
    assert "processor 'g' is declared for output, and is used for input" in problem


def test_processors_of_tools_are_looked_up_too() -> None:
    tool = Tool("refund", nothing, arguments=["x"], results=["y"])
    found = problems(tools=[tool])
    assert [each.split(";")[0] for each in found] == [
        "tool 'refund' names the processor 'x' for output",
        "tool 'refund' names the processor 'y' for input",
    ]


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"tools": ["x"]}, "agent 'helper' names the tool 'x'; registered: none"),
        ({"tools": [Tool("a", nothing), Tool("a", "b")]}, "agent 'helper' has two tools 'a'"),
        ({"tools": [Tool("a b", nothing)]}, "an id is made of letters, digits, - and _"),
        ({"tools": [Tool("a", nothing, parameters={"type": "array"})]}, "a JSON schema of the type object"),
        ({"tools": [Tool("a", nothing, parameters={"type": "object", "required": 1})]}, "no JSON schema"),
        ({"tools": [Tool("a", nothing, attempts=0)]}, "attempts and seconds must be positive"),
        ({"max_turns": 0}, "max_turns must be at least 1"),
        ({"max_retries": -1}, "max_retries must be at least 0"),
        ({"feedback": "{other}"}, "feedback may hold {reason} and no other field"),
        ({"input": "topic"}, "processors are a list of names, not the text 'topic'"),
        ({"model": LanguageModel("m", options={"x": float("nan")})}, "not a finite number"),
    ],
)
def test_what_cannot_work_is_found_at_start(options: dict[str, Any], says: str) -> None:
    (problem,) = problems(guarding("topic"), **options)
    assert says in problem


def test_two_agents_with_one_id_refuse_to_start() -> None:
    app = App(agents={"one": declared(), "two": declared()})
    assert "two agents answer to 'helper'" in next(app.problems(KEYED))


def test_a_missing_key_is_named_by_its_variable_and_not_shown() -> None:
    (problem,) = problems(environ={})
    assert problem == "agent 'helper' needs a key for its model 'm'; set OPENAI_API_KEY"
    assert problems(environ={"OPENAI_API_KEY": "sk-1"}) == []


def test_the_key_of_openai_goes_to_no_address_that_code_names() -> None:
    assert key_variable_of(LanguageModel("m", base_url="http://127.0.0.1:1/v1")) is None
    assert (
        key_variable_of(LanguageModel("m", base_url="http://127.0.0.1:1/v1", key_variable="MINE")) == "MINE"
    )
    assert key_variable_of(LanguageModel("m")) == "OPENAI_API_KEY"


def test_a_schema_that_points_elsewhere_is_not_fetched() -> None:
    tool = Tool("a", nothing, parameters={"type": "object", "$ref": "http://127.0.0.1:9/schema.json"})
    with pytest.raises(Exception, match="Unresolvable"):
        arguments_of("{}", tool)


@given(st.text())
def test_arguments_are_an_object_that_fits_or_a_problem_without_content(text: str) -> None:
    tool = Tool(
        "a",
        nothing,
        parameters={"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]},
    )
    found = arguments_of(text, tool)
    assert (found.problem is None) == ("n" in found.values)
    assert found.problem in {None, *PROBLEMS}
