"""`DecisionQuery` as SQL over the tables. Builds; does no I/O."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import sqlalchemy as sa

from classifier.audit.escape import escape
from classifier.audit.query import AnswerCondition, DecisionQuery, Operator, Position
from classifier.audit.tables import decision_answers, decision_contents, decisions

_FACTS = [column for column in decisions.columns if column.name not in {"recorded_at", "reason_text"}]
_CONTENTS = [
    decision_contents.c[name]
    for name in ("resource_id", "state", "state_is_json", "request_context", "original")
]
_JOINED = decisions.outerjoin(
    decision_contents,
    sa.and_(
        decision_contents.c.decision_id == decisions.c.decision_id,
        decision_contents.c.decided_at == decisions.c.decided_at,
    ),
)
_COMPARE: dict[Operator, str] = {"=": "=", "!=": "<>", ">=": ">=", ">": ">", "<=": "<=", "<": "<"}

SELECT_DECISIONS = sa.select(*_FACTS, *_CONTENTS).select_from(_JOINED)
"""Everything `classifier.audit.rows.decision_of` reads; contents that were erased are NULL."""

NEWEST_FIRST = (decisions.c.decided_at.desc(), decisions.c.decision_id.desc())


def conditions(query: DecisionQuery) -> list[sa.ColumnElement[bool]]:
    """What holds for exactly the rows whose decision `query` matches."""
    return [*_times(query), *_equalities(query), *_flags(query), *_answers(query)]


def after(position: Position) -> sa.ColumnElement[bool]:
    """What holds for the rows that follow `position`, newest first."""
    place = sa.tuple_(decisions.c.decided_at, decisions.c.decision_id)
    return place < sa.tuple_(
        sa.literal(position.decided_at, decisions.c.decided_at.type),
        sa.literal(position.decision_id, decisions.c.decision_id.type),
    )


def _times(query: DecisionQuery) -> Iterator[sa.ColumnElement[bool]]:
    if query.since is not None:
        yield decisions.c.decided_at >= query.since
    if query.until is not None:
        yield decisions.c.decided_at < query.until


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
        wanted = escape(query.model)
        unnamed = sa.and_(facts.resolved_model.is_(None), facts.requested_model == wanted)
        yield sa.or_(facts.resolved_model == wanted, unnamed)


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
            answer.c.tenant == escape(query.tenant),
            answer.c.question == escape(condition.question),
            *_value(answer, condition),
            answer.c.decision_id == decisions.c.decision_id,
            answer.c.decided_at == decisions.c.decided_at,
        )


def _value(answer: sa.FromClause, condition: AnswerCondition) -> Iterator[sa.ColumnElement[bool]]:
    compare = _COMPARE[condition.operator]
    if isinstance(condition.value, str):
        yield answer.c.choice.is_not(None)
        yield answer.c.choice.bool_op(compare)(escape(condition.value))
        return
    yield answer.c.number.is_not(None)
    yield answer.c.number.bool_op(compare)(float(condition.value))
