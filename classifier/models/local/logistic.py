"""Multinomial logistic regression in numpy: L2-penalised, minimised with L-BFGS, deterministic."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeAlias

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    Vector: TypeAlias = NDArray[np.float64]
    Objective: TypeAlias = Callable[[Vector], tuple[float, Vector]]

_MEMORY: Final = 10
_ROUNDS: Final = 200
_FLAT: Final = 1e-6
_SUFFICIENT: Final = 1e-4
_HALVINGS: Final = 30


@dataclass(frozen=True, slots=True)
class Logistic:
    """A fitted model: one column of weights and one bias per class."""

    weights: Vector
    bias: Vector

    def log_probabilities(self, x: Vector) -> Vector:
        """Natural logarithms of the class probabilities, for one row or many."""
        return log_softmax(x @ self.weights + self.bias)


def log_softmax(scores: Vector) -> Vector:
    """Logarithms of probabilities proportional to exp(scores), along the last axis."""
    shifted = scores - scores.max(axis=-1, keepdims=True)
    return np.asarray(shifted - np.log(np.exp(shifted).sum(axis=-1, keepdims=True)), dtype=np.float64)


def fit_logistic(x: Vector, labels: NDArray[np.intp], classes: int, penalty: float) -> Logistic:
    """Fit to rows `x` with labels 0 to classes - 1; `penalty` weighs squared weights against loss."""
    rows, width = len(x), int(x.shape[1])
    wanted = np.zeros((rows, classes))
    wanted[np.arange(rows), labels] = 1

    def objective(flat: Vector) -> tuple[float, Vector]:
        weights, bias = flat[:-classes].reshape(width, classes), flat[-classes:]
        logs = log_softmax(x @ weights + bias)
        off = np.exp(logs) - wanted
        loss = -float((logs * wanted).sum()) + penalty / 2 * float((weights * weights).sum())
        return loss, np.concatenate([(x.T @ off + penalty * weights).ravel(), off.sum(axis=0)])

    start: Vector = np.zeros((width + 1) * classes, dtype=np.float64)
    flat = _minimise(objective, start)
    return Logistic(flat[:-classes].reshape(width, classes), flat[-classes:])


def _minimise(objective: Objective, at: Vector) -> Vector:
    """L-BFGS with a backtracking line search."""
    value, slope = objective(at)
    history: deque[tuple[Vector, Vector]] = deque(maxlen=_MEMORY)
    for _ in range(_ROUNDS):
        if float(np.abs(slope).max()) < _FLAT:
            break
        direction = -_bend(slope, history)
        step, downhill = (
            1.0 if history else 1.0 / max(1.0, float(np.linalg.norm(slope))),
            float(slope @ direction),
        )
        for _ in range(_HALVINGS):
            reached, new_slope = objective(at + step * direction)
            if reached <= value + _SUFFICIENT * step * downhill:
                break
            step /= 2
        else:
            break  # no step improves: as low as the arithmetic can tell
        moved, turned = step * direction, new_slope - slope
        if float(moved @ turned) > 0:
            history.append((moved, turned))
        at, value, slope = at + moved, reached, new_slope
    return at


def _bend(slope: Vector, history: deque[tuple[Vector, Vector]]) -> Vector:
    """The slope times the inverse curvature that the last steps showed (two-loop recursion)."""
    bent = slope.copy()
    shares: list[float] = []
    for moved, turned in reversed(history):
        share = float(moved @ bent) / float(moved @ turned)
        shares.append(share)
        bent -= share * turned
    if history:
        moved, turned = history[-1]
        bent *= float(moved @ turned) / float(turned @ turned)
    for (moved, turned), share in zip(history, reversed(shares), strict=True):
        bent += moved * (share - float(turned @ bent) / float(moved @ turned))
    return bent
