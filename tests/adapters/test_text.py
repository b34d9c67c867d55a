"""What processors get to read of values that are no text."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from pydantic import BaseModel

from classifier.adapters.text import text_of


class Model(BaseModel):
    text: str


@dataclass
class Offer:
    text: str


class Opaque:
    def __str__(self) -> str:
        return "opaque"


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("as it is", "as it is"),
        (Model(text="grüße"), '{"text":"grüße"}'),
        (Offer("b"), '{"text":"b"}'),
        ({"card": [1, None]}, '{"card":[1,null]}'),
        (Opaque(), '"opaque"'),
        (None, "null"),
    ],
)
def test_text_is_judged_as_it_is_and_anything_else_as_json(value: object, text: str) -> None:
    assert text_of(value) == text
