"""Agents: a language model with instructions, tools, and the processors that guard its runs. Pure.

    refund = Tool("refund", refund_order, description="Pays back", parameters={...}, needs_approval=True)
    support = Agent(
        "support",
        model=LanguageModel("gpt-6-luna"),
        instructions="You help customers of a bank.",
        input=["topic"], stream=["safety"], output=["quality"],
        tools=[refund],
    )
    app = App(processors=[...], agents=[support])

A definition is read by activities only, so a changed one never breaks the replay of a running thread.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, TypeAlias, cast

from jsonschema import Draft202012Validator
from jsonschema import exceptions as schema_errors
from referencing import Registry

from classifier.values import JSON, json_copy

OPENAI_KEY = "OPENAI_API_KEY"
OPENAI_BASE_URL = "OPENAI_BASE_URL"

FEEDBACK = "Your last reply was not delivered: {reason}. Write another one, without what was wrong with it."
"""What a model is told when its reply was withheld; never the reply itself."""

ToolFunction: TypeAlias = Callable[[dict[str, Any]], "Awaitable[JSON] | JSON"]


@dataclass(frozen=True, slots=True)
class LanguageModel:
    """A model behind any endpoint that speaks OpenAI's chat completions. Holds names, never a key.

    Attributes:
        name: As the service calls it.
        base_url: The address, with `/v1`; None takes it from `base_url_variable`, else OpenAI's own.
        base_url_variable: The environment variable that may hold the address.
        key_variable: The environment variable that holds the key. By default OPENAI_API_KEY, which is sent to
            OpenAI and to what OPENAI_BASE_URL names, and never to a `base_url` given here; None sends no key.
        options: Further fields of the request: `temperature`, `seed`, `max_completion_tokens`, ….
        seconds: Longest silence between two pieces of a reply.
    """

    name: str
    base_url: str | None = None
    base_url_variable: str | None = OPENAI_BASE_URL
    key_variable: str | None = OPENAI_KEY
    options: Mapping[str, JSON] = field(default_factory=dict[str, JSON])
    seconds: float = 60.0


@dataclass(frozen=True, slots=True)
class Tool:
    """Something an agent may do: an activity, and what it is called with.

    Attributes:
        id: What the model calls it.
        activity: The name of an activity that takes the arguments as one object and gives back JSON; or a
            function of that shape, which the worker registers as the activity `tool.<id>`, heartbeats for,
            and runs in a thread where it is a plain one.
        description: What the model is told of it.
        parameters: JSON schema of the arguments, an object. They are checked against it before it runs.
        needs_approval: Whether a person has to approve each call.
        arguments: Processors over the arguments as JSON text, in the phase output; they come from the model.
        results: Processors over the result as text, in the phase input; it goes to the model.
        seconds: Longest time of one attempt.
        attempts: How often it is tried. An attempt may have had its effect before it was lost: give receivers
            the key of `activities.chat_tools.idempotency_key`.
        heartbeat: Seconds after which a silent activity is taken for dead. An activity that has none hears of
            no stop, so a stop does not wait for it. Functions have one without asking.
        task_queue: Where its worker polls; None is the agent's own queue.
    """

    id: str
    activity: str | ToolFunction
    description: str = ""
    parameters: Mapping[str, JSON] = field(default_factory=lambda: {"type": "object"})
    needs_approval: bool = False
    arguments: Sequence[str] = ()
    results: Sequence[str] = ()
    seconds: float = 60.0
    attempts: int = 3
    heartbeat: float | None = None
    task_queue: str | None = None

    @property
    def activity_name(self) -> str:
        """What the workflow schedules."""
        return self.activity if isinstance(self.activity, str) else f"tool.{self.id}"

    def problems(self) -> Iterator[str]:
        """Every reason why this tool cannot be used, one sentence each."""
        if not self.id.isascii() or not self.id.replace("_", "").replace("-", "").isalnum():
            yield f"tool {self.id!r}: an id is made of letters, digits, - and _, as models want it"
        if self.attempts < 1 or not self.seconds > 0:
            yield f"tool {self.id!r}: attempts and seconds must be positive"
        if self.parameters.get("type") != "object":
            yield f"tool {self.id!r}: parameters must be a JSON schema of the type object"
        try:
            Draft202012Validator.check_schema(dict(self.parameters))
        except schema_errors.SchemaError as error:
            yield f"tool {self.id!r}: parameters are no JSON schema, see {error.json_path}"


@dataclass(frozen=True, slots=True)
class Agent:
    """A registered agent.

    Attributes:
        id: Unique in an app.
        model: What writes the replies.
        instructions: The system prompt.
        input: Processors over a message, before the model or a tool is called.
        stream: Processors over a reply while it streams.
        output: Processors over exactly the text that was released, before the reply is final.
        tools: Tools, or the keys and ids of registered ones.
        max_turns: Most model calls one message may cause, retries with feedback aside.
        max_retries: How many more replies are asked for when one is withheld.
        feedback: What the model is told then; `{reason}` is the tripwire's.
        memory: How many characters of the thread the model sees; older turns fall away whole.
        audit: "deferred" lets a reply stream while the store is away, its records travelling with it;
            "required" releases nothing before its row is durable.
        failures_allowed: How many failed calls of a model are one too many.
        seconds: Longest time of one model call, its stream included.
    """

    id: str
    model: LanguageModel
    instructions: str = ""
    input: Sequence[str] = ()
    stream: Sequence[str] = ()
    output: Sequence[str] = ()
    tools: Sequence[Tool | str] = ()
    max_turns: int = 8
    max_retries: int = 0
    feedback: str = FEEDBACK
    memory: int = 200_000
    audit: Literal["deferred", "required"] = "deferred"
    failures_allowed: int = 3
    seconds: float = 600.0

    def bound(self, tools: Mapping[str, Tool]) -> Agent:
        """The same agent with its tools looked up."""
        return replace(
            self, tools=tuple(tools[each] if isinstance(each, str) else each for each in self.tools)
        )

    def tool(self, name: str) -> Tool | None:
        """The tool a model means; None where there is none."""
        return next((each for each in self.tools if isinstance(each, Tool) and each.id == name), None)

    def problems(self, environ: Mapping[str, str]) -> Iterator[str]:
        """Every reason why this agent cannot start, apart from names it does not own; one sentence each."""
        if not self.id.strip():
            yield "an agent needs an id that is not blank"
        for option, least in (("max_turns", 1), ("max_retries", 0), ("memory", 0), ("failures_allowed", 1)):
            if getattr(self, option) < least:
                yield f"agent {self.id!r}: {option} must be at least {least}"
        try:
            self.feedback.format(reason="")
        except (LookupError, ValueError):
            yield f"agent {self.id!r}: feedback may hold {{reason}} and no other field"
        yield from self._model_problems(environ)

    def _model_problems(self, environ: Mapping[str, str]) -> Iterator[str]:
        model = self.model
        try:
            json_copy(model.options, "options")
        except ValueError as error:
            yield f"agent {self.id!r}: {error}"
        key = key_variable_of(model)
        if key is not None and not environ.get(key, "").strip():
            yield f"agent {self.id!r} needs a key for its model {model.name!r}; set {key}"


def key_variable_of(model: LanguageModel) -> str | None:
    """The variable whose key is sent; OpenAI's own goes to no address that code names."""
    if model.base_url is not None and model.key_variable == OPENAI_KEY:
        return None
    return model.key_variable


@dataclass(frozen=True, slots=True)
class Arguments:
    """What a model wants a tool to be called with.

    Attributes:
        values: The arguments; empty where they cannot be used.
        problem: Why they cannot be used, free of content; None where they can.
    """

    values: dict[str, Any]
    problem: str | None = None


def arguments_of(text: str, tool: Tool) -> Arguments:
    """Reads the arguments a model wrote and checks them against the tool's schema."""
    try:
        values = json_copy(json.loads(text or "{}", parse_constant=_refuse), "arguments")
    except (ValueError, RecursionError):
        return Arguments({}, "the arguments are not JSON")
    if not isinstance(values, dict):
        return Arguments({}, "the arguments are not a JSON object")
    checker: Any = Draft202012Validator(dict(tool.parameters), registry=Registry())
    fault: Any = _best(checker.iter_errors(values))
    if fault is not None:
        return Arguments({}, f"the arguments do not match the schema at {fault.json_path}: {fault.validator}")
    return Arguments(cast("dict[str, Any]", values))


def _best(faults: Any) -> Any:
    """The most telling of the faults; the library leaves its types open."""
    library: Any = schema_errors
    return library.best_match(faults)


def _refuse(token: str) -> None:
    raise ValueError(token)
