"""For tests of policies, processors and chains, without Temporal, PostgreSQL or a real decision model. Pure.

tried = await try_messages([with_model(safety, ScriptedModel([{"unsafe": BooleanAnswer(0.9)}]))], ["Hi"])
assert tried.verdict.outcome == "aborted"
assert tried.decisions[0].tripwire == tried.verdict.tripwire
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from typing import Any, Literal, TypeVar

from classifier.answers import Answer, Answers
from classifier.audit.memory import MemoryStore
from classifier.classifier import Classifier
from classifier.context import checked_context
from classifier.decision import Branch, Decision, Outcome, Phase
from classifier.engine import run_messages
from classifier.errors import ConfigurationError
from classifier.messages import Message, TextDelta
from classifier.models.protocol import DecisionModel
from classifier.models.scripted import ScriptedModel
from classifier.playbook import Playbook
from classifier.policy import PolicyContext, Ruling, rule
from classifier.ports import Evaluate, Ports
from classifier.processor import ClassifierProcessor
from classifier.questions import typed_answers
from classifier.result import ClassifierResult, ResponseInfo, Rounding
from classifier.stream import End, StreamGuard, guard
from classifier.validation import check_answers
from classifier.values import JSON
from classifier.verdict import Run, Verdict

__all__ = [
    "MemoryStore",
    "ScriptedModel",
    "Tried",
    "TriedStream",
    "memory_ports",
    "outcomes",
    "try_messages",
    "try_playbook",
    "try_policy",
    "try_stream",
    "with_model",
]

A = TypeVar("A", bound=Answers)


@dataclass(frozen=True, slots=True)
class Tried:
    """What processors made of messages, and the decisions on record."""

    verdict: Verdict
    decisions: tuple[Decision, ...]


@dataclass(frozen=True, slots=True)
class TriedStream:
    """What a reader of a guarded stream got, and the decisions on record.

    Attributes:
        parts: What was released, without the `End`.
        end: The terminal event.
        decisions: In the order they were recorded.
    """

    parts: tuple[object, ...]
    end: End
    decisions: tuple[Decision, ...]

    @property
    def text(self) -> str:
        """The released text, also where the stream did not finish."""
        return "".join(part.text for part in self.parts if isinstance(part, TextDelta))


def with_model(
    processor: ClassifierProcessor[A], model: DecisionModel, classifier: Classifier[Any] | None = None
) -> ClassifierProcessor[A]:
    """The same processor, answered by another model.

    Args:
        processor: As the project declares it.
        model: Usually a `ScriptedModel`.
        classifier: What the processor names, where it names its classifier.

    Raises:
        ConfigurationError: The processor names a classifier and none was given.
    """
    used = classifier if classifier is not None else processor.classifier
    if isinstance(used, str):
        raise ConfigurationError(
            f"processor {processor.id!r} names the classifier {used!r}; hand it over as `classifier`"
        )
    return processor.bound(used.bound(model))


def memory_ports(store: MemoryStore, run: Run, evaluate: Evaluate | None = None) -> Ports:
    """Ports that record in `store` and look earlier attempts of `run` up there."""
    find = partial(store.find, run.coordinates.tenant, run.decided_at)
    if evaluate is None:
        return Ports(store.record, find=find)
    return Ports(store.record, evaluate, find)


async def try_policy(
    processor: ClassifierProcessor[Any],
    answers: Mapping[str, Answer],
    *,
    phase: Phase = "input",
    context: Mapping[str, JSON] | None = None,
) -> Ruling:
    """What the policy of a processor makes of given answers; no model is asked.

    Raises:
        PolicyError: The policy raised instead of deciding.
        InvalidAnswer: The answers do not fit the questions.
    """
    info = ResponseInfo("scripted", "given", "given", datetime.now(UTC))
    result = ClassifierResult(_typed(processor, answers), info)
    policy_context = PolicyContext(phase, result, checked_context(context))
    return await rule(processor.on_result, policy_context, processor=processor.id)


async def try_playbook(playbook: Playbook[Any], answers: Mapping[str, Answer]) -> Branch:
    """What a playbook makes of given answers: gates and route function; no model is asked.

    A shadow is tried as `playbook.shadow.of(playbook)`.

    Raises:
        ConfigurationError: The playbook names its classifier, or that has no questions.
        InvalidAnswer: The answers do not fit the questions.
        PolicyError: The route function raised, or returned neither a route nor a `Review`.
    """
    classifier = playbook.classifier
    if isinstance(classifier, str) or classifier.questions is None:
        raise ConfigurationError(f"playbook {playbook.id!r} has no questions here; give it its classifier")
    check_answers(classifier.questions, answers, Rounding())
    return await playbook.branch(typed_answers(classifier.declared or {}, answers))


async def try_messages(
    processors: Sequence[ClassifierProcessor[Any]],
    messages: Iterable[Message | str],
    *,
    phase: Literal["input", "output"] = "input",
    context: Mapping[str, JSON] | None = None,
    store: MemoryStore | None = None,
    run: Run | None = None,
) -> Tried:
    """Runs processors over messages; errors as for `run_messages`.

    Args:
        processors: Ready to be asked (`with_model`).
        messages: Text is a user's message.
        phase: Which side of the model the messages are on.
        context: The request context.
        store: Where decisions are kept; one of its own, where left out.
        run: Where this happens, to repeat a run; random, where left out.
    """
    here = run or Run.here(context=context)
    kept = store or MemoryStore()
    given = [Message(each) if isinstance(each, str) else each for each in messages]
    verdict = await run_messages(processors, given, phase=phase, run=here, ports=memory_ports(kept, here))
    return Tried(verdict, _of(kept, here))


async def try_stream(
    processors: Sequence[ClassifierProcessor[Any]],
    parts: Iterable[object],
    *,
    context: Mapping[str, JSON] | None = None,
    store: MemoryStore | None = None,
    run: Run | None = None,
) -> TriedStream:
    """Runs processors over a stream of these parts, where text stands for a `TextDelta`.

    Args:
        processors: Ready to be asked (`with_model`).
        parts: Text, and anything else.
        context: The request context.
        store: Where decisions are kept; one of its own, where left out.
        run: Where this happens; random, where left out.
    """
    here = run or Run.here(context=context)
    kept = store or MemoryStore()
    stream: StreamGuard[object] = guard(_deltas(parts), processors, run=here, ports=memory_ports(kept, here))
    read = [part async for part in stream]
    end = read.pop()
    assert isinstance(end, End)
    return TriedStream(tuple(read), end, _of(kept, here))


async def outcomes(processors: Sequence[ClassifierProcessor[Any]], texts: Iterable[str]) -> list[Outcome]:
    """What becomes of each text alone, in the input phase: for tables of examples."""
    tried = await asyncio.gather(*(try_messages(processors, [text]) for text in texts))
    return [each.verdict.outcome for each in tried]


async def _deltas(parts: Iterable[object]) -> AsyncIterator[TextDelta | object]:
    for part in parts:
        yield TextDelta(part) if isinstance(part, str) else part


def _of(store: MemoryStore, run: Run) -> tuple[Decision, ...]:
    return tuple(each for each in store.decisions.values() if each.coordinates == run.coordinates)


def _typed(processor: ClassifierProcessor[Any], answers: Mapping[str, Answer]) -> Any:
    classifier = processor.classifier
    if isinstance(classifier, Classifier) and classifier.questions is not None:
        check_answers(classifier.questions, answers, Rounding())
    declared = processor.declared
    if declared is None and isinstance(classifier, Classifier):
        declared = classifier.declared
    return typed_answers(declared or {}, answers)
