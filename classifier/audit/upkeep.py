"""What the environment says about keeping and forgetting. Pure: reads a mapping it is given."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Self, cast

from classifier.ages import age
from classifier.audit.contents import ContentPolicy, Redactor
from classifier.errors import ConfigurationError

PII = "pii"
"""The redactor that comes along."""

_UNITS = "hdw"
"""Minutes would be read as months by some."""
_YES_AND_NO = {"yes": True, "no": False}


def age_of(text: str) -> timedelta:
    """An age such as 12h, 30d, 52w.

    Raises:
        ConfigurationError: It is none.
    """
    return age(text, _UNITS)


@dataclass(frozen=True, kw_only=True)
class Upkeep:
    """How long what is kept, and how much of it.

    Attributes:
        keep_content: Whether texts and request contexts are stored.
        redactor: "pii", or a redactor as `module:name`, that goes over them first.
        retention: The age at which a month is dropped; None keeps every month.
        content_ages: The age at which contents are emptied, by tenant.
        scheduled: Whether a worker has housekeeping done daily.
    """

    keep_content: bool = True
    redactor: str | None = None
    retention: timedelta | None = None
    content_ages: Mapping[str, timedelta] = field(default_factory=dict[str, timedelta])
    scheduled: bool = True

    @classmethod
    def from_environ(cls, environ: Mapping[str, str]) -> Self:
        """Reads `CLASSIFIER_KEEP_CONTENT`, `CLASSIFIER_REDACT`, `CLASSIFIER_RETENTION` and their like.

        Raises:
            ConfigurationError: One of them cannot be read.
        """
        retention = environ.get("CLASSIFIER_RETENTION")
        return cls(
            keep_content=_yes_or_no("CLASSIFIER_KEEP_CONTENT", environ.get("CLASSIFIER_KEEP_CONTENT")),
            redactor=environ.get("CLASSIFIER_REDACT") or None,
            retention=_named("CLASSIFIER_RETENTION", retention) if retention else None,
            content_ages=_content_ages(environ.get("CLASSIFIER_CONTENT_RETENTION") or ""),
            scheduled=_yes_or_no("CLASSIFIER_HOUSEKEEPING", environ.get("CLASSIFIER_HOUSEKEEPING")),
        )

    def contents(self) -> ContentPolicy:
        """What a store does with content.

        Raises:
            ConfigurationError: There is no such redactor, or its library is not installed.
        """
        return ContentPolicy(
            keep=self.keep_content, redact=None if self.redactor is None else _redactor(self.redactor)
        )


def _yes_or_no(name: str, given: str | None) -> bool:
    found = _YES_AND_NO.get(given or "yes")
    if found is None:
        raise ConfigurationError(f"{name} is 'yes' or 'no', not {given!r}")
    return found


def _named(name: str, age: str) -> timedelta:
    try:
        return age_of(age)
    except ConfigurationError as error:
        raise ConfigurationError(f"{name}: {error}") from None


def _content_ages(given: str) -> dict[str, timedelta]:
    ages: dict[str, timedelta] = {}
    for part in filter(None, (part.strip() for part in given.split(","))):
        tenant, separator, age = part.rpartition("=")
        if not (tenant and separator):
            raise ConfigurationError(
                f"CLASSIFIER_CONTENT_RETENTION: {part!r} is no tenant with an age; write acme=30d"
            )
        ages[tenant] = _named("CLASSIFIER_CONTENT_RETENTION", age)
    return ages


def _redactor(reference: str) -> Redactor:
    if reference == PII:
        from classifier.audit.pii import PiiRedactor  # noqa: PLC0415 - an extra

        return PiiRedactor()
    module_name, separator, name = reference.partition(":")
    if not (module_name and separator and name) or module_name.startswith("."):
        raise ConfigurationError(
            f"CLASSIFIER_REDACT is 'pii' or a redactor as module:name, not {reference!r}"
        )
    try:
        found: object = getattr(importlib.import_module(module_name), name, None)
    except ModuleNotFoundError as error:
        raise ConfigurationError(f"the redactor {reference!r} cannot be imported: {error}") from error
    if not callable(found):
        raise ConfigurationError(f"{reference!r} is no redactor; a redactor takes a text and gives one")
    return cast("Redactor", found)
