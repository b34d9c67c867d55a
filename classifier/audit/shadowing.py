"""Shadows against the decisions that counted: how often they agree, where they differ, what they cost.

The conditions of a query are about the live decisions; a shadow is found by where it was made.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import aggregate_order_by

from classifier.audit.escape import unescape, unescape_optional
from classifier.audit.query import DecisionQuery
from classifier.audit.reader import TenantReader
from classifier.audit.sql import conditions
from classifier.audit.statistics import finite
from classifier.audit.tables import decisions
from classifier.decision import SHADOW
from classifier.errors import ConfigurationError

EXAMPLES = 5
"""How many decisions are named for each difference."""

FAILED = "failed"
PERCENTILES = (0.5, 0.95)

_live = decisions
_beside = decisions.alias("beside")
_KEYS = (
    _live.c.playbook_id,
    _live.c.policy_version,
    _live.c.classifier_id,
    _beside.c.policy_version.label("shadow_version"),
    _beside.c.classifier_id.label("shadow_classifier"),
)


@dataclass(frozen=True, slots=True)
class Pair:
    """What is compared with what.

    Attributes:
        playbook: The playbook's id.
        policy_version: Of the live policy.
        classifier: That the live decisions asked.
        shadow_version: The shadow's policy version.
        shadow_classifier: That the shadow asked, or whose answers it judged anew.
    """

    playbook: str | None
    policy_version: str | None
    classifier: str
    shadow_version: str | None
    shadow_classifier: str


@dataclass(frozen=True, slots=True)
class Cell:
    """How often the one became this and the other that.

    Attributes:
        live: "route billing" for example, "review", or "failed" where there were no answers.
        shadow: What it would have become.
        count: How often.
        examples: Some live decisions, newest first, where the two differ.
    """

    live: str
    shadow: str
    count: int
    examples: tuple[uuid.UUID, ...] = ()


@dataclass(frozen=True, slots=True)
class Side:
    """One of the two, over all decisions.

    Attributes:
        reviews: How many went to a person, failures included.
        failed: How many have no answers.
        input_tokens: Those that providers reported.
        output_tokens: Those that providers reported.
        cost: In US dollars; None where no provider said.
        p50_ms: Half took at most so long; None where that is no number.
        p95_ms: As `p50_ms`, for 95 of a hundred.
    """

    reviews: int
    failed: int
    input_tokens: int
    output_tokens: int
    cost: float | None
    p50_ms: float | None
    p95_ms: float | None


@dataclass(frozen=True, slots=True)
class Comparison:
    """A shadow and what it stood beside.

    Attributes:
        pair: What is compared.
        count: Decisions with a shadow.
        cells: The matrix, the most frequent first.
        live: The decisions that counted.
        shadow: Those beside them.
    """

    pair: Pair
    count: int
    cells: tuple[Cell, ...]
    live: Side
    shadow: Side

    @property
    def compared(self) -> int:
        """How many have answers on both sides."""
        return sum(each.count for each in self.cells if FAILED not in {each.live, each.shadow})

    @property
    def agreement(self) -> float | None:
        """The share of these that became the same, from 0 to 1; None where there are none."""
        agreed = sum(each.count for each in self.cells if each.live == each.shadow != FAILED)
        return agreed / self.compared if self.compared else None


class Shadows(TenantReader):
    """Reads comparisons, as `TenantReader` says."""

    async def compare(self, query: DecisionQuery) -> tuple[Comparison, ...]:
        """Every shadow of the live decisions that `query` asks for, by playbook.

        Raises:
            ConfigurationError: The query asks for another mode.
        """
        if query.mode != "live":
            raise ConfigurationError("shadows are compared with what is live; leave the mode out")
        async with self._reading(query.tenant) as connection:
            cells = [dict(row) for row in (await connection.execute(select_cells(query))).mappings()]
            sides = [dict(row) for row in (await connection.execute(select_sides(query))).mappings()]
        by_pair = {_pair(row): row for row in sides}
        return tuple(
            _comparison(pair, list(rows), by_pair[pair])
            for pair, rows in groupby(cells, key=_pair)
            if pair in by_pair  # both are read in one transaction, yet not at one moment
        )


def select_cells(query: DecisionQuery) -> sa.Select[*tuple[Any, ...]]:
    """What `Cell` is made of."""
    live, shadow = _became(_live).label("live"), _became(_beside).label("shadow")
    newest = sa.func.array_agg(aggregate_order_by(_live.c.decision_id, _live.c.decided_at.desc())).filter(
        _became(_live) != _became(_beside)
    )
    count = sa.func.count().label("count")
    return (
        sa.select(*_KEYS, live, shadow, count, newest.label("examples"))
        .select_from(_joined())
        .where(*conditions(query))
        .group_by(*_KEYS, live, shadow)
        .order_by(*_KEYS, count.desc(), live, shadow)
    )


def select_sides(query: DecisionQuery) -> sa.Select[*tuple[Any, ...]]:
    """What `Side` is made of, for both."""
    figures = [
        figure.label(f"{name}_{called}")
        for name, table in (("live", _live), ("shadow", _beside))
        for called, figure in _figures(table.c)
    ]
    return (
        sa.select(*_KEYS, sa.func.count().label("count"), *figures)
        .select_from(_joined())
        .where(*conditions(query))
        .group_by(*_KEYS)
    )


def _joined() -> sa.Join:
    same = ("tenant", "namespace", "workflow_id", "run_id", "ordinal", "decided_at")
    return _live.join(
        _beside,
        sa.and_(
            *(_live.c[name] == _beside.c[name] for name in same),
            _beside.c.mode == "shadow",
            _beside.c.activity_id == _live.c.activity_id + SHADOW,
        ),
    )


def _became(table: sa.FromClause) -> sa.ColumnElement[str]:
    made = table.c
    return sa.case(
        (made.failure_code.is_not(None), FAILED),
        (made.branch_action == "route", sa.literal("route ") + made.branch_route),
        else_=sa.func.coalesce(made.branch_action, made.outcome),
    )


def _figures(made: Any) -> Iterable[tuple[str, sa.ColumnElement[Any]]]:
    for name in ("input_tokens", "output_tokens"):
        yield name, sa.cast(sa.func.coalesce(sa.func.sum(made[name]), 0), sa.BigInteger)
    yield "cost", sa.func.sum(made.cost)
    yield "reviews", sa.func.count().filter(made.branch_action == "review")
    yield "failed", sa.func.count(made.failure_code)
    yield (
        "durations",
        sa.func.percentile_disc(sa.literal(list(PERCENTILES), sa.ARRAY(sa.Double))).within_group(
            made.duration_ms
        ),
    )


def _pair(row: Mapping[str, Any]) -> Pair:
    return Pair(
        unescape_optional(row["playbook_id"]),
        unescape_optional(row["policy_version"]),
        unescape(row["classifier_id"]),
        unescape_optional(row["shadow_version"]),
        unescape(row["shadow_classifier"]),
    )


def _comparison(pair: Pair, cells: Sequence[Mapping[str, Any]], sides: Mapping[str, Any]) -> Comparison:
    made = tuple(
        Cell(
            unescape(row["live"]),
            unescape(row["shadow"]),
            row["count"],
            tuple(row["examples"] or ())[:EXAMPLES],
        )
        for row in cells
    )
    return Comparison(pair, sides["count"], made, _side("live", sides), _side("shadow", sides))


def _side(name: str, row: Mapping[str, Any]) -> Side:
    p50, p95 = (finite(value) for value in row[f"{name}_durations"])
    return Side(
        reviews=row[f"{name}_reviews"],
        failed=row[f"{name}_failed"],
        input_tokens=row[f"{name}_input_tokens"],
        output_tokens=row[f"{name}_output_tokens"],
        cost=finite(row[f"{name}_cost"]),
        p50_ms=p50,
        p95_ms=p95,
    )
