"""Our processors as a capability of Pydantic AI.

    guardrails = Guardrails(input=["topic"], output=["quality"], arguments=["civil"])
    agent = Agent("openai:gpt-6-luna", name="support", capabilities=[guardrails, TemporalDurability()])

In a workflow each call is durable and on the record; outside one, `plain` judges. An abort raises: a
`TripwireError` in a workflow, which fails it for good, `Tripped` outside one.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar

from temporalio import workflow

from classifier.adapters.judge import WITHHELD, ContextOf, Filtered, Judge, Side, stop_of
from classifier.errors import ConfigurationError
from classifier.messages import Message, TextPart
from classifier.temporal.workflow import DEFAULT_OPTIONS, DecideOptions
from classifier.verdict import Verdict

if TYPE_CHECKING:  # workflow code has no use for what judges without one
    from classifier.adapters.plain import Plain

try:
    from pydantic_ai import RunContext
    from pydantic_ai.capabilities import AbstractCapability, OutputContext
    from pydantic_ai.exceptions import SkipToolExecution
    from pydantic_ai.messages import (
        ModelMessage,
        ModelRequest,
        TextContent,
        ToolCallPart,
        ToolReturn,
        ToolReturnPart,
        UserContent,
        UserPromptPart,
    )
    from pydantic_ai.models import ModelRequestContext
    from pydantic_ai.tools import ToolDefinition

    from classifier.adapters.text import text_of
except ImportError as error:
    raise ImportError("Pydantic AI is not installed; install temporal-classifier[pydantic-ai]") from error

__all__ = ["Guardrails"]

Deps = TypeVar("Deps")


class Guardrails(AbstractCapability[Deps]):
    """Runs processors over what users say, what the agent says, and its tools' arguments and results.

    No model is asked before `input` passes. What a filter drops of users' messages is gone from the request
    and from the run's messages; if nothing is left of the newest, the run ends with FILTERED, as it does
    where the output is filtered. What it drops of a tool's arguments or result, the model sees as
    `(withheld)`. All of the users' messages are judged once a run; `last_message_only` of a processor is for
    conversations whose earlier messages were judged when they came.

    Args:
        input: Keys or ids of processors over users' messages, in the order they run.
        output: Over the final output, before output functions run; typed output is judged as JSON.
        arguments: Over tools' arguments as JSON, in the phase output; they come from the model.
        results: Over tools' results, in the phase input; they go to the model.
        tools: Names of the tools that are guarded; None guards every tool.
        options: How a workflow has it decided.
        context: Makes the request context of the agent's dependencies.
        plain: What judges outside a workflow.

    Raises:
        ConfigurationError: No processor is named.
    """

    def __init__(
        self,
        *,
        input: Sequence[str] = (),  # noqa: A002 - the name of the phase
        output: Sequence[str] = (),
        arguments: Sequence[str] = (),
        results: Sequence[str] = (),
        tools: Sequence[str] | None = None,
        options: DecideOptions = DEFAULT_OPTIONS,
        context: ContextOf | None = None,
        plain: Plain | None = None,
    ) -> None:
        if not (input or output or arguments or results):
            raise ConfigurationError("Guardrails needs the name of at least one processor")
        self._input, self._output, self._arguments, self._results = (
            Judge(names=tuple(names), options=options, context=context, plain=plain)
            for names in (input, output, arguments, results)
        )
        self._tools = None if tools is None else frozenset(tools)
        self._judged: list[UserPromptPart] = []

    async def for_run(self, ctx: RunContext[Deps]) -> Guardrails[Deps]:
        """The same for one run, which remembers what it judged."""
        del ctx
        mine = copy.copy(self)
        mine._judged = []  # noqa: SLF001 - of a copy of itself
        return mine

    async def before_model_request(
        self, ctx: RunContext[Deps], request_context: ModelRequestContext
    ) -> ModelRequestContext:
        """Judges the users' messages that this run has not judged yet."""
        new = [part for part in _prompts(request_context.messages) if part not in self._judged]
        if not self._input.names or not new:
            return request_context
        messages = [Message(_content_of(part.content)) for part in new]
        verdict = await self._input.judge("input", messages, ctx.deps)
        verdict.raise_if_aborted()
        dropped = [part for index, part in enumerate(new) if index not in verdict.kept]
        self._judged += new
        if dropped:
            newest = request_context.messages[-1]
            if any(part in dropped for part in newest.parts) and not _left(newest, dropped):
                raise _filtered(verdict, "input")
            request_context.messages = list(_without(dropped, request_context.messages))
            ctx.messages[:] = _without(dropped, ctx.messages)
        return request_context

    async def before_output_process(
        self, ctx: RunContext[Deps], *, output_context: OutputContext, output: Any
    ) -> Any:
        """Judges the final output; pieces of a stream are not final."""
        del output_context
        if self._output.names and not ctx.partial_output:
            message = Message(text_of(output), "assistant")
            verdict = await self._output.judge("output", [message], ctx.deps)
            verdict.raise_if_aborted()
            if verdict.outcome == "filtered":
                raise _filtered(verdict, "output")
        return output

    async def before_tool_execute(
        self,
        ctx: RunContext[Deps],
        *,
        call: ToolCallPart,
        tool_def: ToolDefinition,
        args: dict[str, Any],
    ) -> dict[str, Any]:
        """Judges the arguments of a tool before it runs; what is filtered does not run."""
        if self._arguments.names and self._guards(tool_def):
            message = Message(text_of(args), "assistant", id=call.tool_call_id)
            verdict = await self._arguments.judge("output", [message], ctx.deps)
            verdict.raise_if_aborted()
            if verdict.outcome == "filtered":
                raise SkipToolExecution(WITHHELD)
        return args

    async def after_tool_execute(
        self,
        ctx: RunContext[Deps],
        *,
        call: ToolCallPart,
        tool_def: ToolDefinition,
        args: dict[str, Any],
        result: Any,
    ) -> Any:
        """Judges the result of a tool on its way to the model."""
        del args
        if not self._results.names or not self._guards(tool_def):
            return result
        messages = [Message(text, "tool", id=call.tool_call_id) for text in _texts_of(result)]
        verdict = await self._results.judge("input", messages, ctx.deps)
        verdict.raise_if_aborted()
        return WITHHELD if verdict.outcome == "filtered" else result

    def _guards(self, tool: ToolDefinition) -> bool:
        return self._tools is None or tool.name in self._tools


def _prompts(messages: Iterable[ModelMessage]) -> Iterator[UserPromptPart]:
    for message in messages:
        yield from (part for part in message.parts if isinstance(part, UserPromptPart))


def _left(message: ModelMessage, dropped: Sequence[UserPromptPart]) -> bool:
    """Whether there is still something to answer; instructions alone are not."""
    kept = (part for part in message.parts if part not in dropped)
    return any(isinstance(part, (UserPromptPart, ToolReturnPart)) for part in kept)


def _without(dropped: Sequence[UserPromptPart], messages: Iterable[ModelMessage]) -> Iterator[ModelMessage]:
    for message in messages:
        if not isinstance(message, ModelRequest) or not any(part in dropped for part in message.parts):
            yield message
            continue
        parts = [part for part in message.parts if part not in dropped]
        if parts:
            yield replace(message, parts=parts)


def _content_of(content: str | Sequence[UserContent]) -> str | tuple[TextPart, ...]:
    """The text of a message; images and files are no text, and stay out of the request."""
    if isinstance(content, str):
        return content
    texts = (part.content if isinstance(part, TextContent) else part for part in content)
    return tuple(TextPart(text) for text in texts if isinstance(text, str))


def _texts_of(result: Any) -> Iterator[str]:
    """What a model gets to read of a tool's result."""
    if not isinstance(result, ToolReturn):
        yield text_of(result)
        return
    yield text_of(result.return_value)
    if result.content is not None:
        yield Message(_content_of(result.content)).text


def _filtered(verdict: Verdict, phase: Side) -> Exception:
    stop = stop_of(verdict, phase)
    assert stop is not None
    return stop.failure() if workflow.in_workflow() else Filtered(stop)
