"""Conditions, cursors, and that memory and SQL agree on what a query asks for."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from classifier.answers import BooleanAnswer, ChoiceAnswer, Refusal, ScoreAnswer
from classifier.audit.history import History
from classifier.audit.memory import MemoryStore
from classifier.audit.postgres import PostgresStore
from classifier.audit.query import AnswerCondition, DecisionQuery, Position
from classifier.decision import Decision
from classifier.errors import ConfigurationError
from tests.classifier.audit.examples import NOW, decision, decisions, few, moments, probabilities


def _over_a_database(max_examples: int) -> settings:
    """One database for all examples."""
    return settings(
        max_examples=max_examples,
        deadline=None,
        suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
    )


conditions = st.one_of(
    st.builds(
        AnswerCondition,
        st.sampled_from(["topic", "unsafe", "x\0"]),
        st.sampled_from(["=", "!=", ">=", ">", "<=", "<"]),
        probabilities | st.sampled_from([0.5, 1]),
    ),
    st.builds(
        AnswerCondition,
        st.just("topic"),
        st.sampled_from(["=", "!="]),
        st.sampled_from(["billing", "a\0b", "0.5"]),
    ),
)
maybe = st.none() | st.booleans()
_FILTERS: dict[str, st.SearchStrategy[Any]] = {
    "since": moments,
    "until": moments,
    "processor": st.sampled_from(["guard", "p\0"]),
    "classifier": st.sampled_from(["tickets", "safety"]),
    "playbook": few,
    "phase": st.sampled_from(["input", "output", "stream", "step"]),
    "mode": st.sampled_from(["live", "enforce", "monitor", "shadow", "any"]),
    "outcome": st.sampled_from(["allowed", "filtered", "aborted"]),
    "thread": few,
    "resource": few,
    "message": few,
    "trace": few,
    "workflow": st.sampled_from(["w1", "w2"]),
    "run": st.sampled_from(["", "a\0b"]),
    "model": st.sampled_from(["jev", "jev-2026"]),
    "action": st.sampled_from(["route", "review"]),
    "route": few,
    "answers": st.lists(conditions, min_size=1, max_size=2).map(tuple),
    "refused": maybe,
    "failed": maybe,
    "truncated": maybe,
    "reason": st.sampled_from(["", "MODEL", "B", "\0", "ß"]),
}
queries = st.lists(st.sampled_from(sorted(_FILTERS)), unique=True, max_size=3).flatmap(
    lambda names: st.builds(
        DecisionQuery,
        tenant=st.sampled_from(["acme", "globex"]),
        **{name: _FILTERS[name] for name in names},
    )
)


async def _walk(history: History, query: DecisionQuery, limit: int) -> list[Decision]:
    page = await history.page(query, limit)
    found = list(page.decisions)
    while page.next_cursor is not None:
        page = await history.page(query, limit, page.next_cursor)
        found.extend(page.decisions)
    return found


_batches = st.lists(decisions() | decisions("globex"), max_size=12)
_asked = st.lists(queries, min_size=8, max_size=8)


async def _agree(
    store: PostgresStore, history: History, written: list[Decision], asked: Sequence[DecisionQuery]
) -> None:
    # The database is shared by all examples, and Hypothesis repeats its ids.
    written = [replace(one, decision_id=uuid.uuid4()) for one in written]
    batch = {one.decision_id for one in written}
    memory = MemoryStore()
    await memory.record(written)
    await store.record(written)
    for query in asked:
        found = [one for one in await _walk(history, query, 7) if one.decision_id in batch]
        assert found == memory.matching(query)
    for one in written:
        assert await history.get(one.tenant, one.decision_id) == one


@_over_a_database(max_examples=15)
@given(_batches, _asked)
async def test_memory_and_sql_agree_and_what_is_read_equals_what_was_written(
    postgres_store: PostgresStore, history: History, written: list[Decision], asked: Sequence[DecisionQuery]
) -> None:
    await _agree(postgres_store, history, written, asked)


@pytest.mark.long
@_over_a_database(max_examples=200)
@given(_batches, _asked)
async def test_memory_and_sql_agree_on_many_more_examples(
    postgres_store: PostgresStore, history: History, written: list[Decision], asked: Sequence[DecisionQuery]
) -> None:
    await _agree(postgres_store, history, written, asked)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("topic = billing", AnswerCondition("topic", "=", "billing")),
        ("topic!=lost card ", AnswerCondition("topic", "!=", "lost card")),
        ("unsafe >= 0.8", AnswerCondition("unsafe", ">=", 0.8)),
        ("mood<1", AnswerCondition("mood", "<", 1.0)),
        ('topic = "1"', AnswerCondition("topic", "=", "1")),
    ],
)
def test_a_condition_is_read(text: str, expected: AnswerCondition) -> None:
    assert AnswerCondition.parse(text) == expected


@pytest.mark.parametrize("text", ["", "topic", "topic =", "= billing", "unsafe >= high", "unsafe > nan"])
def test_what_is_no_condition_is_refused(text: str) -> None:
    with pytest.raises(ConfigurationError):
        AnswerCondition.parse(text)


def test_a_refusal_meets_no_condition() -> None:
    for text in ("topic = billing", "topic != billing", "topic < 1"):
        assert not AnswerCondition.parse(text).holds(Refusal())
        assert not AnswerCondition.parse(text).holds(None)


def test_numbers_are_of_booleans_scores_and_the_chosen_option() -> None:
    condition = AnswerCondition.parse("q >= 0.5")
    assert condition.holds(BooleanAnswer(0.5))
    assert condition.holds(ScoreAnswer(2.0))
    assert condition.holds(ChoiceAnswer("a", {"a": 0.6, "b": 0.4}))
    assert not condition.holds(ChoiceAnswer("a"))


def test_aud_o03_a_time_without_zone_is_refused_and_says_how() -> None:
    with pytest.raises(ConfigurationError, match="time zone; write one, 2026-03-01T10:00:00Z"):
        DecisionQuery(tenant="acme", since=datetime(2026, 3, 1, 10))  # noqa: DTZ001 - the point of the test


def test_a_query_without_tenant_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="tenant"):
        DecisionQuery(tenant="")


def test_a_cursor_is_bound_to_tenant_and_filter_and_not_to_how_times_are_written() -> None:
    query = DecisionQuery(tenant="acme", since=datetime(2026, 3, 1, 10, tzinfo=UTC))
    same = DecisionQuery(tenant="acme", since=datetime.fromisoformat("2026-03-01T15:30:00+05:30"))
    position = Position(NOW, decision().decision_id)
    cursor = position.cursor(query.fingerprint)
    assert Position.parse(cursor, same.fingerprint) == position
    for other in (DecisionQuery(tenant="globex", since=query.since), DecisionQuery(tenant="acme")):
        with pytest.raises(ConfigurationError, match="another tenant or filter"):
            Position.parse(cursor, other.fingerprint)


@given(st.text(max_size=60))
def test_a_damaged_cursor_is_refused(cursor: str) -> None:
    with pytest.raises(ConfigurationError):
        Position.parse(cursor, DecisionQuery(tenant="acme").fingerprint)


async def test_aud_o05_every_row_of_one_moment_comes_once_while_more_arrive(
    postgres_store: PostgresStore, history: History
) -> None:
    written = [decision(f"w{number}") for number in range(250)]
    await postgres_store.record(written)
    query = DecisionQuery(tenant="acme")
    page = await history.page(query, 100)
    seen = list(page.decisions)
    await postgres_store.record(
        [decision(f"n{n}", decided_at=NOW + timedelta(seconds=n + 1)) for n in range(50)]
    )
    while page.next_cursor is not None:
        page = await history.page(query, 100, page.next_cursor)
        seen.extend(page.decisions)
    assert len(seen) == 250
    assert {one.decision_id for one in seen} == {one.decision_id for one in written}
