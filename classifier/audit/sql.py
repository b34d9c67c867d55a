"""`DecisionQuery` as SQL over the tables. Builds; does no I/O."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any, TypeVarTuple

import sqlalchemy as sa

from classifier.audit.escape import escape
from classifier.audit.query import AnswerCondition, DecisionQuery, Operator, Position
from classifier.audit.tables import decision_answers, decision_contents, decisions

FACTS = [column for column in decisions.columns if column.name not in {"recorded_at", "reason_text"}]
CONTENTS = [
    decision_contents.c[name]
    for name in ("resource_id", "state", "state_is_json", "request_context", "original")
]
JOINED = decisions.outerjoin(
    decision_contents,
    sa.and_(
        decision_contents.c.decision_id == decisions.c.decision_id,
        decision_contents.c.decided_at == decisions.c.decided_at,
    ),
)
_COMPARE: dict[Operator, str] = {"=": "=", "!=": "<>", ">=": ">=", ">": ">", "<=": "<=", "<": "<"}

_NARROW = ("thread", "resource", "message", "trace", "workflow", "run")
"""Filters that leave few decisions."""

MODEL_OF = sa.case(
    (decisions.c.resolved_model.is_not(None), decisions.c.resolved_model), else_=decisions.c.requested_model
)
"""`model_of` of a decision, spelled as its index is."""

Ts = TypeVarTuple("Ts")

SELECT_DECISIONS = sa.select(*FACTS, *CONTENTS).select_from(JOINED)
"""Everything `classifier.audit.rows.decision_of` reads; contents that were erased are NULL."""

NEWEST_FIRST = (decisions.c.decided_at.desc(), decisions.c.decision_id.desc())


def conditions(query: DecisionQuery) -> list[sa.ColumnElement[bool]]:
    """What holds for exactly the rows whose decision `query` matches."""
    return [*_times(query, decisions.c.decided_at), *_equalities(query), *_flags(query), *_answers(query)]


def newest(
    select: sa.Select[*Ts], query: DecisionQuery, limit: int, position: Position | None
) -> sa.Select[*Ts]:
    """The rows of `select`, over `decisions`, that `query` asks for: newest first, those after `position`.

    The planner takes the two columns that join answers with decisions for independent and so expects one row
    where there are thousands. Conditions on answers are therefore applied by walking through the answers, by
    time or by value as it sees fit, and not by a join; unless an id leaves few decisions to look at anyway.
    """
    if query.answers and all(getattr(query, name) is None for name in _NARROW):
        keys = _keys_by_answer(query, limit, position).subquery("keys")
        select = select.where(
            decisions.c.tenant == escape(query.tenant),
            decisions.c.decision_id == keys.c.decision_id,
            decisions.c.decided_at == keys.c.decided_at,
        )
    else:
        select = select.where(*conditions(query))
        if position is not None:
            select = select.where(after(position))
    return select.order_by(*NEWEST_FIRST).limit(limit)


def _keys_by_answer(
    query: DecisionQuery, limit: int, position: Position | None
) -> sa.Select[*tuple[Any, ...]]:
    answer = decision_answers.alias()
    first, *others = query.answers
    found = answer.c
    select = (
        sa.select(found.decided_at, found.decision_id)
        .where(*_answered(answer, query.tenant, first), *_times(query, found.decided_at))
        .order_by(found.decided_at.desc(), found.decision_id.desc())
        .limit(limit)
    )
    if position is not None:
        select = select.where(_after(answer, position))
    rest = replace(query, answers=tuple(others), since=None, until=None)
    if rest == DecisionQuery(tenant=query.tenant):
        return select
    holds = (
        sa.select(sa.true())
        .select_from(decisions)
        .where(
            decisions.c.decision_id == found.decision_id,
            decisions.c.decided_at == found.decided_at,
            *conditions(rest),
        )
        .correlate(answer)
    )
    return select.where(holds.scalar_subquery())


def after(position: Position) -> sa.ColumnElement[bool]:
    """What holds for the rows that follow `position`, newest first."""
    return _after(decisions, position)


def _after(table: sa.FromClause, position: Position) -> sa.ColumnElement[bool]:
    place = sa.tuple_(table.c.decided_at, table.c.decision_id)
    return place < sa.tuple_(
        sa.literal(position.decided_at, decisions.c.decided_at.type),
        sa.literal(position.decision_id, decisions.c.decision_id.type),
    )


def _times(query: DecisionQuery, decided_at: sa.ColumnElement[Any]) -> Iterator[sa.ColumnElement[bool]]:
    if query.since is not None:
        yield decided_at >= query.since
    if query.until is not None:
        yield decided_at < query.until


def _equalities(query: DecisionQuery) -> Iterator[sa.ColumnElement[bool]]:
    facts = decisions.c
    # The tenant is also what row-level security asks for; here it lets the planner see it as a constant.
    pairs: tuple[tuple[sa.ColumnElement[Any], str | None], ...] = (
        (facts.tenant, query.tenant),
        (facts.processor_id, query.processor),
        (facts.classifier_id, query.classifier),
        (facts.playbook_id, query.playbook),
        (facts.phase, query.phase),
        (facts.outcome, query.outcome),
        (facts.thread_id, query.thread),
        (facts.message_id, query.message),
        (facts.trace_id, query.trace),
        (facts.workflow_id, query.workflow),
        (facts.run_id, query.run),
        (facts.branch_action, query.action),
        (facts.branch_route, query.route),
    )
    for column, wanted in pairs:
        if wanted is not None:
            yield column == escape(wanted)
    if query.run:
        yield facts.run_id != ""  # what the partial index on runs asks for
    if query.resource is not None:
        yield _resource(query)
    if query.model is not None:
        model = MODEL_OF
        yield model == escape(query.model)


def _resource(query: DecisionQuery) -> sa.ColumnElement[bool]:
    contents = decision_contents.alias()
    return sa.exists().where(
        contents.c.tenant == escape(query.tenant),
        contents.c.resource_id == escape(query.resource or ""),
        contents.c.decision_id == decisions.c.decision_id,
        contents.c.decided_at == decisions.c.decided_at,
    )


def _flags(query: DecisionQuery) -> Iterator[sa.ColumnElement[bool]]:
    facts = decisions.c
    if query.refused is not None:
        yield facts.refused if query.refused else ~facts.refused
    for wanted, column in ((query.failed, facts.failure_code), (query.truncated, facts.truncated_from)):
        if wanted is not None:
            yield column.is_not(None) if wanted else column.is_(None)
    if query.reason:
        yield facts.reason_text.is_not(None)
        yield sa.func.strpos(facts.reason_text, escape(query.reason.casefold())) > 0


def _answers(query: DecisionQuery) -> Iterator[sa.ColumnElement[bool]]:
    for condition in query.answers:
        answer = decision_answers.alias()
        yield sa.exists().where(
            *_answered(answer, query.tenant, condition),
            answer.c.decision_id == decisions.c.decision_id,
            answer.c.decided_at == decisions.c.decided_at,
        )


def _answered(
    answer: sa.FromClause, tenant: str, condition: AnswerCondition
) -> Iterator[sa.ColumnElement[bool]]:
    yield answer.c.tenant == escape(tenant)
    yield answer.c.question == escape(condition.question)
    compare = _COMPARE[condition.operator]
    if isinstance(condition.value, str):
        yield answer.c.choice.is_not(None)
        yield answer.c.choice.bool_op(compare)(escape(condition.value))
        return
    yield answer.c.number.is_not(None)
    yield answer.c.number.bool_op(compare)(float(condition.value))
