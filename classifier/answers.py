"""Answers to typed questions. Pure.

An answer is evidence, not a verdict. A `Refusal` is legal for every question and has no choice, score or
probability, so that a type checker makes the policy say what a refusal means: by a `match`, or by the
`*_or` methods, which have no default.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Generic, Literal, TypeAlias, TypeVar, cast, get_args

from classifier.errors import InvalidAnswer
from classifier.values import JSON

L_co = TypeVar("L_co", bound=str, covariant=True)
D = TypeVar("D")

Signal: TypeAlias = Literal["answer", "blocked", "policy", "omitted"]
"""How a refusal showed."""


@dataclass(frozen=True, slots=True)
class BooleanAnswer:
    """How likely the answer is yes.

    Attributes:
        probability: P(true), 0 to 1.
        calibrated: False where the number only ranks (the local model without labelled examples); such an
            answer is shown, never routed on. None where the provider says nothing about it.
        confidence: The provider's own measure, 0 to 1; definitions differ between providers.
    """

    kind: ClassVar[Literal["boolean"]] = "boolean"
    probability: float
    calibrated: bool | None = None
    confidence: float | None = None

    def probability_or(self, refused: float) -> float:
        """P(true); `refused` stands in where the model refuses."""
        del refused
        return self.probability

    def at_least(self, threshold: float, *, unsure: bool) -> bool:
        """Whether P(true) reaches `threshold`; `unsure` where the number is uncalibrated or refused."""
        return unsure if self.calibrated is False else self.probability >= threshold


@dataclass(frozen=True)  # no slots: with them Python 3.11 cannot call ChoiceAnswer[…](…)
class ChoiceAnswer(Generic[L_co]):
    """The chosen option.

    Attributes:
        choice: One of the declared options.
        probabilities: All declared options, summing to 1; None where the provider gives none.
        confidence: The provider's own measure, 0 to 1; definitions differ between providers.
    """

    kind: ClassVar[Literal["choice"]] = "choice"
    choice: L_co
    probabilities: Mapping[str, float] | None = None
    confidence: float | None = None

    @property
    def probability(self) -> float | None:
        """The probability of the chosen option; None where the provider gives no distribution."""
        return None if self.probabilities is None else self.probabilities[self.choice]

    def choice_or(self, refused: D) -> L_co | D:
        """The chosen option; `refused` stands in where the model refuses."""
        del refused
        return self.choice


@dataclass(frozen=True, slots=True)
class ScoreAnswer:
    """A position on the declared levels.

    Attributes:
        score: 0 (first level) to n - 1 (last level); the mean of the distribution where there is one.
        probabilities: One per level, summing to 1; None where the provider gives none.
        confidence: The provider's own measure, 0 to 1; definitions differ between providers.
    """

    kind: ClassVar[Literal["score"]] = "score"
    score: float
    probabilities: tuple[float, ...] | None = None
    confidence: float | None = None

    def score_or(self, refused: D) -> float | D:
        """The score; `refused` stands in where the model refuses."""
        del refused
        return self.score


@dataclass(frozen=True, slots=True)
class Refusal:
    """The model declined to answer this question.

    Attributes:
        signal: How it showed: a typed answer, the whole input blocked, a policy error, or an omitted id from
            a provider that refuses so.
    """

    kind: ClassVar[Literal["refusal"]] = "refusal"
    signal: Signal = "answer"

    def probability_or(self, refused: float) -> float:
        """What the policy says a refusal counts as."""
        return refused

    def at_least(self, threshold: float, *, unsure: bool) -> bool:
        """What the policy says a refusal counts as."""
        del threshold
        return unsure

    def choice_or(self, refused: D) -> D:
        """What the policy says a refusal counts as."""
        return refused

    def score_or(self, refused: D) -> D:
        """What the policy says a refusal counts as."""
        return refused


Answer: TypeAlias = BooleanAnswer | ChoiceAnswer[str] | ScoreAnswer | Refusal


class UnreadAnswers(Mapping[str, Answer]):
    """Answers as `answers_to_json` wrote them, each read when it is asked for.

    Backtests go through them by the million, and a policy looks at some.

    Args:
        body: The JSON; a damaged answer raises `InvalidAnswer` once somebody looks at it.
    """

    __slots__ = ("_body",)

    def __init__(self, body: Mapping[str, Any]) -> None:
        self._body = body

    def __getitem__(self, question: str) -> Answer:
        return answer_from_json(self._body[question])

    def __iter__(self) -> Iterator[str]:
        return iter(self._body)

    def __len__(self) -> int:
        return len(self._body)


class Answers(Mapping[str, Answer]):
    """Answers by question id, read-only; `boolean`, `choice` and `score` give them typed."""

    __slots__ = ("_answers",)

    def __init__(self, answers: Mapping[str, Answer]) -> None:
        self._answers = answers if isinstance(answers, UnreadAnswers) else dict(answers)

    def __getitem__(self, question: str) -> Answer:
        return self._answers[question]

    def __iter__(self) -> Iterator[str]:
        return iter(self._answers)

    def __len__(self) -> int:
        return len(self._answers)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(self._answers)})"

    def boolean(self, question: str) -> BooleanAnswer | Refusal:
        """The answer to a boolean question.

        Raises:
            TypeError: The question is of another type.
            KeyError: There is no such question.
        """
        return self._typed(question, BooleanAnswer)

    def choice(self, question: str) -> ChoiceAnswer[str] | Refusal:
        """The answer to a choice question; errors as for `boolean`."""
        return self._typed(question, cast("type[ChoiceAnswer[str]]", ChoiceAnswer))

    def score(self, question: str) -> ScoreAnswer | Refusal:
        """The answer to a score question; errors as for `boolean`."""
        return self._typed(question, ScoreAnswer)

    def _typed(self, question: str, kind: type[D]) -> D | Refusal:
        answer = self._answers[question]
        if isinstance(answer, kind) or isinstance(answer, Refusal):  # noqa: SIM101 - a union takes longer
            return answer
        raise TypeError(f"the answer to {question!r} is a {answer.kind}, not a {kind.__name__}")


def answer_to_json(answer: Answer) -> dict[str, JSON]:
    """An answer as JSON, without what is absent; `answer_from_json` reads it back."""
    body: dict[str, JSON] = {"type": answer.kind}
    match answer:
        case BooleanAnswer():
            body["probability"] = answer.probability
            if answer.calibrated is not None:
                body["calibrated"] = answer.calibrated
        case ChoiceAnswer():
            body["choice"] = answer.choice
            if answer.probabilities is not None:
                body["probabilities"] = dict(answer.probabilities)
        case ScoreAnswer():
            body["score"] = answer.score
            if answer.probabilities is not None:
                body["probabilities"] = list(answer.probabilities)
        case Refusal():
            body["signal"] = answer.signal
            return body
    if answer.confidence is not None:
        body["confidence"] = answer.confidence
    return body


def answer_from_json(body: Mapping[str, Any]) -> Answer:
    """Reads what `answer_to_json` wrote.

    Raises:
        InvalidAnswer: It is something else.
    """
    try:
        given = body.get("confidence")
        confidence = None if given is None else _number(given)
        match body["type"]:
            case "boolean":
                calibrated = _flag(body.get("calibrated"))
                return BooleanAnswer(_number(body["probability"]), calibrated, confidence)
            case "choice":
                options = body.get("probabilities")
                spread = None if options is None else {key: _number(p) for key, p in options.items()}
                return ChoiceAnswer(_text(body["choice"]), spread, confidence)
            case "score":
                levels = body.get("probabilities")
                spots = None if levels is None else tuple(_number(p) for p in levels)
                return ScoreAnswer(_number(body["score"]), spots, confidence)
            case "refusal":
                return Refusal(_signal(body.get("signal", "answer")))
            case _:
                raise InvalidAnswer("a stored answer has an unknown type")
    except (KeyError, TypeError, AttributeError) as error:
        raise InvalidAnswer("a stored answer lacks a field, or has one of another type") from error


def _number(value: object) -> float:
    if type(value) is float:  # as nearly always; backtests read answers by the million
        return value
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError
    return value


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError
    return value


def _flag(value: object) -> bool | None:
    if value is not None and not isinstance(value, bool):
        raise TypeError
    return value


def _signal(value: Any) -> Signal:
    if value not in get_args(Signal):
        raise TypeError
    return cast("Signal", value)


def answers_to_json(answers: Mapping[str, Answer]) -> dict[str, JSON]:
    """Answers by question id as JSON."""
    return {question: answer_to_json(answer) for question, answer in answers.items()}


def answers_from_json(body: Mapping[str, Any]) -> dict[str, Answer]:
    """Reads what `answers_to_json` wrote; errors as for `answer_from_json`."""
    return {question: answer_from_json(answer) for question, answer in body.items()}
