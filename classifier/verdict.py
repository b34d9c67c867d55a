"""Where a run of processors happens, and what comes of it. Pure."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, TypeVar, overload

from classifier.answers import Answers
from classifier.context import tenant_of
from classifier.decision import Coordinates, DecisionFailure, Ids, Mode, Outcome, Tripwire
from classifier.errors import ClassifierError
from classifier.messages import Message
from classifier.questions import Questions, typed_answers
from classifier.values import JSON

if TYPE_CHECKING:  # workflow code reads verdicts, and has no use for what makes them
    from classifier.processor import ClassifierProcessor

A = TypeVar("A", bound=Answers)
Q = TypeVar("Q", bound=Questions)


@dataclass(frozen=True, slots=True)
class Earlier:
    """What earlier attempts already spent on one decision.

    Attributes:
        attempts: How often the model was asked.
        milliseconds: Since it was asked first.
    """

    attempts: int = 0
    milliseconds: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """Where and for whom processors run; the same for every attempt.

    Attributes:
        coordinates: What decision ids are made of. Two runs of processors never share them.
        decided_at: When the work was scheduled, in UTC.
        context: The caller's request context.
        ids: Thread and resource of the agent's memory, trace and span; what is absent falls back to the
            message, then to the request context.
        earlier: What earlier attempts spent, by decision id.
    """

    coordinates: Coordinates
    decided_at: datetime
    context: Mapping[str, JSON] = field(default_factory=dict[str, JSON])
    ids: Ids = Ids()
    earlier: Mapping[uuid.UUID, Earlier] = field(default_factory=dict[uuid.UUID, Earlier])

    @classmethod
    def here(
        cls,
        key: str | None = None,
        *,
        context: Mapping[str, JSON] | None = None,
        ids: Ids = Ids(),
        at: datetime | None = None,
    ) -> Run:
        """A run in plain asyncio, outside any workflow.

        Args:
            key: Names this one run of processors; with the same key and `at` a repeated run makes the same
                decisions. Left out, a random one is taken and a repeated run is recorded again.
            context: The caller's request context.
            ids: What the run belongs to.
            at: When the work was scheduled; now, where left out.
        """
        known = context or {}
        coordinates = Coordinates(tenant=tenant_of(known), workflow_id=key or str(uuid.uuid4()))
        return cls(coordinates=coordinates, decided_at=at or datetime.now(UTC), context=known, ids=ids)


@dataclass(frozen=True, slots=True, kw_only=True)
class Judgement:
    """What one processor made of one message or piece of a stream.

    Attributes:
        processor_id: Whose judgement.
        position: Index of the message, or of the judged piece of a stream.
        message_id: The message's id, where it has one.
        decision_id: The record's id.
        outcome: What was recorded; in monitor mode nothing followed from it.
        answers: Typed by the processor's questions; None where the call failed.
        failure: Why there are no answers.
        tripwire: For an abort.
        mode: Whether the outcome was acted on.
    """

    processor_id: str
    position: int
    message_id: str | None
    decision_id: uuid.UUID
    outcome: Outcome
    answers: Answers | None
    failure: DecisionFailure | None = None
    tripwire: Tripwire | None = None
    mode: Mode = "enforce"

    @property
    def effect(self) -> Outcome:
        """What followed: the outcome, or "allowed" in monitor mode."""
        return "allowed" if self.mode == "monitor" else self.outcome


class Tripped(ClassifierError):
    """A processor aborted. Never retried, never fail-open.

    Attributes:
        tripwire: Reason and metadata, both written by the application.
        processor_id: Which processor.
        judgements: Everything that was decided until then, the abort included.
    """

    code = "TRIPWIRE"

    def __init__(self, tripwire: Tripwire, processor_id: str, judgements: Sequence[Judgement] = ()) -> None:
        super().__init__(f"processor {processor_id!r} aborted: {tripwire.reason}")
        self.tripwire = tripwire
        self.processor_id = processor_id
        self.judgements = tuple(judgements)


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a chain of processors made of messages.

    Attributes:
        judgements: In the order they were made; all that were completed, also before an abort.
        given: The messages as they came.
    """

    judgements: tuple[Judgement, ...]
    given: tuple[Message, ...]

    @property
    def outcome(self) -> Outcome:
        """What became of the whole: an abort counts more than a dropped message."""
        effects = {judgement.effect for judgement in self.judgements}
        if "aborted" in effects:
            return "aborted"
        return "filtered" if "filtered" in effects else "allowed"

    @property
    def kept(self) -> tuple[int, ...]:
        """Indexes of the messages that pass; empty after an abort."""
        if self.outcome == "aborted":
            return ()
        dropped = {each.position for each in self.judgements if each.effect == "filtered"}
        return tuple(index for index in range(len(self.given)) if index not in dropped)

    @property
    def tripwire(self) -> Tripwire | None:
        """Reason and metadata of the abort."""
        tripped = self._tripped()
        return None if tripped is None else tripped.tripwire

    @property
    def messages(self) -> tuple[Message, ...]:
        """The messages that pass.

        Raises:
            Tripped: A processor aborted, so there is nothing to go on with.
        """
        self.raise_if_aborted()
        return tuple(self.given[index] for index in self.kept)

    @property
    def decision_ids(self) -> tuple[uuid.UUID, ...]:
        """The records of the judgements, in order."""
        return tuple(judgement.decision_id for judgement in self.judgements)

    def raise_if_aborted(self) -> None:
        """Does nothing unless a processor aborted.

        Raises:
            Tripped: With the tripwire and every completed judgement.
        """
        tripped = self._tripped()
        if tripped is not None and tripped.tripwire is not None:
            raise Tripped(tripped.tripwire, tripped.processor_id, self.judgements)

    @overload
    def answers(self, processor: ClassifierProcessor[A]) -> tuple[A, ...]: ...

    @overload
    def answers(self, processor: str, questions: type[Q]) -> tuple[Q, ...]: ...

    def answers(
        self, processor: ClassifierProcessor[Any] | str, questions: type[Questions] | None = None
    ) -> tuple[Any, ...]:
        """The typed answers a processor got, in the order of the messages it judged.

        Args:
            processor: The processor, or its id.
            questions: The class its questions are declared with, where only its id is known.
        """
        wanted = processor if isinstance(processor, str) else processor.id
        found = [each.answers for each in self.judgements if each.processor_id == wanted]
        known = [answers for answers in found if answers is not None]
        return tuple(known if questions is None else (typed_answers(questions, each) for each in known))

    def _tripped(self) -> Judgement | None:
        return next((judgement for judgement in self.judgements if judgement.effect == "aborted"), None)
