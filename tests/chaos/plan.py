"""What goes wrong and when, and how the models misbehave: all of it follows from one number. Pure.

plan_of(7, seconds=300)          the same faults each time
whim_of(7, "a text", asked=0)    what a decision model makes of its first request about a text
"""

from __future__ import annotations

import random
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias, get_args

Kind: TypeAlias = Literal["worker", "service", "database", "temporal"]
How: TypeAlias = Literal["killed", "stopped at once", "restarted"]
Whim: TypeAlias = Literal["answer", "delay", "busy", "failure", "garbage", "half", "refusal", "nothing"]

KINDS: tuple[Kind, ...] = get_args(Kind)
HOW: dict[Kind, tuple[How, ...]] = {
    "worker": ("killed",),
    "service": ("killed",),
    "database": ("stopped at once", "killed"),
    "temporal": ("restarted", "killed"),
}
EVERY: dict[Kind, float] = {"worker": 10.0, "service": 40.0, "database": 35.0, "temporal": 45.0}
"""Seconds between two faults of a kind, about."""
AWAY: dict[Kind, tuple[float, float]] = {
    "worker": (0.0, 2.0),
    "service": (0.0, 1.0),
    "database": (0.0, 4.0),
    "temporal": (0.0, 3.0),
}
"""How many seconds it stays away, from and to."""
APART = 6.0
"""Seconds from the return of something to the next fault of the same kind, where there is room."""
FIRE = (0.05, 0.65)
"""The part of the run in which things go wrong."""
WHIMS: dict[Whim, int] = {
    "answer": 78,
    "delay": 6,
    "busy": 3,
    "failure": 3,
    "garbage": 2,
    "half": 2,
    "refusal": 4,
    "nothing": 2,
}
"""How often of a hundred times."""


@dataclass(frozen=True, slots=True)
class Fault:
    """Something that goes wrong.

    Attributes:
        at: Seconds from the beginning.
        kind: What is hit.
        how: In which way.
        away: Seconds until it is started again.
        which: The number of the worker that is hit; 0 where there is one of a kind.
    """

    at: float
    kind: Kind
    how: How
    away: float
    which: int = 0

    def __str__(self) -> str:
        which = f" {self.which}" if self.kind == "worker" else ""
        return f"{self.at:7.1f} s  {self.kind}{which} {self.how}, back after {self.away:.1f} s"


def plan_of(
    seed: int, *, seconds: float, workers: int = 2, only: Collection[Kind] = KINDS
) -> tuple[Fault, ...]:
    """Every fault of a run, in order; each kind at least once, the first and last third of it in peace.

    Args:
        seed: The same one gives the same plan.
        seconds: How long the run is.
        workers: How many there are.
        only: The kinds that happen.
    """
    begin, end = (part * seconds for part in FIRE)
    faults: list[Fault] = []
    for kind in KINDS:  # each has dice of its own, so that leaving one out does not change the others
        if kind in only:
            faults += _faults(random.Random(f"{seed}/{kind}"), kind, begin, end, workers)
    return tuple(sorted(faults, key=lambda fault: (fault.at, fault.kind)))


def whim_of(seed: int, text: str, asked: int) -> Whim:
    """How a model treats a request.

    Args:
        seed: The run's.
        text: What it is asked about.
        asked: How often it was asked about this before.
    """
    dice = random.Random(f"{seed}/{text}/{asked}")
    return dice.choices(tuple(WHIMS), tuple(WHIMS.values()))[0]


def share_of(seed: int, what: str) -> float:
    """A number from 0 to 1 that belongs to this, for everything else that is left to chance."""
    return random.Random(f"{seed}/{what}").random()


def pick(seed: int, what: str, among: Sequence[str]) -> str:
    """One of these, always the same for this."""
    return random.Random(f"{seed}/{what}").choice(among)


def _faults(dice: random.Random, kind: Kind, begin: float, end: float, workers: int) -> list[Fault]:
    count = max(1, round((end - begin) / EVERY[kind]))
    room = (end - begin) / count
    longest = min(AWAY[kind][1], room / 2)
    faults: list[Fault] = []
    for number in range(count):
        away = dice.uniform(min(AWAY[kind][0], longest), longest)
        latest = max(0.0, room - away - APART)
        at = begin + number * room + dice.uniform(0.0, latest)
        faults.append(
            Fault(round(at, 1), kind, dice.choice(HOW[kind]), round(away, 1), dice.randrange(workers))
        )
    return faults if kind == "worker" else [_alone(fault) for fault in faults]


def _alone(fault: Fault) -> Fault:
    return Fault(fault.at, fault.kind, fault.how, fault.away)
