"""Reliability figures: what they are on known answers, and what holds for any."""

from __future__ import annotations

import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from classifier.answers import Answer, BooleanAnswer, ChoiceAnswer, Refusal, ScoreAnswer
from classifier.calibration import BINS, Judged, judged, reliability
from classifier.labelling import LabelValue

any_judged = st.builds(Judged, st.floats(0, 1), st.booleans())
some = st.lists(any_judged, min_size=1, max_size=60)


def test_known_answers_have_known_figures() -> None:
    found = reliability([Judged(0.95, True), Judged(0.91, True), Judged(0.93, False), Judged(0.25, False)])
    assert found is not None
    assert found.count == 4
    assert found.brier == pytest.approx((0.05**2 + 0.09**2 + 0.93**2 + 0.25**2) / 4)
    assert found.ece == pytest.approx(3 / 4 * (0.93 - 2 / 3) + 1 / 4 * 0.25)
    low, high = found.bins
    assert (low.low, low.high, low.count, low.predicted, low.observed) == (0.2, 0.3, 1, 0.25, 0.0)
    assert (high.low, high.high, high.count) == (0.9, 1.0, 3)
    assert high.predicted == pytest.approx(0.93)
    assert high.observed == pytest.approx(2 / 3)


def test_nothing_labelled_has_no_figures() -> None:
    assert reliability([]) is None


@given(some)
def test_every_answer_is_in_the_bin_of_its_probability(answers: list[Judged]) -> None:
    found = reliability(answers)
    assert found is not None
    assert sum(each.count for each in found.bins) == found.count == len(answers)
    for each in found.bins:
        inside = [
            one
            for one in answers
            if each.low <= one.predicted < each.high or (each.high == 1 and one.predicted == 1)
        ]
        assert each.count == pytest.approx(len(inside), abs=sum(_on_a_border(one) for one in answers))
        assert each.low - 1e-9 <= each.predicted <= each.high + 1e-9
        assert 0 <= each.observed <= 1


def _on_a_border(one: Judged) -> bool:
    scaled = one.predicted * BINS
    return abs(scaled - round(scaled)) < 1e-9


@given(some)
def test_the_error_over_bins_is_at_most_the_mean_error(answers: list[Judged]) -> None:
    found = reliability(answers)
    assert found is not None
    assert 0 <= found.brier <= 1
    assert 0 <= found.ece <= math.sqrt(found.brier) + 1e-9


@given(some, st.randoms(use_true_random=False))
def test_the_order_does_not_matter(answers: list[Judged], chance: random.Random) -> None:
    assert reliability(answers) == reliability(chance.sample(answers, len(answers)))


@given(some, st.integers(2, 4))
def test_the_same_answers_again_change_no_share(answers: list[Judged], times: int) -> None:
    once, often = reliability(answers), reliability(answers * times)
    assert once is not None
    assert often is not None
    assert often.count == times * once.count
    assert often.brier == pytest.approx(once.brier)
    assert often.ece == pytest.approx(once.ece)


@given(st.integers(1, 50), st.integers(0, 50))
def test_who_says_the_share_that_happens_is_calibrated(happened: int, not_happened: int) -> None:
    share = happened / (happened + not_happened)
    answers = [Judged(share, True)] * happened + [Judged(share, False)] * not_happened
    found = reliability(answers)
    assert found is not None
    assert found.ece == pytest.approx(0, abs=1e-9)
    assert found.brier == pytest.approx(share * (1 - share))


@pytest.mark.parametrize(
    ("answer", "label", "expected"),
    [
        (BooleanAnswer(0.8), True, Judged(0.8, True)),
        (BooleanAnswer(0.8, calibrated=True), False, Judged(0.8, False)),
        (BooleanAnswer(0.8, calibrated=False), True, None),
        (ChoiceAnswer("a", {"a": 0.7, "b": 0.3}), "a", Judged(0.7, True)),
        (ChoiceAnswer("a", {"a": 0.7, "b": 0.3}), "b", Judged(0.7, False)),
        (ChoiceAnswer("a"), "a", None),
        (ScoreAnswer(1.2, (0.1, 0.6, 0.3)), 1, Judged(0.6, True)),
        (ScoreAnswer(1.2, (0.1, 0.6, 0.3)), 1.6, Judged(0.6, False)),
        (ScoreAnswer(1.2), 1, None),
        (Refusal(), True, None),
        (BooleanAnswer(0.8), "a", None),
        (ChoiceAnswer("a", {"a": 1.0}), True, None),
        (ScoreAnswer(0.0, (1.0, 0.0)), False, None),
        (BooleanAnswer(math.nan), True, None),
    ],
)
def test_an_answer_is_judged_by_its_label(answer: Answer, label: LabelValue, expected: Judged | None) -> None:
    assert judged(answer, label) == expected
