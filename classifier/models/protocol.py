"""The seam to whatever answers questions. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable

from classifier.questions import Question, QuestionType
from classifier.result import DecisionResponse
from classifier.values import JSON, State

ALL_TYPES: frozenset[QuestionType] = frozenset({"boolean", "choice", "score"})


@dataclass(frozen=True, slots=True)
class DecisionRequest:
    """Questions about one state, asked together.

    Attributes:
        state: What the questions are about.
        questions: By id; the ids are not shown to the model.
        provider_options: Handed to the adapter unchanged; each documents its own.
    """

    state: State
    questions: Mapping[str, Question]
    provider_options: Mapping[str, JSON] = field(default_factory=dict[str, JSON])


@runtime_checkable
class DecisionModel(Protocol):
    """Answers typed questions about a state.

    Building one does no I/O. `configure` is called once before the first `decide`; a model never retries,
    whoever runs it does.
    """

    @property
    def provider(self) -> str:
        """Which adapter this is, for the record: "systemone", "local", …."""
        ...

    @property
    def name(self) -> str:
        """The model that is asked for, as the provider names it."""
        ...

    @property
    def question_types(self) -> frozenset[QuestionType]:
        """What it can answer; anything else is refused before any I/O."""
        ...

    def configure(self, environ: Mapping[str, str]) -> Sequence[str]:
        """Takes keys and addresses from `environ`; gives back every problem as a sentence."""
        ...

    async def decide(self, request: DecisionRequest) -> DecisionResponse:
        """Asks once.

        Raises:
            ModelError: No usable answer; says whether trying again can help.
            asyncio.CancelledError: The caller left; the request is closed.
        """
        ...

    async def aclose(self) -> None:
        """Closes connections; the model may be used again afterwards."""
        ...
