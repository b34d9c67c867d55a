"""What ships beside the code, made by `train.py`: per encoder the population of texts and ready-made heads.

The population (mean and main axes of ordinary messages) turns a likeness into "how unusual is that for any
text", which is what makes likenesses to different criteria comparable. A head is a logistic regression on the
vector, so that its probability means something.
"""

from __future__ import annotations

import base64
import json
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import TYPE_CHECKING, Any, cast

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from .encoder import Family, Floats


@dataclass(frozen=True, slots=True)
class Population:
    """Where ordinary messages lie: their mean, main axes (scaled by their spread) and spread off the axes."""

    mean: Floats
    axes: Floats
    rest: float

    def standardise(self, likeness: Floats, criteria: Floats) -> Floats:
        """Likenesses to `criteria` (unit rows) in standard deviations from what an ordinary message has."""
        spread = np.sqrt(((criteria @ self.axes.T) ** 2).sum(axis=1) + self.rest)
        return np.asarray((likeness - criteria @ self.mean) / spread, dtype=np.float32)


@dataclass(frozen=True, slots=True)
class Head:
    """A trained yes/no question; `figures` were measured on rows it was not trained on."""

    weights: Floats
    bias: float
    figures: Mapping[str, float]
    made_from: str

    def probability(self, vector: Floats) -> float:
        """P(true) of one unit vector."""
        return float(1 / (1 + np.exp(-(float(vector @ self.weights) + self.bias))))


@dataclass(frozen=True, slots=True)
class Trained:
    """Everything that belongs to one encoder."""

    population: Population
    heads: Mapping[str, Head]


@cache
def trained_for(family: Family) -> Trained:
    """What ships for an encoder; read once."""
    text = (
        resources.files("classifier.models.local")
        .joinpath("data", f"{family}.json")
        .read_text(encoding="utf-8")
    )
    return loads(text)


def dumps(trained: Trained) -> str:
    """As JSON, arrays as base64 of little-endian float32; the same content makes the same text."""
    body = {
        "population": {
            "mean": _pack(trained.population.mean),
            "axes": _pack(trained.population.axes),
            "axis_count": len(trained.population.axes),
            "rest": round(trained.population.rest, 9),
        },
        "heads": {
            name: {
                "made_from": head.made_from,
                "figures": dict(head.figures),
                "bias": round(head.bias, 6),
                "weights": _pack(head.weights),
            }
            for name, head in trained.heads.items()
        },
    }
    return json.dumps(body, indent=1) + "\n"


def loads(text: str) -> Trained:
    """Read what `dumps` wrote."""
    body = cast("dict[str, Any]", json.loads(text))
    stored = body["population"]
    axes = _unpack(stored["axes"]).reshape(stored["axis_count"], -1)
    heads = {
        name: Head(_unpack(head["weights"]), head["bias"], head["figures"], head["made_from"])
        for name, head in body["heads"].items()
    }
    return Trained(Population(_unpack(stored["mean"]), axes, stored["rest"]), heads)


def _pack(values: NDArray[np.float32]) -> str:
    return base64.b64encode(values.astype("<f4").tobytes()).decode("ascii")


def _unpack(text: str) -> Floats:
    return np.frombuffer(base64.b64decode(text), dtype="<f4").astype(np.float32)
