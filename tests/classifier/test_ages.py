"""Lengths of time as people write them."""

from __future__ import annotations

from datetime import timedelta

import pytest

from classifier.ages import age
from classifier.errors import ConfigurationError


def test_a_number_and_its_unit_are_a_length_of_time() -> None:
    assert [age(text) for text in ("90s", "15m", " 12h ", "30d", "52w", "0s")] == [
        timedelta(seconds=90),
        timedelta(minutes=15),
        timedelta(hours=12),
        timedelta(days=30),
        timedelta(weeks=52),
        timedelta(0),
    ]


@pytest.mark.parametrize("text", ["", "7", "d", "-1d", "1.5h", "1 d", "1234567d", "٣d", "1y", "999999w"])
def test_what_is_none_is_repeated_with_examples(text: str) -> None:
    with pytest.raises(ConfigurationError) as refused:
        age(text)
    assert str(refused.value) == f"{text!r} is no length of time; write 90s, 15m, 12h, 30d or 52w"


def test_units_that_make_no_sense_somewhere_are_not_offered_there() -> None:
    with pytest.raises(ConfigurationError, match="'15m' is no length of time; write 12h or 30d"):
        age("15m", "hd")
