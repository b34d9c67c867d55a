"""When an answer is sure enough to act on. Pure.

A gate is the lowest probability of the given answer that passes; equality passes. A refusal, an answer
without a probability and an uncalibrated boolean never pass.
"""

from __future__ import annotations

from collections.abc import Mapping

from classifier.answers import Answer, BooleanAnswer, ChoiceAnswer, Refusal, ScoreAnswer
from classifier.errors import ConfigurationError
from classifier.questions import Question

_DECIMALS = 12
"""Takes back the error of 1 - p in binary: 1 - 0.07 is a hair under 0.93, and equality passes."""


def check_gates(gates: Mapping[str, float], questions: Mapping[str, Question]) -> None:
    """Checks gates against the questions they are for.

    Raises:
        ConfigurationError: A gate names no question, or is not a number from 0 to 1.
    """
    for name, threshold in gates.items():
        if name not in questions:
            raise ConfigurationError(
                f"a gate is set for {name!r}, which is not asked; asked: {', '.join(questions)}"
            )
        if not 0 <= threshold <= 1:
            raise ConfigurationError(f"the gate of {name!r} is {threshold}; it must be from 0 to 1")


def closed_gates(gates: Mapping[str, float], answers: Mapping[str, Answer]) -> tuple[str, ...]:
    """Why each gate that does not open stays closed, as stable codes such as `low_probability:topic`."""
    reasons = ((name, _closed(answers[name], threshold)) for name, threshold in gates.items())
    return tuple(f"{reason}:{name}" for name, reason in reasons if reason is not None)


def _closed(answer: Answer, threshold: float) -> str | None:
    match answer:
        case Refusal():
            return "refusal"
        case BooleanAnswer(calibrated=False):
            return "uncalibrated"
        case BooleanAnswer(probability=yes):
            probability: float | None = max(yes, round(1 - yes, _DECIMALS))
        case ChoiceAnswer():
            probability = answer.probability
        case ScoreAnswer(probabilities=levels):
            probability = None if levels is None else max(levels)
    if probability is None:
        return "no_probability"
    return None if probability >= threshold else "low_probability"
