"""`DecisionQuery` as SQL over the tables. Builds; does no I/O."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import Any, TypeVarTuple

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import aggregate_order_by

from classifier.audit.escape import escape, question_key
from classifier.audit.query import AnswerCondition, AskedMode, DecisionQuery, Operator, Position
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

_FEW = 2000
"""How many answers are looked up by value, before walking through all of a question by time."""

MODEL_OF = sa.case(
    (decisions.c.resolved_model.is_not(None), decisions.c.resolved_model), else_=decisions.c.requested_model
)
"""`model_of` of a decision, spelled as its index is."""

Ts = TypeVarTuple("Ts")

SELECT_DECISIONS = sa.select(*FACTS, *CONTENTS).select_from(JOINED)
"""Everything `classifier.audit.rows.decision_of` reads; contents that were erased are NULL."""

LIVE = decisions.c.mode != "shadow"
"""What holds for every decision that something may follow from."""

NEWEST_FIRST = (decisions.c.decided_at.desc(), decisions.c.decision_id.desc())


def conditions(query: DecisionQuery) -> list[sa.ColumnElement[bool]]:
    """What holds for exactly the rows whose decision `query` matches."""
    return [*_times(query, decisions.c.decided_at), *_equalities(query), *_flags(query), *_answers(query)]


def newest(
    select: sa.Select[*Ts], query: DecisionQuery, limit: int, position: Position | None
) -> sa.Select[*Ts]:
    """The rows of `select`, over `decisions`, that `query` asks for: newest first, those after `position`.

    The planner takes the two columns that join answers with decisions for independent and so expects one row
    where there are thousands. Conditions on answers are therefore applied by walking through the answers, and
    not by a join; unless an id leaves few decisions to look at anyway.
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
    """Where the decisions are whose answers are asked for.

    How rare an answer is depends on its question, of which PostgreSQL's statistics know nothing. So up to
    `_FEW` of each condition are looked up by value. If that is all of them, the newest of them that meet the
    other conditions are taken; else the walk through one question's answers by time is short.
    """
    place = next((index for index, one in enumerate(query.answers) if _is_option(one)), 0)
    arms: list[sa.Select[*tuple[Any, ...]]] = []
    many: list[sa.ColumnElement[bool]] = []
    for index, condition in enumerate(query.answers):
        if condition.operator == "!=" or (index == place and _is_option(condition)):
            continue
        few = _few(query, condition).cte(f"few_{index}")
        total = sa.select(sa.func.count()).select_from(few).scalar_subquery()
        newest_few = sa.select(few).order_by(few.c.decided_at.desc(), few.c.decision_id.desc())
        source = newest_few.offset(0).subquery()  # keeps the other conditions from being asked of all of them
        arms.append(_arm(query, index, limit, position, source).where(*many, total <= _FEW))
        many.append(total > _FEW)
    answer = decision_answers.alias()
    walk = _arm(query, place, limit, position, answer)
    walk = walk.where(*many, *_answered(answer, query, query.answers[place]))
    if not arms:
        return walk
    found = sa.union_all(*arms, walk).subquery()
    return sa.select(found).order_by(found.c.decided_at.desc(), found.c.decision_id.desc()).limit(limit)


def _is_option(condition: AnswerCondition) -> bool:
    """Whether the index that finds the answers has them by time."""
    return isinstance(condition.value, str) and condition.operator == "="


def _few(query: DecisionQuery, condition: AnswerCondition) -> sa.Select[*tuple[Any, ...]]:
    found = decision_answers.alias()
    value = found.c.choice if isinstance(condition.value, str) else found.c.number
    return (
        sa.select(found.c.decided_at, found.c.decision_id)
        .where(*_answered(found, query, condition))
        .order_by(found.c.question, value)
        .limit(_FEW + 1)
    )


def _arm(
    query: DecisionQuery, index: int, limit: int, position: Position | None, source: sa.FromClause
) -> sa.Select[*tuple[Any, ...]]:
    """The newest of `source` that meet all but the condition on answers at `index`."""
    found = source.c
    select = (
        sa.select(found.decided_at, found.decision_id)
        .where(*_times(query, found.decided_at), *_others(query, index, source))
        .order_by(found.decided_at.desc(), found.decision_id.desc())
        .limit(limit)
    )
    return select if position is None else select.where(_after(source, position))


def _others(query: DecisionQuery, index: int, source: sa.FromClause) -> Iterator[sa.ColumnElement[bool]]:
    for condition in (*query.answers[:index], *query.answers[index + 1 :]):
        answer = decision_answers.alias()
        yield _there(answer, source, *_answered(answer, query, condition))
    # Answers of shadows have keys of their own, so that an answer says already which of the two it is of.
    told: AskedMode = "any" if query.mode in {"live", "shadow", "any"} else query.mode
    rest = replace(query, answers=(), since=None, until=None, mode=told)
    if rest != DecisionQuery(tenant=query.tenant, mode="any"):
        yield _there(decisions, source, *conditions(rest))


def _there(
    table: sa.FromClause, source: sa.FromClause, *conditions: sa.ColumnElement[bool]
) -> sa.ColumnElement[bool]:
    """Whether `table` has a row of the same decision; a subquery, since an EXISTS may become a join."""
    found = sa.select(sa.true()).select_from(table)
    same = (table.c.decision_id == source.c.decision_id, table.c.decided_at == source.c.decided_at)
    return found.where(*same, *conditions).limit(1).correlate(source).scalar_subquery()


def in_order(
    aggregate: Callable[..., sa.ColumnElement[Any]], rows: sa.FromClause, value: Any, *arguments: Any
) -> sa.ColumnElement[Any]:
    """An aggregate of one value of each of the `newest` rows, newest first."""
    order = (rows.c.decided_at.desc(), rows.c.decision_id.desc())
    *between, last = (value, *arguments)
    return aggregate(*between, aggregate_order_by(last, *order))


def last_of(rows: sa.FromClause) -> Iterator[sa.ColumnElement[Any]]:
    """Time and id of the last of the `newest` rows; NULL of none."""
    end = sa.cast(sa.func.count(), sa.Integer)
    for column in (rows.c.decided_at, rows.c.decision_id):
        yield in_order(partial(sa.func.array_agg, type_=sa.ARRAY(column.type)), rows, column)[end]


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
    if query.mode == "live":
        yield LIVE
    elif query.mode != "any":
        yield facts.mode == query.mode
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
            *_answered(answer, query, condition),
            answer.c.decision_id == decisions.c.decision_id,
            answer.c.decided_at == decisions.c.decided_at,
        )


def _answered(
    answer: sa.FromClause, query: DecisionQuery, condition: AnswerCondition
) -> Iterator[sa.ColumnElement[bool]]:
    yield answer.c.tenant == escape(query.tenant)
    keys = [question_key(condition.question, shadow=shadow) for shadow in _shadows(query.mode)]
    yield answer.c.question == keys[0] if len(keys) == 1 else answer.c.question.in_(keys)
    compare = _COMPARE[condition.operator]
    if isinstance(condition.value, str):
        yield answer.c.choice.is_not(None)
        yield answer.c.choice.bool_op(compare)(escape(condition.value))
        return
    yield answer.c.number.is_not(None)
    yield answer.c.number.bool_op(compare)(float(condition.value))


def _shadows(mode: AskedMode) -> tuple[bool, ...]:
    """Of which a mode asks for: decisions that are shadows, that are none, or both."""
    if mode == "any":
        return (False, True)
    return (mode == "shadow",)
