"""What the adapters share: judging text, durably in a workflow or in plain asyncio, and what stopped a run.

Sandbox-safe: imports no engine, no store and no agent SDK.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from temporalio import workflow
from temporalio.exceptions import ApplicationError

from classifier.decision import Outcome, Tripwire
from classifier.errors import ClassifierError, ConfigurationError
from classifier.messages import Message
from classifier.temporal.workflow import DEFAULT_OPTIONS, DecideOptions, Processors
from classifier.values import JSON
from classifier.verdict import Tripped, Verdict

if TYPE_CHECKING:  # workflow code has no use for what judges without one
    from classifier.adapters.plain import Plain

Side: TypeAlias = Literal["input", "output"]
ContextOf: TypeAlias = Callable[[Any], Mapping[str, JSON]]

WITHHELD = "(withheld)"
"""What a model sees of a tool call or result that a processor dropped."""


class Filtered(ClassifierError):
    """A processor dropped what a run cannot do without. Never retried.

    Attributes:
        stop: Which processor, and its decisions.
    """

    code = "FILTERED"

    def __init__(self, stop: Stop) -> None:
        super().__init__(
            f"processor {stop.processor_id!r} filtered the {stop.phase}, and the run cannot go on without it"
        )
        self.stop = stop


@dataclass(frozen=True, slots=True, kw_only=True)
class Stop:
    """Why content may not pass.

    Attributes:
        phase: Which side of the model it was on; a tool's arguments are output, its result is input.
        outcome: "aborted" or "filtered".
        processor_id: Whose policy said so.
        decision_ids: The records of the judgements, in order, those that allowed it included.
        tripwire: Reason and metadata of an abort, both written by the application; a filter has none.
    """

    phase: Side
    outcome: Outcome
    processor_id: str
    decision_ids: tuple[str, ...]
    tripwire: Tripwire | None = None

    def to_json(self) -> dict[str, JSON]:
        """As it travels; `stop_from_json` reads it back."""
        tripwire = self.tripwire
        return {
            "phase": self.phase,
            "outcome": self.outcome,
            "processor_id": self.processor_id,
            "decision_id": self.decision_ids[-1],
            "decision_ids": list(self.decision_ids),
            "reason": None if tripwire is None else tripwire.reason,
            "metadata": None if tripwire is None else tripwire.metadata,
        }

    def failure(self) -> ApplicationError:
        """What fails a workflow for good; its details are those of a `TripwireError`, and `decision_ids`."""
        cause = Filtered(self) if self.tripwire is None else Tripped(self.tripwire, self.processor_id)
        return ApplicationError(str(cause), self.to_json(), type=cause.code, non_retryable=True)


def stop_from_json(body: Mapping[str, Any]) -> Stop:
    """Reads what `Stop.to_json` wrote."""
    reason = body["reason"]
    return Stop(
        phase=body["phase"],
        outcome=body["outcome"],
        processor_id=body["processor_id"],
        decision_ids=tuple(body["decision_ids"]),
        tripwire=None if reason is None else Tripwire(reason, body["metadata"]),
    )


def stop_of(verdict: Verdict, phase: Side) -> Stop | None:
    """What stopped the content of a verdict; None where all of it passes."""
    if verdict.outcome == "allowed":
        return None
    found = next(each for each in verdict.judgements if each.effect == verdict.outcome)
    return Stop(
        phase=phase,
        outcome=verdict.outcome,
        processor_id=found.processor_id,
        decision_ids=tuple(map(str, verdict.decision_ids)),
        tripwire=found.tripwire,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Judge:
    """Runs processors where the agent runs: durably in a workflow, else in plain asyncio.

    Attributes:
        names: Keys or ids of registered processors, in the order they run.
        options: How a workflow has it decided.
        context: Makes the request context of what the agent runs with.
        plain: What judges outside a workflow.
    """

    names: tuple[str, ...]
    options: DecideOptions = DEFAULT_OPTIONS
    context: ContextOf | None = None
    plain: Plain | None = None

    @classmethod
    def of(
        cls,
        names: tuple[str, ...],
        options: DecideOptions,
        context: ContextOf | None,
        plain: Plain | None,
    ) -> Judge:
        """One with processors to ask.

        Raises:
            ConfigurationError: No processor is named.
        """
        if not names:
            raise ConfigurationError("a guardrail needs the name of at least one processor")
        return cls(names=names, options=options, context=context, plain=plain)

    async def judge(self, phase: Side, messages: Sequence[Message], about: object) -> Verdict:
        """What the processors make of messages.

        Raises:
            ConfigurationError: There is neither a workflow nor anything else to judge.
            ApplicationError: In a workflow: what is declared cannot work, or policy raised.
            ClassifierError: The same outside one.
        """
        context = None if self.context is None else self.context(about)
        if workflow.in_workflow():
            processors = Processors(*self.names, options=self.options)
            run = processors.input if phase == "input" else processors.output
            return await run(messages, context=context)
        if self.plain is None:
            raise ConfigurationError(
                f"processors {', '.join(self.names)} were asked outside a workflow, where nothing is "
                "durable; run the agent in a workflow, or give it `plain=Plain(app, store)`"
            )
        return await self.plain.judge(self.names, phase, messages, context)
