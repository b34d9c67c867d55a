"""Whether answers may be believed: complete, of the right type, and consistent with themselves. Pure.

Numbers arrive rounded, so a distribution is compared within what rounding can explain: each probability is
off by at most half a unit of its last decimal (`err`), so a sum of n by n·err, two of them by 2·err, and a
mean over levels by Σ i·err.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TypeGuard

from classifier.answers import Answer, BooleanAnswer, ChoiceAnswer, Refusal, ScoreAnswer
from classifier.errors import InvalidAnswer
from classifier.questions import Boolean, Choice, Question, Score
from classifier.result import Rounding

EPSILON = 1e-6


def check_answers(
    questions: Mapping[str, Question], answers: Mapping[str, Answer], rounding: Rounding
) -> None:
    """Checks that `answers` answers exactly `questions` and nothing contradicts itself.

    Raises:
        InvalidAnswer: Names the question and the fault, or the missing and extra ids.
    """
    missing = tuple(name for name in questions if name not in answers)
    extra = tuple(name for name in answers if name not in questions)
    if missing or extra:
        listed = f"missing={','.join(missing) or '-'} extra={','.join(extra) or '-'}"
        raise InvalidAnswer(
            f"answers do not match the questions: {listed}",
            missing=missing,
            extra=extra,
        )
    for name, question in questions.items():
        fault = answer_fault(question, answers[name], rounding)
        if fault is not None:
            raise InvalidAnswer(f"answer to {name!r}: {fault}")


def answer_fault(question: Question, answer: Answer, rounding: Rounding) -> str | None:
    """What is wrong with one answer, or None. A refusal is right for every question."""
    match question, answer:
        case _, Refusal():
            return None
        case Boolean(), BooleanAnswer():
            return _unit_fault(answer.probability, "probability") or _confidence_fault(answer.confidence)
        case Choice(), ChoiceAnswer():
            return _choice_fault(question, answer, rounding) or _confidence_fault(answer.confidence)
        case Score(), ScoreAnswer():
            return _score_fault(question, answer, rounding) or _confidence_fault(answer.confidence)
        case _:
            return f"a {question.kind} was asked, a {answer.kind} came back"


def _choice_fault(question: Choice[str], answer: ChoiceAnswer[str], rounding: Rounding) -> str | None:
    if answer.choice not in list(question.options):
        return "the chosen option was not offered"
    if answer.probabilities is None:
        return None
    if set(answer.probabilities) != set(question.options):
        return "its distribution does not hold exactly the offered options"
    values = list(answer.probabilities.values())
    fault = _distribution_fault(values, rounding)
    if fault is not None:
        return fault
    if answer.probabilities[answer.choice] < max(values) - EPSILON - 2 * _error(
        rounding.probability_decimals
    ):
        return "the chosen option is not the most probable one"
    return None


def _score_fault(question: Score, answer: ScoreAnswer, rounding: Rounding) -> str | None:
    top = len(question.levels) - 1
    score_error = EPSILON + _error(rounding.score_decimals)
    if not _is_number(answer.score) or not -score_error <= answer.score <= top + score_error:
        return f"the score is not a number from 0 to {top}"
    if answer.probabilities is None:
        return None
    if len(answer.probabilities) != len(question.levels):
        return "its distribution does not hold exactly one probability per level"
    fault = _distribution_fault(answer.probabilities, rounding)
    if fault is not None:
        return fault
    mean = sum(level * probability for level, probability in enumerate(answer.probabilities))
    tolerance = score_error + _error(rounding.probability_decimals) * top * (top + 1) / 2
    if abs(mean - answer.score) > tolerance:
        return "the score is not the mean of its distribution"
    return None


def _distribution_fault(values: list[float] | tuple[float, ...], rounding: Rounding) -> str | None:
    for value in values:
        fault = _unit_fault(value, "a probability")
        if fault is not None:
            return fault
    if abs(sum(values) - 1) > EPSILON + len(values) * _error(rounding.probability_decimals):
        return "its probabilities do not sum to 1"
    return None


def _unit_fault(value: object, what: str) -> str | None:
    return None if _is_number(value) and 0 <= value <= 1 else f"{what} is not a number from 0 to 1"


def _confidence_fault(value: object) -> str | None:
    return None if value is None else _unit_fault(value, "confidence")


def _is_number(value: object) -> TypeGuard[float]:
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < math.inf


def _error(decimals: int | None) -> float:
    return 0.0 if decimals is None else 0.5 * 10.0**-decimals
