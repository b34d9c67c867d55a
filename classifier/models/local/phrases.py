"""Criteria as the texts that are compared with the state: a description as a whole, and its phrases. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

    from classifier.values import JSON, Text

_BREAKS: Final = re.compile(r"[,:;.!?\n]+(?:\s|$)|\s+or\s+")
_WORDLIKE: Final = re.compile(r"[_\-]+")


def plain(criterion: Text | None) -> str:
    """A criterion as text: JSON as its keys and values in words, None as nothing."""
    if criterion is None:
        return ""
    return " ".join((criterion if isinstance(criterion, str) else ", ".join(_parts(criterion))).split())


def split_phrases(description: str) -> tuple[str, ...]:
    """The parts of a description between commas, colons, sentence ends and "or", without repeats."""
    parts = [part.strip() for part in _BREAKS.split(description)]
    return tuple(dict.fromkeys(part for part in parts if part)) or ((description,) if description else ())


def described(name: str, description: str) -> str:
    """`name: description`, the name in words; the name alone where there is no description."""
    words = _WORDLIKE.sub(" ", name).strip() or name
    return f"{words}: {description}" if description else words


def _parts(value: JSON) -> Iterator[str]:
    if isinstance(value, Mapping):
        for key, item in value.items():
            yield f"{_WORDLIKE.sub(' ', key)}: {', '.join(_parts(item))}"
    elif isinstance(value, Sequence) and not isinstance(value, str):
        for item in value:
            yield from _parts(item)
    elif value is not None:
        yield str(value)
