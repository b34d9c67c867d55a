"""How much of a decision's content is kept: all of it, redacted, or none. Pure.

Applied once, when a decision becomes rows; what the workflow acts on is never changed. The keyed hash and the
length are of the text that was judged, so that it can still be matched.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias, cast

from classifier.decision import Decision
from classifier.values import JSON, State

REDACTED_KEY = "classifier.redacted"
"""Under which a decision's metadata say what was redacted: counts by kind, or the redactor's failure."""

_UNNAMED = "redacted"


@dataclass(frozen=True, slots=True)
class Redaction:
    """What a redactor made of a text.

    Attributes:
        text: What is stored.
        counts: How many of which kind were replaced.
    """

    text: str
    counts: Mapping[str, int] = field(default_factory=dict[str, int])


Redactor: TypeAlias = Callable[[str], "str | Redaction"]
"""Takes a text and gives what may be stored; one that gives only a text has its changes counted unnamed."""


@dataclass(frozen=True, slots=True)
class Kept:
    """The content of a decision as it is stored.

    Attributes:
        state: None where it is not kept.
        original: The text before normalising, where there is one and it is kept.
        request_context: Empty where it is not kept.
        note: What metadata say about it; empty where nothing was changed.
    """

    state: State | None
    original: str | None
    request_context: Mapping[str, JSON]
    note: Mapping[str, JSON] = field(default_factory=dict[str, JSON])


@dataclass(frozen=True, slots=True)
class ContentPolicy:
    """What is kept of state, original text and request context.

    The person's id, facts, and reasons that policy writes are not content here.

    Attributes:
        keep: False stores none of them.
        redact: Goes over every text in them first. Where it raises, the content is not kept, and the record
            says so.
    """

    keep: bool = True
    redact: Redactor | None = None

    def kept(self, decision: Decision) -> Kept:
        """What of `decision` is stored."""
        if not self.keep:
            return Kept(None, None, {})
        if self.redact is None:
            return Kept(decision.state, decision.original, decision.request_context)
        redacting = _Redacting(self.redact)
        try:
            return Kept(
                cast("State", redacting.value(decision.state)),
                None if decision.original is None else redacting.text(decision.original),
                cast("Mapping[str, JSON]", redacting.value(decision.request_context)),
                redacting.note,
            )
        except Exception as error:  # noqa: BLE001 - the application's; what it could not read is not stored
            return Kept(None, None, {}, {REDACTED_KEY: {"error": type(error).__name__}})

    def kept_of_event(self, content: Mapping[str, JSON]) -> Mapping[str, JSON]:
        """What people wrote, redacted; empty where that fails. It is kept where the content is not."""
        if self.redact is None:
            return content
        try:
            return cast("Mapping[str, JSON]", _Redacting(self.redact).value(content))
        except Exception:  # noqa: BLE001 - as above
            return {}


KEEP_ALL = ContentPolicy()


class _Redacting:
    def __init__(self, redact: Redactor) -> None:
        self._redact = redact
        self._counts = Counter[str]()

    @property
    def note(self) -> Mapping[str, JSON]:
        return {REDACTED_KEY: dict(sorted(self._counts.items()))} if self._counts else {}

    def text(self, text: str) -> str:
        found = self._redact(text)
        if isinstance(found, Redaction):
            self._counts.update(found.counts)
            return _a_text(found.text)
        if _a_text(found) != text:
            self._counts[_UNNAMED] += 1
        return found

    def value(self, value: JSON) -> JSON:
        """Every text in it, keys too, and numbers that read like something to redact."""
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, Mapping):
            return self._object(value)
        if isinstance(value, Sequence):
            return [self.value(item) for item in value]
        if isinstance(value, int | float) and not isinstance(value, bool):
            written = str(value)
            redacted = self.text(written)
            return value if redacted == written else redacted
        return value

    def _object(self, value: Mapping[str, JSON]) -> dict[str, JSON]:
        made: dict[str, JSON] = {}
        for key, item in value.items():
            name = redacted = self.text(key)
            number = 1
            while name in made:  # two keys that redaction made equal
                number += 1
                name = f"{redacted} {number}"
            made[name] = self.value(item)
        return made


def _a_text(found: object) -> str:
    if not isinstance(found, str):
        raise TypeError("a redactor gives a text")
    return found
