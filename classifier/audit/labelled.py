"""Decisions that people have labelled: by a review, or by saying what an answer should have been.

Labels come in the number that people make, so they are gone through at once; decisions are read in batches.
"""

from __future__ import annotations

import uuid
from collections.abc import AsyncGenerator, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from itertools import islice
from typing import Any, Literal, cast

import sqlalchemy as sa

from classifier.audit.escape import decode, escape, unescape_optional
from classifier.audit.query import DecisionQuery
from classifier.audit.reader import TenantReader
from classifier.audit.records import EventKind
from classifier.audit.rows import decision_of, utc
from classifier.audit.sql import SELECT_DECISIONS, conditions
from classifier.audit.tables import decisions, history_events
from classifier.decision import Decision
from classifier.labelling import AnswerLabel, label_of_review
from classifier.values import JSON

LABEL: EventKind = "label"
_REVIEW: EventKind = "review"
_BATCH = 100


@dataclass(frozen=True, slots=True)
class Labelled:
    """What a person answered to one question of a decision.

    Attributes:
        decision: The decision.
        answer: The question, and the label.
        by: Who said so.
        at: When.
        origin: "label", or "review" where it is what a person's route says.
    """

    decision: Decision
    answer: AnswerLabel
    by: str | None
    at: datetime
    origin: Literal["label", "review"]


@dataclass(frozen=True, slots=True)
class _Said:
    decision_id: uuid.UUID
    kind: EventKind
    by: str | None
    at: datetime
    body: Mapping[str, JSON]

    @property
    def question(self) -> JSON:
        """What it labels; a review does not say."""
        return self.body.get("question") if self.kind == LABEL else None


class LabelledDecisions(TenantReader):
    """Reads what people labelled, as `TenantReader` says."""

    async def of(self, query: DecisionQuery) -> AsyncGenerator[Labelled]:
        """The labels of the decisions that `query` asks for, oldest label first.

        Of several about the same question of a decision the last one counts, and what somebody labelled
        counts more than what a review says. Of reviews only the first about a decision counts: later ones
        are about its delivery.
        """
        said = await self._said(query.tenant)
        labelled = {(one.decision_id, one.question) for one in said if one.kind == LABEL}
        remaining = iter(said)
        while batch := list(islice(remaining, _BATCH)):
            found = await self._decisions(query, {one.decision_id for one in batch})
            for one in batch:
                label = _labelled(one, found.get(one.decision_id))
                is_news = one.kind == LABEL or (
                    label is not None and (one.decision_id, label.answer.question) not in labelled
                )
                if label is not None and is_news:
                    yield label

    async def _said(self, tenant: str) -> list[_Said]:
        events = history_events.c
        select = (
            sa.select(events.decision_id, events.kind, events.actor, events.at, events.body)
            .where(
                events.tenant == escape(tenant),
                events.kind.in_((LABEL, _REVIEW)),
                events.decision_id.is_not(None),
            )
            .order_by(events.at, events.transaction_id, events.arrival)
        )
        async with self._reading(tenant) as connection:
            rows = (await connection.execute(select)).all()
        return _that_count(
            _Said(decision_id, kind, unescape_optional(by), utc(at), _object(body))
            for decision_id, kind, by, at, body in rows
        )

    async def _decisions(self, query: DecisionQuery, wanted: set[uuid.UUID]) -> Mapping[uuid.UUID, Decision]:
        ids = sa.any_(sa.literal(sorted(wanted), sa.ARRAY(sa.Uuid)))
        select = SELECT_DECISIONS.where(*conditions(query), decisions.c.decision_id == ids)
        async with self._reading(query.tenant) as connection:
            rows = (await connection.execute(select)).mappings()
            return {row["decision_id"]: decision_of(dict(row)) for row in rows}


def _object(body: Any) -> Mapping[str, JSON]:
    return cast("Mapping[str, JSON]", decode(body))


def _that_count(said: Iterable[_Said]) -> list[_Said]:
    """The first review of each decision and the last label of each question, still in their order."""
    counting: dict[tuple[uuid.UUID, JSON], _Said] = {}
    for one in said:
        place = (one.decision_id, one.question)
        if one.kind == LABEL:
            counting[place] = one
        else:
            counting.setdefault(place, one)
    return sorted(counting.values(), key=lambda one: one.at)


def _labelled(said: _Said, decision: Decision | None) -> Labelled | None:
    if decision is None:
        return None
    body = said.body
    if said.kind == LABEL:
        answer = AnswerLabel(cast("str", body["question"]), cast("bool | str | float", body["answer"]))
        return Labelled(decision, answer, said.by, said.at, "label")
    suggested = body.get("suggested")
    routed = label_of_review(
        decision, str(body.get("route")), suggested if isinstance(suggested, str) else None
    )
    return None if routed is None else Labelled(decision, routed, said.by, said.at, "review")
