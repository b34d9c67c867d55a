"""Any Python text and JSON in a form that PostgreSQL takes, and back without loss. Pure.

PostgreSQL has no NUL in text and no lone surrogates, and JSONB has no NaN, no infinities and no doubles of
its own. Such a character becomes `␛` and its four hexadecimal digits, and `␛` itself `␛241b`; nothing else
changes, so a backslash-u-0000 that somebody typed stays what it is. Such a number becomes an object with
the key `␛float`, which no text can be.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Mapping, Sequence
from typing import Any, cast

from classifier.values import JSON

MAX_DEPTH = 200
"""Values nested deeper are replaced by a text that says so."""

ESCAPE = "␛"
_SHADOW = f"{ESCAPE}shadow:"
"""Before the questions of shadows; no escaped text begins with it."""
_FLOAT = f"{ESCAPE}float"
_TOO_DEEP = f"[more than {MAX_DEPTH} levels deep, not stored]"
_TOO_LONG = "[an integer of thousands of digits, not stored]"
_MAX_BITS = 10_000
_UNSTORABLE = re.compile(f"[\0{ESCAPE}\ud800-\udfff]")
_ESCAPED = re.compile(f"{ESCAPE}([0-9a-f]{{4}})")
_JSONB_READS_AS_INTEGER = 1e16
_LONGEST_KEY = 512
_KEPT_OF_A_LONG_KEY = 256


def escape(text: str) -> str:
    """`text` without anything that PostgreSQL cannot store; different texts stay different."""
    if text.isascii() and "\0" not in text:
        return text
    return _UNSTORABLE.sub(lambda found: f"{ESCAPE}{ord(found[0]):04x}", text)


def unescape(text: str) -> str:
    """What `escape` was given."""
    if ESCAPE not in text:
        return text
    return _ESCAPED.sub(lambda found: chr(int(found[1], 16)), text)


def escape_optional(text: str | None) -> str | None:
    """`escape`, and None for None."""
    return None if text is None else escape(text)


def unescape_optional(text: str | None) -> str | None:
    """`unescape`, and None for None."""
    return None if text is None else unescape(text)


def encode(value: JSON, depth: int = 0) -> JSON:
    """`value` as JSON that JSONB stores; `decode` gives it back.

    What is no JSON at all, or too much of it, becomes a text that says so.
    """
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, int):
        return value if value.bit_length() < _MAX_BITS else _TOO_LONG
    if isinstance(value, str):
        return escape(value)
    if isinstance(value, float):
        plain = math.isfinite(value) and abs(value) < _JSONB_READS_AS_INTEGER
        return value if plain else {_FLOAT: repr(value)}
    if depth >= MAX_DEPTH:
        return _TOO_DEEP
    if isinstance(value, Mapping):
        return {escape(str(key)): encode(item, depth + 1) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [encode(item, depth + 1) for item in value]
    return f"[a value of type {type(value).__name__}, not stored]"


def decode(value: Any) -> JSON:
    """What `encode` was given, with lists for every sequence."""
    if isinstance(value, str):
        return unescape(value)
    if isinstance(value, dict):  # not Mapping, which is slow to ask for; pages hold thousands of values
        entries = cast("dict[str, Any]", value)
        if _FLOAT in entries:
            return float(entries[_FLOAT])
        return {unescape(key): decode(item) for key, item in entries.items()}
    if isinstance(value, list):
        return [decode(item) for item in cast("Sequence[Any]", value)]
    return cast("JSON", value)


def dumps(value: JSON | Sequence[Mapping[str, Any]]) -> str:
    """Strict JSON text of something already encoded."""
    return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))


def number(value: float | None) -> float | str | None:
    """A number for a column of doubles, in JSON: what is not finite as PostgreSQL spells it."""
    if value is None or math.isfinite(value):
        return value
    return "NaN" if math.isnan(value) else ("Infinity" if value > 0 else "-Infinity")


def question_key(question: str, *, shadow: bool) -> str:
    """What a question is called in the table of answers, where shadows have names of their own."""
    return f"{_SHADOW}{escape(question)}" if shadow else escape(question)


def bounded(text: str) -> str:
    """`text` as a key that fits an index: a long one keeps its start, and a digest for the rest."""
    stored = escape(text)
    raw = stored.encode()
    if len(raw) <= _LONGEST_KEY:
        return stored
    start = raw[:_KEPT_OF_A_LONG_KEY].decode(errors="ignore")
    return f"{start}{ESCAPE}sha256:{hashlib.sha256(raw).hexdigest()}"
