"""What of a state is read: its text, cut at a stated length. Pure.

Rule for JSON: every string leaf in document order, one per line; keys, numbers, booleans and nulls are left
out, since the encoder reads language and would take `id`, hashes and figures for content. Where there is no
string at all, the compact JSON is read instead.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from classifier.result import Truncation
from classifier.values import language_of

if TYPE_CHECKING:
    from classifier.values import State


def text_of(state: State) -> str:
    """The text of a state, whole."""
    return language_of(state)


def cut(text: str, limit: int) -> tuple[str, Truncation | None]:
    """The first `limit` characters, back to the last space where that loses less than a tenth."""
    if len(text) <= limit:
        return text, None
    head = text[:limit]
    space = head.rfind(" ")
    if not text[limit].isspace() and space > limit * 9 // 10:
        head = head[:space]
    return head, Truncation(original=len(text), sent=len(head), by="model")
