"""JSON as a type, checked and frozen copies of it, and its canonical form. Pure."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import TypeAlias, cast

JSON: TypeAlias = "bool | int | float | str | Sequence[JSON] | Mapping[str, JSON] | None"
"""Any JSON value; numbers are finite."""

State: TypeAlias = "str | Sequence[JSON] | Mapping[str, JSON]"
"""What questions are about: text, or a JSON array or object."""

Text: TypeAlias = "str | Sequence[JSON] | Mapping[str, JSON]"
"""Instructions or a description: text, or JSON where a decision model reads structure."""

_MAX_DEPTH = 100


def json_copy(value: object, where: str) -> JSON:
    """A deep copy of `value` as plain JSON.

    Raises:
        ValueError: `value` is not JSON (a number that is not finite, a key that is not text, another type,
            nesting deeper than 100 levels, which a cycle also is); the message starts with `where`.
    """
    return _copy(value, where, 0)


def _copy(value: object, where: str, depth: int) -> JSON:
    if depth > _MAX_DEPTH:
        raise ValueError(f"{where} is nested more than {_MAX_DEPTH} levels deep, or contains itself")
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        if not math.isfinite(value):
            raise ValueError(f"{where} is not a finite number")
        return value
    if isinstance(value, Mapping):
        return _copy_object(cast("Mapping[object, object]", value), where, depth)
    if isinstance(value, list | tuple):
        items = cast("Sequence[object]", value)
        return [_copy(item, f"{where}[{index}]", depth + 1) for index, item in enumerate(items)]
    raise ValueError(f"{where} is of type {type(value).__name__}, which JSON does not have")


def _copy_object(value: Mapping[object, object], where: str, depth: int) -> JSON:
    copied: dict[str, JSON] = {}
    for key, item in value.items():
        if not isinstance(key, str):
            raise ValueError(f"{where} has a key of type {type(key).__name__}; keys are text")  # noqa: TRY004 - one error type for all faults
        copied[key] = _copy(item, f"{where}.{key}", depth + 1)
    return copied


def canonical_json(value: JSON) -> bytes:
    """The one byte form of `value`: sorted keys, no spaces, ASCII escapes, finite numbers only."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False).encode("ascii")


def digest(value: JSON) -> str:
    """SHA-256 of the canonical form, in hex."""
    return hashlib.sha256(canonical_json(value)).hexdigest()


def as_text(value: JSON) -> str:
    """`value` as a person would read it: text as it is, anything else as compact JSON."""
    if isinstance(value, str):
        return value
    return json.dumps(value, separators=(", ", ": "), ensure_ascii=False, allow_nan=False)


def is_blank(state: State | None) -> bool:
    """Whether there is nothing to ask about: nothing at all, an empty container, or only white space."""
    return not state or (isinstance(state, str) and not state.strip())


def language_of(value: JSON) -> str:
    """What is language in `value`: text as it is, else every text in it, one a line, without the keys.

    Where there is no text in it, its compact JSON.
    """
    if isinstance(value, str):
        return value
    return "\n".join(leaf for leaf in _leaves(value) if leaf.strip()) or as_text(value)


def _leaves(value: JSON) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for item in value.values():
            yield from _leaves(item)
    elif isinstance(value, Sequence):
        for item in value:
            yield from _leaves(item)
