"""What came back beside the answers."""

from __future__ import annotations

import pytest

from classifier.result import Usage


@pytest.mark.parametrize(
    ("usage", "total"),
    [
        (Usage(), None),
        (Usage(cost=0.1), None),
        (Usage(3), 3),
        (Usage(None, 4), 4),
        (Usage(3, 4), 7),
        (Usage(0, 0), 0),
    ],
)
def test_the_total_counts_a_missing_part_as_nothing(usage: Usage, total: int | None) -> None:
    assert usage.total_tokens == total
