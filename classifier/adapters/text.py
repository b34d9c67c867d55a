"""What is judged of values that are no text. Loads `pydantic_core`, which both frameworks bring."""

from __future__ import annotations

from pydantic_core import to_json


def text_of(value: object) -> str:
    """A tool's result or a typed output: text as it is, anything else as JSON."""
    return value if isinstance(value, str) else to_json(value, fallback=str).decode()
