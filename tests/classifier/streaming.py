"""Short ways to build and read guarded streams, for the tests beside."""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator, Iterable, Mapping
from typing import Any

from classifier.answers import Answer, BooleanAnswer
from classifier.classifier import Classifier
from classifier.messages import TextDelta
from classifier.models.protocol import DecisionRequest
from classifier.models.scripted import ScriptedModel
from classifier.policy import PolicyContext
from classifier.processor import ClassifierProcessor
from classifier.stream import End
from tests.classifier.conformance import SafetyQuestions, abort_unsafe

TERM = "HUNTER2"
TEXT = "code is HUNTER2 ok"
Processor = ClassifierProcessor[Any]


def finding(term: str = TERM, latency: float = 0.0) -> ScriptedModel:
    """A model that finds a term wherever it stands whole."""

    def reply(request: DecisionRequest) -> Mapping[str, Answer]:
        found = term in str(request.state)
        return dict.fromkeys(request.questions, BooleanAnswer(0.99 if found else 0.01))

    return ScriptedModel(reply, latency=latency)


def guarding(model: ScriptedModel | None = None, *, policy: Any = abort_unsafe, **options: Any) -> Processor:
    classifier = Classifier("safety", model or finding(), SafetyQuestions)
    return ClassifierProcessor(classifier=classifier, on_result=policy, **options)


def silent(answers: Any, context: PolicyContext[Any]) -> None:
    return


def splits(text: str, ways: int) -> Iterable[list[str]]:
    for cuts in itertools.combinations(range(1, len(text)), ways - 1):
        edges = [0, *cuts, len(text)]
        yield [text[start:end] for start, end in itertools.pairwise(edges)]


async def deltas(parts: Iterable[object], closed: list[str] | None = None) -> AsyncIterator[object]:
    try:
        for part in parts:
            yield TextDelta(part) if isinstance(part, str) else part
    finally:
        if closed is not None:
            closed.append("closed")


async def texts_of(stream: AsyncIterator[object]) -> list[object]:
    return [part.text if isinstance(part, TextDelta) else part async for part in stream]


def states(model: ScriptedModel) -> list[object]:
    return [request.state for request in model.requests]


async def read(stream: AsyncIterator[object]) -> tuple[str, End]:
    parts = [part async for part in stream]
    ends = [part for part in parts if isinstance(part, End)]
    assert len(ends) == 1
    assert parts[-1] is ends[0]
    return "".join(part.text for part in parts if isinstance(part, TextDelta)), ends[0]
