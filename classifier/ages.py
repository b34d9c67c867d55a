"""Lengths of time as people write them: 90s, 15m, 12h, 30d, 52w. Pure."""

from __future__ import annotations

import re
from datetime import timedelta

from classifier.errors import ConfigurationError

_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days", "w": "weeks"}
_EXAMPLES = {"s": "90s", "m": "15m", "h": "12h", "d": "30d", "w": "52w"}
_AGE = re.compile(r"([0-9]{1,6})([smhdw])")
_LONGEST = timedelta(days=365_000)
"""A thousand years, which any time of today can be moved by."""


def age(text: str, units: str = "smhdw") -> timedelta:
    """The length of time that a text means.

    Args:
        text: A number of at most six digits, and its unit; a thousand years at most.
        units: Those that make sense here.

    Raises:
        ConfigurationError: It is none.
    """
    found = _AGE.fullmatch(text.strip())
    length = _LONGEST if found is None else timedelta(**{_UNITS[found[2]]: int(found[1])})
    if found is None or found[2] not in units or length > _LONGEST:
        examples = [_EXAMPLES[unit] for unit in units]
        raise ConfigurationError(
            f"{text!r} is no length of time; write {', '.join(examples[:-1])} or {examples[-1]}"
        )
    return length
