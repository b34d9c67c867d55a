"""Whether something grows: a straight line through samples, and what of that is too much. Pure."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass

WARM_UP = 1 / 3
"""The part of a soak that does not count: pools fill, caches too."""
MINUTE = 60.0


@dataclass(frozen=True, slots=True)
class Sample:
    """What was measured, and when.

    Attributes:
        at: Seconds from the beginning.
    """

    at: float
    value: float


@dataclass(frozen=True, slots=True)
class Bound:
    """How much something may grow.

    Attributes:
        a_minute: Along the line through the samples.
        highest: No sample is above it.
    """

    a_minute: float
    highest: float


@dataclass(frozen=True, slots=True)
class Growth:
    """How something fared.

    Attributes:
        name: What was measured, with its unit.
        first: At the end of the warm-up.
        last: At the end.
        highest: After the warm-up.
        a_minute: Growth of the line through the samples.
        bound: What is too much.
    """

    name: str
    first: float
    last: float
    highest: float
    a_minute: float
    bound: Bound

    @property
    def breaches(self) -> list[str]:
        """What is too much, one sentence each."""
        found: list[str] = []
        if self.a_minute > self.bound.a_minute:
            found.append(
                f"{self.name} grows by {self.a_minute:.2f} a minute; {self.bound.a_minute:g} is the bound"
            )
        if self.highest > self.bound.highest:
            found.append(f"{self.name} reached {self.highest:.1f}; {self.bound.highest:g} is the bound")
        return found


def slope(samples: Sequence[Sample]) -> float:
    """Growth a second of the straight line that fits best; 0 where there is no line."""
    if len({sample.at for sample in samples}) < 2:
        return 0.0
    line = statistics.linear_regression([each.at for each in samples], [each.value for each in samples])
    return line.slope


def growth_of(name: str, samples: Sequence[Sample], bound: Bound) -> Growth:
    """How something fared after the warm-up.

    Raises:
        ValueError: There are no samples.
    """
    if not samples:
        raise ValueError(f"nothing was measured of {name}")
    begin = samples[0].at + (samples[-1].at - samples[0].at) * WARM_UP
    counted = [sample for sample in samples if sample.at >= begin]
    highest = max(sample.value for sample in counted)
    return Growth(name, counted[0].value, counted[-1].value, highest, slope(counted) * MINUTE, bound)
