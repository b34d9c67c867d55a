"""From one text vector to probabilities, without labels and with them. Pure.

Without labels: how alike the text is to each criterion as a whole and to its closest phrase, through a
softmax whose temperature was fixed beforehand per encoder. With labelled examples: a logistic regression on
the vectors, blended with that, the less the more examples there are.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from .logistic import Logistic, fit_logistic, log_softmax

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from .encoder import Family, Floats
    from .logistic import Vector
    from .trained import Population

ENOUGH_PER_SIDE: Final = 5
"""Labelled examples a boolean needs on each side before its probability is believed."""

_ZERO_SHOT_STRENGTH: Final = 4.0
_FALSE_SHARE: Final = 0.5
VECTOR_SCALE: Final = 5.0  # centred vectors are short; this makes a penalty of 1 a reasonable one
_SCORE_SCALE: Final = 0.5
PENALTY: Final = 1.0


@dataclass(frozen=True, slots=True)
class Constants:
    """Fixed per encoder, on training rows.

    Attributes:
        temperature: Of the softmax over options.
        level_temperature: Of the softmax over levels.
        level_phrases: Share of the closest phrase in the likeness to a level; the rest is its whole text.
        even: Sum of standardised likenesses at which a boolean without examples says one half.
    """

    temperature: float
    level_temperature: float
    level_phrases: float
    even: float


CONSTANTS: Final[Mapping[Family, Constants]] = {
    "e5": Constants(temperature=0.01, level_temperature=0.02, level_phrases=1.0, even=3.5),
    "sparrow": Constants(temperature=0.05, level_temperature=0.05, level_phrases=0.5, even=4.5),
}


@dataclass(frozen=True, slots=True)
class Criteria:
    """Vectors of several options or levels: one row each, and the phrases of all with their owner."""

    whole: Floats
    phrases: Floats
    starts: Sequence[int]

    def likeness(self, vector: Floats, phrase_share: float) -> Vector:
        """How alike the text is to each, from the whole description and the closest phrase."""
        closest = np.maximum.reduceat(self.phrases @ vector, self.starts)
        both = (1 - phrase_share) * (self.whole @ vector) + phrase_share * closest
        return both.astype(np.float64)


@dataclass(frozen=True, slots=True)
class ChoiceRecipe:
    """Probabilities over options or levels."""

    criteria: Criteria
    phrase_share: float
    temperature: float
    learned: Learned | None = None

    def probabilities(self, vector: Floats) -> Vector:
        """One per option; they sum to 1."""
        logs = log_softmax(self.criteria.likeness(vector, self.phrase_share) / self.temperature)
        return np.exp(logs if self.learned is None else self.learned.blend(logs, vector))


@dataclass(frozen=True, slots=True)
class Learned:
    """A regression over the options that have examples; it moves probability among those only."""

    options: Sequence[int]
    model: Logistic
    mean: Floats
    zero_shot_share: float

    def blend(self, logs: Vector, vector: Floats) -> Vector:
        """Log-probabilities of all options with the learned ones mixed in."""
        known = list(self.options)
        mass = np.logaddexp.reduce(logs[known])
        learned = self.model.log_probabilities(centred(vector, self.mean))
        mixed = self.zero_shot_share * (logs[known] - mass) + (1 - self.zero_shot_share) * learned
        blended = logs.copy()
        blended[known] = log_softmax(mixed) + mass
        return blended


@dataclass(frozen=True, slots=True)
class BooleanRecipe:
    """P(true): a ranking where there are no examples, a probability where there are enough."""

    criteria: Floats
    weights: Floats
    phrases: Floats
    population: Population
    even: float
    learned: Logistic | None = None

    @property
    def calibrated(self) -> bool:
        """Whether the probability was fitted to labelled examples."""
        return self.learned is not None

    def strength(self, vector: Floats) -> float:
        """How much more than an ordinary message the text looks like the true side."""
        own = self.population.standardise(self.criteria @ vector, self.criteria)
        closest = self.population.standardise(self.phrases @ vector, self.phrases).max()
        return float(own @ self.weights) + float(closest)

    def probability(self, vector: Floats) -> float:
        """P(true) of one unit vector."""
        if self.learned is None:
            return float(1 / (1 + np.exp(self.even - self.strength(vector))))
        logs = self.learned.log_probabilities(self._features(vector))
        return float(np.exp(logs[1]))

    def taught(self, vectors: Floats, labels: Sequence[bool]) -> BooleanRecipe:
        """The same question fitted to labelled vectors, where there are enough on both sides."""
        if min(labels.count(True), labels.count(False)) < ENOUGH_PER_SIDE:
            return self
        x = np.stack([self._features(vector) for vector in vectors])
        fitted = fit_logistic(x, np.asarray(labels, dtype=np.intp), 2, PENALTY)
        return BooleanRecipe(self.criteria, self.weights, self.phrases, self.population, self.even, fitted)

    def _features(self, vector: Floats) -> Vector:
        strength = (self.strength(vector) - self.even) * _SCORE_SCALE
        return np.append(centred(vector, self.population.mean), strength)


def teach_choice(vectors: Floats, labels: Sequence[int], mean: Floats) -> Learned | None:
    """A regression over labelled vectors; None where fewer than two options have examples."""
    options = sorted(set(labels))
    if len(options) < 2:  # noqa: PLR2004 - one option alone says nothing about the others
        return None
    places = np.asarray([options.index(label) for label in labels], dtype=np.intp)
    model = fit_logistic(centred(vectors, mean), places, len(options), PENALTY)
    per_option = len(labels) / len(options)
    return Learned(options, model, mean, _ZERO_SHOT_STRENGTH / (_ZERO_SHOT_STRENGTH + per_option))


@dataclass(frozen=True, slots=True)
class Sides:
    """Vectors of a boolean: the question (one row), each side (one row or none), phrases of the true side."""

    question: Floats
    true: Floats
    false: Floats
    phrases: Floats


def boolean_recipe(sides: Sides, population: Population, even: float) -> BooleanRecipe:
    """A boolean without examples; where nothing describes the true side, the question stands in for it."""
    described = len(sides.true) > 0
    own = [1, 1] if described else [2]
    weights = np.asarray([*own, *[-_FALSE_SHARE] * len(sides.false)], dtype=np.float32)
    criteria = np.concatenate([sides.question, sides.true, sides.false])
    return BooleanRecipe(criteria, weights, sides.phrases if described else sides.question, population, even)


def centred(vectors: Floats, mean: Floats) -> Vector:
    """Vectors as the regressions take them: relative to the mean of ordinary messages, and longer."""
    return np.asarray(vectors - mean, dtype=np.float64) * VECTOR_SCALE
