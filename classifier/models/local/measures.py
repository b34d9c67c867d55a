"""Rank statistics for training and benchmarks: area under the ROC curve and Spearman's correlation. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray


def auc(scores: ArrayLike, positive: ArrayLike) -> float:
    """Chance that a positive row scores above a negative one, ties counting half."""
    wanted = np.asarray(positive, dtype=bool)
    hits = int(wanted.sum())
    misses = wanted.size - hits
    above = float(_ranks(scores)[wanted].sum()) - hits * (hits + 1) / 2
    return above / (hits * misses)


def spearman(left: ArrayLike, right: ArrayLike) -> float:
    """Correlation of ranks, ties sharing theirs."""
    return float(np.corrcoef(_ranks(left), _ranks(right))[0, 1])


def _ranks(values: ArrayLike) -> NDArray[np.float64]:
    _, places, counts = np.unique(np.asarray(values), return_inverse=True, return_counts=True)
    last = np.cumsum(counts)
    return np.asarray((last - (counts - 1) / 2)[places], dtype=np.float64)
