"""Our processors as guardrails of the OpenAI Agents SDK.

    agent = Agent(
        name="support",
        input_guardrails=[input_guardrail("topic")],
        output_guardrails=[output_guardrail("quality")],
    )

In a workflow each call is durable and on the record; outside one, `plain` judges. What their guardrails
cannot express is mapped to the stricter side: they let pass or stop, so what a filter would drop stops the
run, save for tools, whose arguments and results they can replace.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias, cast

from classifier.adapters.judge import (
    WITHHELD,
    ContextOf,
    Judge,
    Side,
    Stop,
    stop_from_json,
    stop_of,
)
from classifier.messages import Message, TextPart
from classifier.temporal.workflow import DEFAULT_OPTIONS, DecideOptions
from classifier.values import JSON
from classifier.verdict import Verdict

if TYPE_CHECKING:  # workflow code has no use for what judges without one
    from classifier.adapters.plain import Plain

try:
    from agents import (
        Agent,
        GuardrailFunctionOutput,
        InputGuardrail,
        InputGuardrailTripwireTriggered,
        OutputGuardrail,
        OutputGuardrailTripwireTriggered,
        RunContextWrapper,
        ToolGuardrailFunctionOutput,
        ToolInputGuardrail,
        ToolInputGuardrailData,
        ToolInputGuardrailTripwireTriggered,
        ToolOutputGuardrail,
        ToolOutputGuardrailData,
        ToolOutputGuardrailTripwireTriggered,
    )

    from classifier.adapters.text import text_of
except ImportError as error:
    raise ImportError(
        "the OpenAI Agents SDK is not installed; install temporal-classifier[openai-agents]"
    ) from error

__all__ = [
    "input_guardrail",
    "output_guardrail",
    "stop_in",
    "tool_input_guardrail",
    "tool_output_guardrail",
]

TRIPWIRES = (
    InputGuardrailTripwireTriggered,
    OutputGuardrailTripwireTriggered,
    ToolInputGuardrailTripwireTriggered,
    ToolOutputGuardrailTripwireTriggered,
)
"""What the SDK raises where a guardrail stops a run."""

AgentInput: TypeAlias = "str | Sequence[Any]"


def input_guardrail(
    *processors: str,
    options: DecideOptions = DEFAULT_OPTIONS,
    context: ContextOf | None = None,
    plain: Plain | None = None,
) -> InputGuardrail[Any]:
    """Processors over what users say, before the model is asked for the first time.

    It does not run beside the model, as theirs do unless told otherwise: no model and no tool is called
    before it passes. All of the users' messages in the input are judged; `last_message_only` of a processor
    is for conversations whose earlier messages were judged when they came.

    Args:
        processors: Keys or ids of registered processors, in the order they run.
        options: How a workflow has it decided.
        context: Makes the request context of the context that the agent runs with.
        plain: What judges outside a workflow.

    Raises:
        ConfigurationError: No processor is named.
    """
    judge = Judge.of(processors, options, context, plain)

    async def guard(run: RunContextWrapper[Any], agent: Agent[Any], given: AgentInput) -> Any:
        del agent
        verdict = await judge.judge("input", list(_said(given)), run.context)
        return _passing(verdict, "input")

    return InputGuardrail(guard, name=_name_of(processors), run_in_parallel=False)


def output_guardrail(
    *processors: str,
    options: DecideOptions = DEFAULT_OPTIONS,
    context: ContextOf | None = None,
    plain: Plain | None = None,
) -> OutputGuardrail[Any]:
    """Processors over the final output, typed output as JSON. Arguments as for `input_guardrail`."""
    judge = Judge.of(processors, options, context, plain)

    async def guard(run: RunContextWrapper[Any], agent: Agent[Any], output: Any) -> Any:
        del agent
        verdict = await judge.judge("output", [Message(text_of(output), "assistant")], run.context)
        return _passing(verdict, "output")

    return OutputGuardrail(guard, name=_name_of(processors))


def tool_input_guardrail(
    *processors: str,
    options: DecideOptions = DEFAULT_OPTIONS,
    context: ContextOf | None = None,
    plain: Plain | None = None,
) -> ToolInputGuardrail[Any]:
    """Processors over the arguments of a tool, before it runs: output, for they come from the model.

    After an abort the run stops. What is filtered does not run, and the model sees `(withheld)`. Arguments
    as for `input_guardrail`.
    """
    judge = Judge.of(processors, options, context, plain)

    async def guard(data: ToolInputGuardrailData) -> ToolGuardrailFunctionOutput:
        call = data.context
        message = Message(call.tool_arguments, "assistant", id=call.tool_call_id)
        return _tool_passing(await judge.judge("output", [message], call.context), "output")

    return ToolInputGuardrail(guard, name=_name_of(processors))


def tool_output_guardrail(
    *processors: str,
    options: DecideOptions = DEFAULT_OPTIONS,
    context: ContextOf | None = None,
    plain: Plain | None = None,
) -> ToolOutputGuardrail[Any]:
    """Processors over the result of a tool, on its way to the model: input.

    After an abort the run stops. Of what is filtered the model sees `(withheld)`; the tool has run. Arguments
    as for `input_guardrail`.
    """
    judge = Judge.of(processors, options, context, plain)

    async def guard(data: ToolOutputGuardrailData) -> ToolGuardrailFunctionOutput:
        call = data.context
        message = Message(text_of(data.output), "tool", id=call.tool_call_id)
        return _tool_passing(await judge.judge("input", [message], call.context), "input")

    return ToolOutputGuardrail(guard, name=_name_of(processors))


def stop_in(error: BaseException) -> Stop | None:
    """Why one of our guardrails stopped a run: of any of the four tripwire exceptions of the SDK.

    None for other errors and other people's guardrails. The SDK deletes what a guardrail said where a tool's
    result is the final output (`stop_on_first_tool`); there too the answer is None.
    """
    match error:
        case InputGuardrailTripwireTriggered() | OutputGuardrailTripwireTriggered():
            info = error.guardrail_result.output.output_info
        case ToolInputGuardrailTripwireTriggered() | ToolOutputGuardrailTripwireTriggered():
            info = error.output.output_info
        case _:
            return None
    if not isinstance(info, Mapping) or "decision_ids" not in info:
        return None
    return stop_from_json(cast("Mapping[str, Any]", info))


def _said(given: AgentInput) -> Iterator[Message]:
    """The users' messages of an input; images and files are no text, and stay out of the request."""
    if isinstance(given, str):
        yield Message(given)
        return
    for item in cast("Sequence[Mapping[str, Any]]", given):
        if item.get("role") == "user" and item.get("type", "message") == "message":
            yield Message(_content_of(item.get("content")))


def _content_of(content: object) -> str | tuple[TextPart, ...]:
    if isinstance(content, str):
        return content
    parts = cast("Sequence[Mapping[str, Any]]", content or ())
    return tuple(TextPart(str(part["text"])) for part in parts if part.get("type") in {"input_text", "text"})


def _passing(verdict: Verdict, phase: Side) -> GuardrailFunctionOutput:
    stop = stop_of(verdict, phase)
    return GuardrailFunctionOutput(_info_of(verdict, stop), tripwire_triggered=stop is not None)


def _tool_passing(verdict: Verdict, phase: Side) -> ToolGuardrailFunctionOutput:
    stop = stop_of(verdict, phase)
    info = _info_of(verdict, stop)
    if stop is None:
        return ToolGuardrailFunctionOutput.allow(info)
    if stop.outcome == "filtered":
        return ToolGuardrailFunctionOutput.reject_content(WITHHELD, info)
    return ToolGuardrailFunctionOutput.raise_exception(info)


def _info_of(verdict: Verdict, stop: Stop | None) -> dict[str, JSON]:
    """JSON, since runs of theirs are saved with it."""
    if stop is not None:
        return stop.to_json()
    return {"outcome": "allowed", "decision_ids": [str(each) for each in verdict.decision_ids]}


def _name_of(processors: Sequence[str]) -> str:
    return f"classifier: {', '.join(processors)}"
