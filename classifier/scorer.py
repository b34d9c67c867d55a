"""A classifier as a scorer for evaluations: one question, a number from 0 to 1, and the evidence. Pure.

    scorer = Scorer(Classifier("politeness", model, {"polite": Boolean("Is the reply polite?")}))
    match await scorer.score(reply):
        case Scored(value=value): ...
        case NotScorable(refusal=refusal): ...

A refusal is no number: it is neither good nor bad, and an average that counted it would lie.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias, cast

from classifier.answers import Answer, BooleanAnswer, ChoiceAnswer, Refusal, ScoreAnswer
from classifier.classifier import Classifier
from classifier.errors import ConfigurationError
from classifier.models.protocol import DecisionModel
from classifier.questions import Choice, Question, Score
from classifier.result import ClassifierResult
from classifier.values import JSON, State


@dataclass(frozen=True, slots=True)
class Scored:
    """A number, with what it was made of.

    Attributes:
        value: 0 to 1.
        answer: The answer; a boolean that is not `calibrated` only ranks.
        result: Everything else the classifier said: usage, response, rounding, warnings, metadata.
    """

    value: float
    answer: BooleanAnswer | ChoiceAnswer[str] | ScoreAnswer
    result: ClassifierResult[Any]


@dataclass(frozen=True, slots=True)
class NotScorable:
    """The model refused; there is no number.

    Attributes:
        refusal: How the refusal showed.
        result: As for `Scored`.
    """

    refusal: Refusal
    result: ClassifierResult[Any]


ScoreOutcome: TypeAlias = Scored | NotScorable


class Scorer:
    """Turns the answer to a classifier's only question into a number.

    A boolean gives P(true), a score its place between the first level (0) and the last (1), a choice what
    `scores` says about the chosen option.

    Args:
        classifier: With exactly one question of its own.
        scores: For a choice, and only for one: every option with its number from 0 to 1.

    Raises:
        ConfigurationError: Not exactly one question; `scores` misses an option, names another, holds
            something else than a number from 0 to 1, or is given for another type of question.
    """

    def __init__(self, classifier: Classifier[Any], *, scores: Mapping[str, float] | None = None) -> None:
        self.classifier = classifier
        self.name, self.question = _only_question(classifier)
        self.scores = None if scores is None else dict(scores)
        fault = _fault(self.question, self.scores)
        if fault is not None:
            raise ConfigurationError(f"scorer over classifier {classifier.id!r}, {self.name!r}: {fault}")

    def __repr__(self) -> str:
        return f"Scorer({self.classifier!r})"

    def bound(self, model: DecisionModel) -> Scorer:
        """The same scorer with its classifier's model resolved."""
        return Scorer(self.classifier.bound(model), scores=self.scores)

    async def score(
        self, state: State, *, provider_options: Mapping[str, JSON] | None = None
    ) -> ScoreOutcome:
        """Asks once and scores the answer; errors as for `Classifier.evaluate`."""
        result = await self.classifier.evaluate(state, provider_options=provider_options)
        answer: Answer = result.answers[self.name]
        if isinstance(answer, Refusal):
            return NotScorable(answer, result)
        return Scored(self._value(answer), answer, result)

    def _value(self, answer: BooleanAnswer | ChoiceAnswer[str] | ScoreAnswer) -> float:
        match answer:
            case BooleanAnswer():
                return answer.probability
            case ChoiceAnswer():
                return (self.scores or {})[answer.choice]
            case ScoreAnswer():
                top = len(cast("Score", self.question).levels) - 1
                return min(1.0, max(0.0, answer.score / top))  # a rounded score may lie a hair outside


def _only_question(classifier: Classifier[Any]) -> tuple[str, Question]:
    questions = list((classifier.questions or {}).items())
    if len(questions) != 1:
        raise ConfigurationError(
            f"a scorer needs a classifier with one question; {classifier.id!r} has {len(questions)}"
        )
    return questions[0]


def _fault(question: Question, scores: Mapping[str, float] | None) -> str | None:
    if not isinstance(question, Choice):
        return None if scores is None else f"scores are for a choice, not for a {question.kind}"
    options: list[str] = list(question.options)
    given = scores or {}
    missing = [option for option in options if option not in given]
    if missing:
        return f"scores lacks the options {', '.join(map(repr, missing))}"
    unknown = [option for option in given if option not in options]
    if unknown:
        return f"scores has {', '.join(map(repr, unknown))}, which the question does not offer"
    outside = [option for option, value in given.items() if not _in_unit(value)]
    return f"the score of {outside[0]!r} is not a number from 0 to 1" if outside else None


def _in_unit(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= 1
