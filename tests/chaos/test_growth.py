"""A straight line through samples says whether something grows."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.chaos.growth import Bound, Sample, growth_of, slope

numbers = st.floats(-1e6, 1e6)


@given(numbers, st.floats(-1e3, 1e3), st.integers(2, 50))
def test_a_straight_line_has_its_own_slope(start: float, steepness: float, count: int) -> None:
    line = [Sample(at, start + steepness * at) for at in range(count)]
    assert slope(line) == pytest.approx(steepness, abs=1e-3)


@given(st.lists(numbers, max_size=1))
def test_a_single_sample_has_no_slope(values: list[float]) -> None:
    assert slope([Sample(5.0, value) for value in values]) == 0


def test_what_fills_up_while_warming_up_does_not_count() -> None:
    samples = [Sample(at, min(at, 20.0)) for at in range(61)]
    growth = growth_of("memory", samples, Bound(0.1, 20.0))
    assert (growth.first, growth.last, growth.highest) == (20.0, 20.0, 20.0)
    assert growth.a_minute == pytest.approx(0.0)
    assert growth.breaches == []


def test_what_goes_on_growing_is_a_breach() -> None:
    growth = growth_of("memory", [Sample(at, 100 + at / 10) for at in range(121)], Bound(2.0, 1_000.0))
    assert growth.a_minute == pytest.approx(6.0)
    assert growth.breaches == ["memory grows by 6.00 a minute; 2 is the bound"]


def test_a_peak_after_warming_up_is_a_breach() -> None:
    samples = [Sample(at, 90.0 if at == 50 else 10.0) for at in range(61)]
    assert growth_of("connections", samples, Bound(1_000.0, 40.0)).breaches == [
        "connections reached 90.0; 40 is the bound"
    ]


def test_nothing_measured_is_an_error_and_not_a_success() -> None:
    with pytest.raises(ValueError, match="memory"):
        growth_of("memory", [], Bound(1, 1))
