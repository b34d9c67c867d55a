"""The regression finds the minimum, the same one every time."""

from __future__ import annotations

import numpy as np
import pytest

from classifier.models.local.logistic import fit_logistic
from classifier.models.local.measures import auc, spearman


def test_the_gradient_is_zero_where_it_stops() -> None:
    random = np.random.default_rng(7)
    x = random.standard_normal((90, 5))
    labels = (x[:, 0] + 0.5 * random.standard_normal(90) > 0).astype(np.intp) + (x[:, 1] > 1)
    fitted = fit_logistic(x, labels, 3, 1.0)
    off = np.exp(fitted.log_probabilities(x)) - np.eye(3)[labels]
    assert np.abs(x.T @ off + fitted.weights).max() < 1e-3
    assert np.abs(off.sum(axis=0)).max() < 1e-3


def test_the_same_rows_make_the_same_model() -> None:
    x, labels = np.random.default_rng(1).standard_normal((40, 8)), np.arange(40) % 2
    first, second = (fit_logistic(x, labels, 2, 1.0) for _ in range(2))
    np.testing.assert_array_equal(first.weights, second.weights)


def test_a_class_without_rows_is_improbable_and_breaks_nothing() -> None:
    x, labels = np.random.default_rng(1).standard_normal((40, 8)), np.arange(40) % 2
    probabilities = np.exp(fit_logistic(x, labels, 3, 1.0).log_probabilities(x))
    assert probabilities[:, 2].max() < 0.05
    assert probabilities.sum(axis=1) == pytest.approx(1)


def test_rank_statistics_of_known_cases() -> None:
    assert auc([0.1, 0.4, 0.35, 0.8], [False, False, True, True]) == pytest.approx(0.75)
    assert auc([1, 1], [True, False]) == pytest.approx(0.5)
    assert spearman([1, 2, 3, 3], [10, 20, 30, 30]) == pytest.approx(1)
