"""How far a model's probabilities can be taken at their word: reliability, Brier score, ECE. Pure.

One probability is judged per answer: of a boolean P(true), of a choice that of the chosen option, of a score
that of its likeliest level. It is compared with whether a person's label agrees.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from classifier.answers import Answer, BooleanAnswer, ChoiceAnswer, ScoreAnswer
from classifier.labelling import LabelValue

BINS = 10


@dataclass(frozen=True, slots=True)
class Judged:
    """A probability, and what came of it.

    Attributes:
        predicted: How likely it was said to be, 0 to 1.
        happened: Whether it was so: the label of a boolean is true, that of another is what was answered.
    """

    predicted: float
    happened: bool


@dataclass(frozen=True, slots=True)
class Bin:
    """The answers whose probability lies in one tenth.

    Attributes:
        low: Where it begins.
        high: Where it ends; belongs to the next one, but for 1.
        count: How many.
        predicted: The mean of their probabilities.
        observed: The share that was so.
    """

    low: float
    high: float
    count: int
    predicted: float
    observed: float


@dataclass(frozen=True, slots=True)
class Reliability:
    """How well probabilities agree with labels.

    Attributes:
        count: Labelled answers with a probability.
        brier: The mean of the squared errors; 0 is perfect, 0.25 is what a coin earns that says one half.
        ece: Expected calibration error: how far predicted and observed lie apart, over the bins by count.
        bins: Those that are not empty, lowest first.
    """

    count: int
    brier: float
    ece: float
    bins: tuple[Bin, ...]


def judged(answer: Answer, label: LabelValue) -> Judged | None:
    """An answer beside its label; None where the answer has no probability that claims to be one.

    Such are refusals, booleans that only rank, answers without a distribution, and labels of another kind.
    """
    match answer:
        case BooleanAnswer(probability=probability, calibrated=calibrated):
            if calibrated is False or not isinstance(label, bool):
                return None
            return _judged(probability, happened=label)
        case ChoiceAnswer(choice=choice, probability=probability):
            if probability is None or not isinstance(label, str):
                return None
            return _judged(probability, happened=label == choice)
        case ScoreAnswer(probabilities=probabilities):
            if not probabilities or isinstance(label, bool | str):
                return None
            likeliest = max(range(len(probabilities)), key=probabilities.__getitem__)
            return _judged(probabilities[likeliest], happened=math.floor(label + 0.5) == likeliest)
        case _:
            return None


def reliability(answers: Iterable[Judged]) -> Reliability | None:
    """The figures; None where there are no answers."""
    given = list(answers)
    if not given:
        return None
    groups: dict[int, list[Judged]] = {}
    for one in given:
        groups.setdefault(min(int(one.predicted * BINS), BINS - 1), []).append(one)
    bins = tuple(_bin(index, groups[index]) for index in sorted(groups))
    return Reliability(
        count=len(given),
        brier=math.fsum((one.predicted - one.happened) ** 2 for one in given) / len(given),
        ece=math.fsum(each.count * abs(each.predicted - each.observed) for each in bins) / len(given),
        bins=bins,
    )


def _judged(probability: float, *, happened: bool) -> Judged | None:
    return Judged(probability, happened) if 0 <= probability <= 1 else None


def _bin(index: int, group: list[Judged]) -> Bin:
    count = len(group)
    return Bin(
        low=index / BINS,
        high=(index + 1) / BINS,
        count=count,
        predicted=math.fsum(one.predicted for one in group) / count,
        observed=sum(one.happened for one in group) / count,
    )
