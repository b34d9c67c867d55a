"""How the engine reaches decision models and records: what its callers hand in. Pure."""

from __future__ import annotations

import uuid
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from classifier.classifier import Classifier
from classifier.decision import Decision
from classifier.errors import ModelError
from classifier.result import ClassifierResult
from classifier.values import JSON


class AskAgain(Exception):
    """Raised by an `Evaluate` whose caller will run the engine again: nothing is decided or recorded.

    Attributes:
        reason: Why it gave up for now.
    """

    def __init__(self, reason: ModelError) -> None:
        super().__init__(str(reason))
        self.reason = reason


@dataclass(frozen=True, slots=True)
class Call:
    """One classifier call.

    Attributes:
        decision_id: The decision it is for.
        processor_id: The processor it is for.
        classifier: Asks the model, together with neighbours where they share a request.
        state: The text, normalised and cut.
        provider_options: The processor's, added to the classifier's own.
        others: Decisions that the same request is for.
    """

    decision_id: uuid.UUID
    processor_id: str
    classifier: Classifier[Any]
    state: str
    provider_options: Mapping[str, JSON]
    others: Sequence[uuid.UUID] = ()

    async def evaluate(self) -> ClassifierResult[Any]:
        """Asks once; errors as for `Classifier.evaluate`."""
        return await self.classifier.evaluate(self.state, provider_options=self.provider_options)


Evaluate: TypeAlias = Callable[[Call], Awaitable[ClassifierResult[Any]]]
"""How a classifier is asked. A `ModelError` is final; retries happen inside, or by raising `AskAgain`."""

Record: TypeAlias = Callable[[Sequence[Decision]], Awaitable[Sequence[Decision]]]
"""Stores decisions and gives back, in order, what is stored: the first one recorded is acted on."""

Find: TypeAlias = Callable[[Sequence[uuid.UUID]], Awaitable[Mapping[uuid.UUID, Decision]]]
"""The stored ones among these decisions, for a run that may have happened before."""


@dataclass(frozen=True, slots=True)
class Ports:
    """How the engine reaches the world.

    Attributes:
        record: Where decisions go.
        evaluate: How classifiers are asked; once, where left out.
        find: Looks up what an earlier attempt recorded; None where there was none.
    """

    record: Record
    evaluate: Evaluate = Call.evaluate
    find: Find | None = None
