"""Names, inputs and results of housekeeping. Pure and sandbox-safe; plain JSON fields."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

HOUSEKEEPING = "classifier.housekeeping"
DO_CHORE = "housekeeping.do"

ChoreName: TypeAlias = Literal["partitions", "seal", "contents", "months"]

CHORES: tuple[ChoreName, ...] = ("partitions", "seal", "contents", "months")
"""In this order: what is emptied or dropped was sealed before."""


@dataclass(frozen=True)
class Chore:
    """Input of `housekeeping.do`.

    Attributes:
        name: What to do; how is in the settings of the worker that does it.
    """

    name: ChoreName


@dataclass(frozen=True)
class ChoreDone:
    """Result of `housekeeping.do`.

    Attributes:
        name: What was done.
        facts: What came of it, as counts and names; empty where nothing is configured to be done.
    """

    name: ChoreName
    facts: dict[str, Any] = field(default_factory=dict[str, Any])
