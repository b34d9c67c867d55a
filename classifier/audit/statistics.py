"""Figures about decisions: how many and what became of them, how fast, how often refused, at what cost.

Days and hours are those of UTC. The selects are built apart from the reader that runs them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date, datetime
from typing import Any, Literal, TypeAlias

import sqlalchemy as sa

from classifier.audit.escape import unescape, unescape_optional
from classifier.audit.query import DecisionQuery
from classifier.audit.reader import TenantReader
from classifier.audit.sql import MODEL_OF, conditions
from classifier.audit.tables import decisions
from classifier.decision import Outcome

Every: TypeAlias = Literal["hour", "day"]

PERCENTILES = (0.5, 0.95, 0.99)
_DECIDERS = (decisions.c.classifier_id, decisions.c.processor_id, decisions.c.playbook_id)
_TOTAL = sa.func.count().label("total")


@dataclass(frozen=True, slots=True, order=True)
class Decider:
    """What decided.

    Attributes:
        classifier: The classifier's id.
        processor: The processor's id; None outside processors.
        playbook: The playbook's id; None outside playbooks.
    """

    classifier: str
    processor: str | None
    playbook: str | None

    @property
    def name(self) -> str:
        """The most telling of its ids."""
        return self.playbook or self.processor or self.classifier


@dataclass(frozen=True, slots=True)
class Volume:
    """How many decisions of one hour or day had one outcome.

    Attributes:
        start: When the hour or day begins.
        decider: What decided.
        outcome: "allowed", "filtered" or "aborted".
        count: How many.
        share: Of all that this decider decided in this hour or day, from 0 to 1.
        reviews: How many of them a playbook left to a person.
    """

    start: datetime
    decider: Decider
    outcome: Outcome
    count: int
    share: float
    reviews: int


@dataclass(frozen=True, slots=True)
class Health:
    """How quickly and how completely calls were answered.

    Attributes:
        decider: What decided.
        count: How many calls.
        p50_ms: Half took at most so long, retries included; failed calls count too. None where that is no
            number.
        p95_ms: As `p50_ms`, for 95 of a hundred.
        p99_ms: As `p50_ms`, for 99 of a hundred.
        refused: Calls with at least one refused question.
        failed: Calls without answers.
    """

    decider: Decider
    count: int
    p50_ms: float | None
    p95_ms: float | None
    p99_ms: float | None
    refused: int
    failed: int

    @property
    def refusal_rate(self) -> float:
        """From 0 to 1."""
        return self.refused / self.count

    @property
    def failure_rate(self) -> float:
        """From 0 to 1."""
        return self.failed / self.count


@dataclass(frozen=True, slots=True)
class Spending:
    """What a tenant used of one model on one day.

    Attributes:
        tenant: Whose.
        day: In UTC.
        model: The resolved model, or the requested one where the provider does not name the build.
        count: How many decisions.
        input_tokens: Those that providers reported.
        output_tokens: Those that providers reported.
        cost: In US dollars; None where no provider said.
        unpriced: How many decisions have no cost, so that a sum is not taken for the whole.
    """

    tenant: str
    day: date
    model: str | None
    count: int
    input_tokens: int
    output_tokens: int
    cost: float | None
    unpriced: int


class Statistics(TenantReader):
    """Reads figures, as `TenantReader` says; the conditions of the query hold for all of them."""

    async def volumes(self, query: DecisionQuery, every: Every = "day") -> tuple[Volume, ...]:
        """Counts by hour or day, decider and outcome, oldest first."""
        return tuple(_volume(row) for row in await self._rows(query, select_volumes(query, every)))

    async def health(self, query: DecisionQuery) -> tuple[Health, ...]:
        """Latency, refusals and failures by decider, the busiest first."""
        return tuple(_health(row) for row in await self._rows(query, select_health(query)))

    async def spendings(self, query: DecisionQuery) -> tuple[Spending, ...]:
        """Tokens and cost by day and model, oldest first."""
        rows = await self._rows(query, select_spendings(query))
        return tuple(_spending(query.tenant, row) for row in rows)

    async def _rows(
        self, query: DecisionQuery, select: sa.Select[*tuple[Any, ...]]
    ) -> list[Mapping[str, Any]]:
        async with self._reading(query.tenant) as connection:
            return [dict(row) for row in (await connection.execute(select)).mappings()]


def select_volumes(query: DecisionQuery, every: Every) -> sa.Select[*tuple[Any, ...]]:
    """What `Volume` is made of."""
    start = sa.func.date_trunc(every, decisions.c.decided_at, "UTC").label("start")
    reviews = sa.func.count().filter(decisions.c.branch_action == "review").label("reviews")
    counted = (
        sa.select(start, *_DECIDERS, decisions.c.outcome, _TOTAL, reviews)
        .where(*conditions(query))
        .group_by(start, *_DECIDERS, decisions.c.outcome)
        .subquery()
    )
    found = counted.c
    whose = (found.start, found.classifier_id, found.processor_id, found.playbook_id)
    whole = sa.cast(sa.func.sum(found.total).over(partition_by=whose), sa.Double)
    share = (sa.cast(found.total, sa.Double) / whole).label("share")
    return sa.select(counted, share).order_by(*whose, found.outcome)


def select_health(query: DecisionQuery) -> sa.Select[*tuple[Any, ...]]:
    """What `Health` is made of; percentiles are durations that occurred, so one endless call spoils none."""
    durations = sa.func.percentile_disc(sa.literal(list(PERCENTILES), sa.ARRAY(sa.Double)))
    return (
        sa.select(
            *_DECIDERS,
            _TOTAL,
            durations.within_group(decisions.c.duration_ms).label("durations"),
            sa.func.count().filter(decisions.c.refused).label("refused"),
            sa.func.count(decisions.c.failure_code).label("failed"),
        )
        .where(*conditions(query))
        .group_by(*_DECIDERS)
        .order_by(_TOTAL.desc(), *_DECIDERS)
    )


def select_spendings(query: DecisionQuery) -> sa.Select[*tuple[Any, ...]]:
    """What `Spending` is made of."""
    facts = decisions.c
    day = sa.func.date_trunc("day", facts.decided_at, "UTC").label("day")
    model = MODEL_OF.label("model")
    return (
        sa.select(
            day,
            model,
            _TOTAL,
            sa.cast(sa.func.coalesce(sa.func.sum(facts.input_tokens), 0), sa.BigInteger).label("input"),
            sa.cast(sa.func.coalesce(sa.func.sum(facts.output_tokens), 0), sa.BigInteger).label("output"),
            sa.func.sum(facts.cost).label("cost"),
            sa.func.count().filter(facts.cost.is_(None)).label("unpriced"),
        )
        .where(*conditions(query))
        .group_by(day, model)
        .order_by(day, model)
    )


def _decider(row: Mapping[str, Any]) -> Decider:
    return Decider(
        unescape(row["classifier_id"]),
        unescape_optional(row["processor_id"]),
        unescape_optional(row["playbook_id"]),
    )


def _volume(row: Mapping[str, Any]) -> Volume:
    return Volume(row["start"], _decider(row), row["outcome"], row["total"], row["share"], row["reviews"])


def _health(row: Mapping[str, Any]) -> Health:
    p50, p95, p99 = (finite(value) for value in row["durations"])
    return Health(_decider(row), row["total"], p50, p95, p99, row["refused"], row["failed"])


def _spending(tenant: str, row: Mapping[str, Any]) -> Spending:
    return Spending(
        tenant=tenant,
        day=row["day"].date(),
        model=unescape_optional(row["model"]),
        count=row["total"],
        input_tokens=row["input"],
        output_tokens=row["output"],
        cost=finite(row["cost"]),
        unpriced=row["unpriced"],
    )


def finite(value: float | None) -> float | None:
    """A number that is one, else None."""
    return value if value is not None and math.isfinite(value) else None
