"""Inputs of the subject workflow, and its ids. Pure and sandbox-safe; plain JSON fields."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from activities.subject_messages import Subject, Version
from classifier.values import digest

SUBJECT = "classifier.subject"
OFFER = "offer"
DEAD = "dead"
SUBJECT_PREFIX = "subject-"


@dataclass(frozen=True)
class Offer:
    """The signal that brings an event, with the rules that hold when it comes.

    Attributes:
        event: A CloudEvent as JSON.
        version: How new it is.
        quiet: Seconds without another event before a run starts.
        longest: Seconds that no event waits longer than.
        runs_a_minute: What is more than this is taken for a loop, and gathered until the minute is over.
    """

    event: dict[str, Any]
    version: Version | None
    quiet: float
    longest: float
    runs_a_minute: int


@dataclass(frozen=True)
class SubjectRequest:
    """Input of the subject workflow, and what it hands to the run that continues it.

    Attributes:
        subject: What the events are about.
        newest: The newest version that was decided on.
        latest: The event that will be, once things are quiet.
        merged: The ids of the events that it stands for.
        began: When the first of them came, ISO 8601.
        stale: Ids that came too late and are not noted yet.
        seen: Digests of the ids of events that were dealt with, newest last.
        starts: When runs were started, ISO 8601, newest last.
    """

    subject: Subject
    newest: Version | None = None
    latest: Offer | None = None
    merged: list[str] = field(default_factory=list[str])
    began: str | None = None
    stale: list[str] = field(default_factory=list[str])
    seen: list[str] = field(default_factory=list[str])
    starts: list[str] = field(default_factory=list[str])


def subject_workflow_id(subject: Subject) -> str:
    """The one workflow of a subject; 40 characters, whatever the source calls things."""
    key = digest([subject.tenant, subject.playbook, subject.source, subject.name])
    return f"{SUBJECT_PREFIX}{key[:32]}"
