"""What of a state is read: its text, cut at a stated length. Pure.

Rule for JSON: every string leaf in document order, one per line; keys, numbers, booleans and nulls are left
out, since the encoder reads language and would take `id`, hashes and figures for content. Where there is no
string at all, the compact JSON is read instead.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from classifier.result import Truncation
from classifier.values import as_text

if TYPE_CHECKING:
    from classifier.values import JSON, State


def text_of(state: State) -> str:
    """The text of a state, whole."""
    if isinstance(state, str):
        return state
    return "\n".join(leaf for leaf in _strings(state) if leaf.strip()) or as_text(state)


def cut(text: str, limit: int) -> tuple[str, Truncation | None]:
    """The first `limit` characters, back to the last space where that loses less than a tenth."""
    if len(text) <= limit:
        return text, None
    head = text[:limit]
    space = head.rfind(" ")
    if not text[limit].isspace() and space > limit * 9 // 10:
        head = head[:space]
    return head, Truncation(original=len(text), sent=len(head), by="model")


def _strings(value: JSON) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for item in value.values():
            yield from _strings(item)
    elif isinstance(value, Sequence):
        for item in value:
            yield from _strings(item)
