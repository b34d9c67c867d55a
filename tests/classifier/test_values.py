"""JSON: copied, checked, and one byte form."""

from __future__ import annotations

import json
import math
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from classifier.values import JSON, as_text, canonical_json, digest, json_copy

SCALAR = (
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text()
)
VALUE: st.SearchStrategy[Any] = st.recursive(
    SCALAR, lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner), max_leaves=20
)


@given(VALUE)
def test_a_copy_is_equal_and_shares_nothing(value: JSON) -> None:
    copied = json_copy(value, "value")
    assert copied == value
    assert copied is not value or not isinstance(value, list | dict)


@given(VALUE)
def test_the_canonical_form_reads_back_and_does_not_depend_on_the_order_of_keys(value: JSON) -> None:
    written = canonical_json(value)
    assert json.loads(written) == value
    assert canonical_json(_reversed(value)) == written
    assert digest(_reversed(value)) == digest(value)


def _reversed(value: Any) -> Any:
    if isinstance(value, dict):
        items = cast("dict[str, Any]", value).items()
        return {key: _reversed(item) for key, item in reversed(items)}
    if isinstance(value, list):
        return [_reversed(item) for item in cast("Any", value)]
    return value


@pytest.mark.parametrize(
    ("value", "fault"),
    [
        (math.nan, "x is not a finite number"),
        ({"a": [0, -math.inf]}, r"x\.a\[1\] is not a finite number"),
        ({1: 2}, "x has a key of type int"),
        ({None: 2}, "x has a key of type NoneType"),
        ([b"bytes"], r"x\[0\] is of type bytes"),
        ({"a": {1, 2}}, r"x\.a is of type set"),
    ],
)
def test_what_is_not_json_is_named_by_its_place(value: Any, fault: str) -> None:
    with pytest.raises(ValueError, match=fault):
        json_copy(value, "x")


def test_nesting_ends_at_a_hundred_levels() -> None:
    value: Any = 0
    for _ in range(100):
        value = [value]
    assert json_copy(value, "x") == value
    with pytest.raises(ValueError, match="100 levels"):
        json_copy([value], "x")


def test_a_tuple_becomes_a_list() -> None:
    assert json_copy((1, (2,)), "x") == [1, [2]]


def test_text_is_read_as_it_is_and_everything_else_as_json() -> None:
    assert as_text("ä") == "ä"
    assert as_text({"ä": [1, None]}) == '{"ä": [1, null]}'
