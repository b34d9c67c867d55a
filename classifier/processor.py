"""A processor: a classifier plus application policy for the phases input, output and stream. Pure.

The classifier gives evidence, `on_result` decides: it calls `abort` or `filter` on its context, or does
nothing and lets the content through.
"""

from __future__ import annotations

import copy
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, Literal, TypeAlias, TypeVar, cast, get_args

from classifier.answers import Answers
from classifier.classifier import Classifier
from classifier.decision import Decision, Phase, ProcessorMode
from classifier.errors import ConfigurationError, PolicyError
from classifier.normalise import Normalised, normalise
from classifier.policy import PolicyContext
from classifier.questions import Choice, Question, Questions, Score, questions_of, typed_answers
from classifier.result import Truncation
from classifier.values import JSON, json_copy

A = TypeVar("A", bound=Answers)

ErrorStrategy: TypeAlias = Literal["strict", "warn"]
Normalise: TypeAlias = Callable[[str], Normalised]
OnResult: TypeAlias = Callable[[A, PolicyContext[A]], "Awaitable[None] | None"]
OnDecision: TypeAlias = Callable[[Decision], "Awaitable[None] | None"]

GUARDED_PHASES: tuple[Phase, ...] = ("input", "output", "stream")


@dataclass(frozen=True, slots=True)
class Coalesce:
    """Judge a stream by size and time instead of chunk by chunk.

    Attributes:
        characters: Judge when this many characters have gathered.
        seconds: Judge what has gathered when its first chunk is this old.
    """

    characters: int
    seconds: float


@dataclass(frozen=True, slots=True)
class Prepared:
    """Text as a classifier gets it, and what was done to it.

    Attributes:
        text: Normalised and cut.
        blank: There was nothing to read before it was cut.
        truncation: Where it was cut.
        normalised: What normalising changed.
        original: The whole text before that, if it changed anything.
    """

    text: str
    blank: bool = False
    truncation: Truncation | None = None
    normalised: tuple[str, ...] = ()
    original: str | None = None


class ClassifierProcessor(Generic[A]):
    """Runs a classifier over message text and lets `on_result` allow, filter or abort.

    Args:
        classifier: A classifier with questions of its own, or the key or id of one registered in the app.
        on_result: Policy. Called with the typed answers and a `PolicyContext` after each answer; an async
            function is awaited, a plain one runs in a thread so that it may block.
        on_decision: Called with each decision after it was recorded, before the content moves on. What it
            raises is logged and changes nothing.
        id: Unique among the processors of an app or a chain.
        error_strategy: "strict" aborts when the classifier fails, "warn" lets the content through. Wrong
            configuration and exceptions in `on_result` raise under both.
        last_message_only: Judge only the last message, in the phases input and output.
        chunk_window: How many trailing text chunks of a stream are judged together, the current one
            included; 0 and 1 both mean the current one alone.
        max_input_length: Most characters that are sent: the first of a message, the newest of a stream.
        provider_options: Added to the classifier's own, per key.
        mode: "monitor" records what would have happened and changes nothing.
        max_in_flight: How many chunks of a stream are judged at the same time.
        hold_back: Release streamed text only when a verdict covers this many characters after it, which
            catches a term split over chunks if it is at least the term's length less one.
        coalesce: Judge a stream by size and time; a chunk is then what has gathered.
        normalise: True judges the text as a reader would see it (`classifier.normalise`), a function does
            it another way; the content itself is not changed.
        policy_version: The application's name for its policy, recorded with every decision.
        questions: What is expected of a classifier that is named, where the type argument
            (`ClassifierProcessor[SafetyQuestions]`) does not say it.
        phases: The phases it is meant for; used in another one, it is a configuration error. `check` lists
            them, and `App(require_guard=…)` counts on them. None allows all.

    Raises:
        ConfigurationError: An option is out of range, or the classifier has no questions.
    """

    name = "Classifier"

    def __init__(
        self,
        *,
        classifier: Classifier[A] | str,
        on_result: OnResult[A],
        on_decision: OnDecision | None = None,
        id: str = "classifier",  # noqa: A002 - the word of the domain
        error_strategy: ErrorStrategy = "strict",
        last_message_only: bool = False,
        chunk_window: int = 0,
        max_input_length: int | None = None,
        provider_options: Mapping[str, JSON] | None = None,
        mode: ProcessorMode = "enforce",
        max_in_flight: int = 8,
        hold_back: int = 0,
        coalesce: Coalesce | None = None,
        normalise: bool | Normalise | None = None,
        policy_version: str | None = None,
        questions: type[A] | Mapping[str, Question] | None = None,
        phases: Sequence[Phase] | None = None,
    ) -> None:
        self.id = id
        self.classifier = classifier
        self.on_result = on_result
        self.on_decision = on_decision
        self.error_strategy: ErrorStrategy = error_strategy
        self.last_message_only = last_message_only
        self.chunk_window = chunk_window
        self.max_input_length = max_input_length
        self.provider_options = _options(provider_options, id)
        self.mode: ProcessorMode = mode
        self.max_in_flight = max_in_flight
        self.hold_back = hold_back
        self.coalesce = coalesce
        self.normalise = _normaliser(normalise, id)
        self.policy_version = policy_version
        self.phases = None if phases is None else tuple(phases)
        self._questions = cast("type[Questions] | Mapping[str, Question] | None", questions)
        _check_options(self)
        if isinstance(classifier, Classifier):
            self._check_questions(classifier)

    def __repr__(self) -> str:
        return f"ClassifierProcessor({self.id!r})"

    @property
    def classifier_id(self) -> str:
        """The id of the classifier, or the name it is looked up by."""
        return self.classifier if isinstance(self.classifier, str) else self.classifier.id

    @property
    def declared(self) -> type[Questions] | Mapping[str, Question] | None:
        """The questions this processor says it asks: `questions`, else its type argument."""
        if self._questions is not None:
            return self._questions
        for argument in cast("tuple[object, ...]", get_args(getattr(self, "__orig_class__", None))):
            if isinstance(argument, type) and issubclass(argument, Questions):
                return argument
        return None

    def bound(self, classifier: Classifier[Any]) -> ClassifierProcessor[A]:
        """The same processor with its classifier looked up.

        Raises:
            ConfigurationError: The classifier has no questions, or others than this processor declares.
        """
        self._check_questions(classifier)
        bound = copy.copy(self)
        bound.classifier = classifier
        return bound

    def ready(self) -> Classifier[A]:
        """The classifier, ready to be asked.

        Raises:
            ConfigurationError: It, or its model, is only a name; or its questions are not the declared.
        """
        classifier = self.classifier
        if isinstance(classifier, str):
            raise ConfigurationError(
                f"processor {self.id!r} names the classifier {classifier!r}; only an App can look it up"
            )
        if isinstance(classifier.model, str):
            raise ConfigurationError(
                f"processor {self.id!r}: classifier {classifier.id!r} names the model {classifier.model!r}; "
                "only an App can look it up"
            )
        self._check_questions(classifier)
        return classifier

    def check_phase(self, phase: Phase) -> None:
        """Raises where this processor is not meant for a phase.

        Raises:
            ConfigurationError: It names both.
        """
        if self.phases is not None and phase not in self.phases:
            raise ConfigurationError(
                f"processor {self.id!r} is declared for {', '.join(self.phases)}, and is used for {phase}"
            )

    def prepare(self, text: str, *, newest: bool = False) -> Prepared:
        """`text` as the classifier gets it: normalised, then cut.

        Args:
            text: What is judged.
            newest: Cut away the beginning instead of the end.

        Raises:
            PolicyError: The `normalise` function raised.
        """
        seen = self._seen(text)
        blank = not seen.text.strip()
        original = text if seen.changes else None
        limit = self.max_input_length
        length = len(seen.text)
        if limit is None or length <= limit:
            return Prepared(seen.text, blank, None, seen.changes, original)
        cut = seen.text[length - limit :] if newest else seen.text[:limit]
        return Prepared(cut, blank, Truncation(length, limit, "processor"), seen.changes, original)

    def _seen(self, text: str) -> Normalised:
        if self.normalise is None:
            return Normalised(text)
        try:
            return self.normalise(text)
        except Exception as error:
            kind = type(error).__name__
            raise PolicyError(f"the normalise function of processor {self.id!r} raised {kind}") from error

    def typed(self, answers: Answers) -> A:
        """`answers` as an instance of the declared question set."""
        declared = self.declared
        if isinstance(declared, type) and not isinstance(answers, declared):
            return cast("A", typed_answers(declared, answers))
        return cast("A", answers)

    def _check_questions(self, classifier: Classifier[Any]) -> None:
        if classifier.questions is None:
            raise ConfigurationError(
                f"processor {self.id!r} needs a classifier with questions; {classifier.id!r} has none"
            )
        declared = self.declared
        if declared is None or declared is classifier.declared:
            return
        different = differing_questions(questions_of(declared), classifier.questions)
        if different:
            raise ConfigurationError(
                f"processor {self.id!r} declares other questions than classifier {classifier.id!r} asks: "
                f"they differ in {', '.join(different)}"
            )


def differing_questions(one: Mapping[str, Question], other: Mapping[str, Question]) -> list[str]:
    """Ids under which the answers could not be used alike: type, options or number of levels differ."""
    names = sorted({*one, *other})
    return [name for name in names if _shape(one.get(name)) != _shape(other.get(name))]


def _shape(question: Question | None) -> object:
    match question:
        case None:
            return None
        case Choice(options=options):
            return ("choice", frozenset(options))
        case Score(levels=levels):
            return ("score", len(levels))
        case _:
            return question.kind


def _check_options(processor: ClassifierProcessor[Any]) -> None:
    problem = next(_option_problems(processor), None)
    if problem is not None:
        raise ConfigurationError(f"processor {processor.id!r}: {problem}")


def _option_problems(given: Any) -> Iterator[str]:
    if not isinstance(given.id, str) or not given.id.strip():
        yield "id must be text that is not blank"
    if given.classifier == "" or not isinstance(given.classifier, (str, Classifier)):
        yield "classifier must be a Classifier, or the key or id of a registered one"
    if not callable(given.on_result):
        yield "on_result must be a function of answers and context"
    if given.on_decision is not None and not callable(given.on_decision):
        yield "on_decision must be a function of a decision"
    if given.error_strategy not in get_args(ErrorStrategy):
        yield f"error_strategy is 'strict' or 'warn', not {given.error_strategy!r}"
    if given.mode not in get_args(ProcessorMode):
        yield f"mode is 'enforce' or 'monitor', not {given.mode!r}"
    phases = given.phases
    if phases is not None and (not phases or not set(phases) <= set(GUARDED_PHASES)):
        yield f"phases are some of {', '.join(GUARDED_PHASES)}, not {', '.join(map(str, phases)) or 'none'}"
    yield from _number_problems(given)


def _number_problems(given: Any) -> Iterator[str]:
    for option in ("chunk_window", "hold_back"):
        if not _is_whole(getattr(given, option)):
            yield f"{option} must be a whole number that is not negative"
    limit = given.max_input_length
    if limit is not None and not _is_whole(limit):
        yield "max_input_length must be a whole number that is not negative, or None"
    elif limit is not None and given.hold_back and limit <= given.hold_back:
        yield "max_input_length must be larger than hold_back, or held text is not judged whole"
    if not _is_whole(given.max_in_flight) or not given.max_in_flight:
        yield "max_in_flight must be a whole number of at least 1"
    pieces = given.coalesce
    if pieces is not None and (not _is_whole(pieces.characters) or pieces.characters < 1):
        yield "coalesce must gather at least one character"
    if pieces is not None and not 0 < pieces.seconds < float("inf"):
        yield "coalesce must wait for more than zero seconds"


def _is_whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _normaliser(chosen: bool | Normalise | None, processor: str) -> Normalise | None:
    if chosen is None or chosen is False:
        return None
    if chosen is True:
        return normalise
    if not callable(cast("Any", chosen)):
        raise ConfigurationError(f"processor {processor!r}: normalise is True, False or a function")
    return chosen


def _options(options: Mapping[str, JSON] | None, processor: str) -> dict[str, JSON]:
    where = f"provider_options of processor {processor!r}"
    try:
        return cast("dict[str, JSON]", json_copy(options or {}, where))
    except ValueError as error:
        raise ConfigurationError(str(error)) from error
