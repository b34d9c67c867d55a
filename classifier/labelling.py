"""What people say an answer should have been: a label for one question of a decision. Pure."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeAlias

from classifier.answers import Answer, BooleanAnswer, ChoiceAnswer, Refusal, ScoreAnswer
from classifier.decision import Decision
from classifier.errors import ConfigurationError

LabelValue: TypeAlias = bool | str | float
"""True or false, an option, or a position on the levels."""

_WORDS = {"true": True, "yes": True, "false": False, "no": False}


@dataclass(frozen=True, slots=True)
class AnswerLabel:
    """What a person answered to one question of a decision."""

    question: str
    label: LabelValue


def read_label(answers: Mapping[str, Answer] | None, question: str, text: str) -> AnswerLabel:
    """The label that `text` means, of the kind that the stored answer has.

    Args:
        answers: Those of the decision.
        question: Which of its questions.
        text: true or false, an option, or a position on the levels.

    Raises:
        ConfigurationError: There is no such question, its answer has no kind, or the text does not fit it.
    """
    answer = (answers or {}).get(question)
    if answer is None:
        known = ", ".join(answers or {}) or "none, since the call failed"
        raise ConfigurationError(f"the decision has no question {question!r}; it has {known}")
    match answer:
        case BooleanAnswer():
            return AnswerLabel(question, _boolean(question, text))
        case ChoiceAnswer():
            return AnswerLabel(question, _option(question, text, answer))
        case ScoreAnswer():
            return AnswerLabel(question, _position(question, text, answer))
        case Refusal():
            raise ConfigurationError(
                f"question {question!r} was refused, so the record does not say what kind of answer it takes"
            )


def label_of_review(decision: Decision, route: str, suggested: str | None) -> AnswerLabel | None:
    """What a person's route says about an answer; None where it says nothing for sure.

    It answers a choice question where the playbook plainly routes by that question: the route is an option of
    exactly one choice question of the decision, and what would have been done without the person, if
    anything, is what that question's answer was. And the decision itself must have asked for the review:
    where a delivery was refused, people route around the receiver.
    """
    if decision.branch is None or decision.branch.action != "review":
        return None
    asked = [
        (question, answer.choice)
        for question, answer in (decision.answers or {}).items()
        if isinstance(answer, ChoiceAnswer) and route in _options(answer)
    ]
    if len(asked) != 1:
        return None
    [(question, choice)] = asked
    return AnswerLabel(question, route) if suggested in {None, choice} else None


def _options(answer: ChoiceAnswer[str]) -> frozenset[str]:
    """As many of the declared options as the answer tells."""
    return frozenset({answer.choice, *(answer.probabilities or {})})


def _boolean(question: str, text: str) -> bool:
    found = _WORDS.get(text.strip().lower())
    if found is None:
        raise ConfigurationError(f"question {question!r} takes true or false, not {text!r}")
    return found


def _option(question: str, text: str, answer: ChoiceAnswer[str]) -> str:
    if answer.probabilities is None:  # the record does not hold the options
        if not text.strip():
            raise ConfigurationError(f"question {question!r} takes an option")
        return text
    if text not in answer.probabilities:
        known = ", ".join(answer.probabilities)
        raise ConfigurationError(f"question {question!r} takes one of {known}, not {text!r}")
    return text


def _position(question: str, text: str, answer: ScoreAnswer) -> float:
    highest = math.inf if answer.probabilities is None else len(answer.probabilities) - 1
    try:
        position = float(text)
    except ValueError:
        position = math.nan
    if not (math.isfinite(position) and 0 <= position <= highest):
        upto = "" if math.isinf(highest) else f" to {highest}"
        raise ConfigurationError(f"question {question!r} takes a level from 0{upto}, not {text!r}")
    return int(position) if position.is_integer() else position
