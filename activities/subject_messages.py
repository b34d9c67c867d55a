"""Versions of subjects, and the inputs of the activities that keep their order. Pure; plain JSON fields."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Literal, TypeAlias

APPLY = "subject.apply"
NOTE = "subject.note"

VersionKind: TypeAlias = Literal["number", "sequence", "time"]

_LONGEST = 512


@dataclass(frozen=True)
class Version:
    """How new an event says its subject is.

    Attributes:
        kind: Which attribute says so; versions of different kinds cannot be compared.
        value: Sorts as the versions do.
    """

    kind: VersionKind
    value: str

    def is_older_than(self, other: Version | None) -> bool:
        """Whether it is certain that `other` is newer."""
        return other is not None and self.kind == other.kind and self.value < other.value


def version_of(event: Mapping[str, Any]) -> Version | None:
    """The version of an event's subject: the extension attribute `sequence`, else `time`; None without.

    A sequence of digits counts as a number, any other sorts as text, as its CloudEvents extension says.
    """
    sequence = event.get("sequence")
    if isinstance(sequence, int) and not isinstance(sequence, bool) and sequence >= 0:
        sequence = str(sequence)
    if isinstance(sequence, str) and 0 < len(sequence) <= _LONGEST:
        if sequence.isascii() and sequence.isdecimal():
            digits = sequence.lstrip("0")
            return Version("number", f"{len(digits):03d}:{digits}")
        return Version("sequence", sequence)
    time = event.get("time")
    return _from_time(time) if isinstance(time, str) else None


def _from_time(time: str) -> Version | None:
    try:
        moment = datetime.fromisoformat(time).astimezone(UTC)
    except (ValueError, OverflowError):  # the first and the last day of the calendar have no other zones
        return None
    return Version("time", moment.isoformat(timespec="microseconds"))


@dataclass(frozen=True)
class Subject:
    """The thing that events are about.

    Attributes:
        tenant: Whose it is.
        playbook: What decides on its events.
        source: Where it is known.
        name: What it is called there.
    """

    tenant: str
    playbook: str
    source: str
    name: str


@dataclass(frozen=True)
class Apply:
    """Input of `subject.apply`: may this state of the subject be decided on.

    Attributes:
        subject: Whose state.
        event_id: The event that says so.
        version: How new it is.
        merged: The ids of all events that it stands for, itself among them.
        run: The workflow that would decide.
        at: ISO 8601; the same for every attempt.
    """

    subject: Subject
    event_id: str
    version: Version | None
    merged: list[str]
    run: str
    at: str


@dataclass(frozen=True)
class Note:
    """Input of `subject.note`: something for the history.

    Attributes:
        subject: Which subject it is about.
        kind: "stale": older than what was seen before. "loop": too many runs in a minute.
        events: The ids of the events it is about.
        at: ISO 8601; the same for every attempt.
        facts: What else there is to say.
    """

    subject: Subject
    kind: Literal["stale", "loop"]
    events: list[str]
    at: str
    facts: dict[str, Any] = field(default_factory=dict[str, Any])
