"""What ships is what training makes, and as good as it is said to be."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from classifier.models.local.train import fit, main, measured
from classifier.models.local.trained import dumps, loads, trained_for
from tests.bench.local_model import DATA

if TYPE_CHECKING:
    from pathlib import Path

    from classifier.models.local.encoder import E5Encoder, Encoder, SparrowEncoder

FLOORS = {
    "e5": {"deepset_auc": 0.94, "deepset_recall": 0.75, "hard_auc": 0.85},
    "sparrow": {"deepset_auc": 0.78, "deepset_recall": 0.55, "hard_auc": 0.70},
}
CEILINGS = {
    "e5": {"deepset_false_positive_rate": 0.05, "banking_false_positive_rate": 0.01},
    "sparrow": {"deepset_false_positive_rate": 0.15, "banking_false_positive_rate": 0.01},
}


def _assert_shipped_is_made_from_the_data(encoder: Encoder) -> None:
    made, shipped = fit(encoder, DATA), trained_for(encoder.family)
    np.testing.assert_allclose(made.population.mean, shipped.population.mean, atol=1e-4)
    np.testing.assert_allclose(made.population.axes, shipped.population.axes, atol=1e-3)
    head, known = made.heads["injection"], shipped.heads["injection"]
    assert np.abs(head.weights - known.weights).max() < 0.02 * np.abs(known.weights).max()
    assert head.bias == pytest.approx(known.bias, abs=0.02)


@pytest.mark.long
def test_the_shipped_e5_head_is_made_from_the_data(e5_encoder: E5Encoder) -> None:
    _assert_shipped_is_made_from_the_data(e5_encoder)


def test_the_shipped_sparrow_head_is_made_from_the_data(sparrow_encoder: SparrowEncoder) -> None:
    _assert_shipped_is_made_from_the_data(sparrow_encoder)


def test_the_stated_figures_are_the_measured_ones(sparrow_encoder: SparrowEncoder) -> None:
    head = trained_for("sparrow").heads["injection"]
    again = measured(head, sparrow_encoder, DATA)
    assert dict(again.figures) == pytest.approx(dict(head.figures), abs=0.01)


@pytest.mark.parametrize("family", ["e5", "sparrow"])
def test_the_stated_figures_hold_the_floors(family: str) -> None:
    figures = trained_for("e5" if family == "e5" else "sparrow").heads["injection"].figures
    assert {name: figures[name] for name, floor in FLOORS[family].items() if figures[name] < floor} == {}
    assert {name: figures[name] for name, top in CEILINGS[family].items() if figures[name] > top} == {}


def test_what_ships_names_its_data_and_survives_writing() -> None:
    shipped = trained_for("e5")
    assert "deepset" in shipped.heads["injection"].made_from
    assert dumps(loads(dumps(shipped))) == dumps(shipped)


def test_training_without_arguments_says_what_it_needs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([str(tmp_path)]) == 2
    assert "DATA OUT" in capsys.readouterr().err
