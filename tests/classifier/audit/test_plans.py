"""AUD-O10: what people ask often is answered from indexes, under row-level security."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import Any

import pytest
import sqlalchemy as sa
from sqlalchemy.dialects import postgresql

from classifier.answers import Answer, BooleanAnswer, ChoiceAnswer
from classifier.audit.arrivals import select_arrived, select_last
from classifier.audit.chain import Place
from classifier.audit.engine import create_engine, set_tenant
from classifier.audit.export import select_page
from classifier.audit.history import History
from classifier.audit.query import AnswerCondition, DecisionQuery
from classifier.audit.sql import SELECT_DECISIONS, newest
from tests.classifier.audit.many import fill
from tests.postgres import PostgresServer

ROWS = 12_000
SMALL = 10


@pytest.fixture(scope="module")
async def filled(postgres_server: PostgresServer) -> AsyncGenerator[str]:
    async with postgres_server.database() as url:
        await fill(url, "large", ROWS)
        await fill(url, "small", SMALL)
        engine = create_engine(url, role="classifier_owner", timeout=60)
        async with engine.begin() as connection:
            await connection.execute(sa.text("ANALYZE"))
        await engine.dispose()
        yield url


async def plan_of(url: str, tenant: str, select: sa.Select[*tuple[Any, ...]]) -> list[dict[str, Any]]:
    """The steps that touch a table, as the reader's plan has them."""
    dialect = postgresql.dialect()  # type: ignore[no-untyped-call] # a class under another name
    statement = str(select.compile(dialect=dialect, compile_kwargs={"literal_binds": True}))
    engine = create_engine(url, role="classifier_reader", timeout=30)
    try:
        async with engine.begin() as connection:
            await set_tenant(connection, tenant)
            # Asked of the driver, since a statement without parameters has no other colons than its own.
            found = await connection.exec_driver_sql(f"EXPLAIN (ANALYZE, FORMAT JSON) {statement}")
            [whole] = found.scalar_one()
    finally:
        await engine.dispose()
    return list(steps(whole["Plan"]))


def steps(node: dict[str, Any]) -> list[dict[str, Any]]:
    inner = [step for child in node.get("Plans", ()) for step in steps(child)]
    return [node, *inner] if "Relation Name" in node or "Index Name" in node else inner


def read_whole(found: list[dict[str, Any]]) -> list[str]:
    """The tables with rows in them that were read from end to end."""
    return [
        step["Relation Name"]
        for step in found
        if step["Node Type"] == "Seq Scan" and step["Actual Rows"] + step.get("Rows Removed by Filter", 0) > 0
    ]


def touched(found: list[dict[str, Any]]) -> float:
    """How many rows were looked at."""
    looked_at = [
        (step["Actual Rows"] + step.get("Rows Removed by Filter", 0)) * step["Actual Loops"] for step in found
    ]
    return float(sum(looked_at))


@pytest.mark.slow
@pytest.mark.parametrize("tenant", ["large", "small"])
@pytest.mark.parametrize(
    "filters",
    [
        {},
        {"thread": "t-7"},
        {"classifier": "safety-0", "outcome": "aborted"},
        {"processor": "guard-2", "outcome": "aborted"},
        {"workflow": "w-9"},
        {"run": "r-9"},
        {"message": "m-9"},
        {"failed": True},
        {"refused": True},
        {"answers": (AnswerCondition.parse("topic = fraud"),)},
        {"answers": (AnswerCondition.parse("topic != other"),)},
        {"answers": (AnswerCondition.parse("unsafe >= 0.995"),)},
        {"answers": (AnswerCondition.parse("unsafe >= 0.5"),)},
        {"answers": (AnswerCondition.parse("unsafe >= 0.5"),), "outcome": "allowed"},
        {"answers": (AnswerCondition.parse("topic = billing"), AnswerCondition.parse("unsafe >= 0.995"))},
        {"answers": (AnswerCondition.parse("unsafe >= 0.5"), AnswerCondition.parse("topic = fraud"))},
        {"phase": "output"},
        {"playbook": "none"},
        {"route": "none"},
        {"model": "none"},
    ],
    ids=str,
)
async def test_aud_o10_the_newest_of_a_filter_come_from_indexes(
    filled: str, tenant: str, filters: dict[str, Any]
) -> None:
    found = await plan_of(
        filled, tenant, newest(SELECT_DECISIONS, DecisionQuery(tenant=tenant, **filters), 50, None)
    )
    assert read_whole(found) == []
    assert touched(found) < ROWS / 2


@pytest.mark.slow
async def test_aud_o10_following_looks_at_what_is_new_and_no_more(filled: str) -> None:
    last = await plan_of(filled, "large", select_last("large"))
    assert read_whole(last) == []
    assert touched(last) <= 2
    engine = create_engine(filled, role="classifier_reader", timeout=30)
    async with engine.begin() as connection:
        await set_tenant(connection, "large")
        row = (await connection.execute(select_last("large"))).one()
    await engine.dispose()
    until = Place(row.transaction_id, row.arrival)
    after = Place(row.transaction_id, row.arrival - 20)
    found = await plan_of(filled, "large", select_arrived("large", after, until, 1000))
    assert read_whole(found) == []
    assert touched(found) <= 60


@pytest.mark.slow
async def test_an_export_takes_its_pages_from_indexes(filled: str) -> None:
    found = await plan_of(filled, "large", select_page(DecisionQuery(tenant="large"), "jsonl", 500))
    assert read_whole(found) == []
    assert touched(found) <= 1500


def _made(number: int) -> tuple[dict[str, Answer], str]:
    """Answers and outcome of a decision of `fill`; the first is the newest."""
    topic = "fraud" if number % 100 == 0 else "billing" if number % 3 == 0 else "other"
    answers: dict[str, Answer] = {"topic": ChoiceAnswer(topic), "unsafe": BooleanAnswer(number % 1000 / 1000)}
    return answers, "aborted" if number % 50 == 0 else "allowed"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("texts", "outcome"),
    [
        (("unsafe >= 0.5",), None),
        (("unsafe >= 0.995",), None),
        (("unsafe < 0.5",), "aborted"),
        (("topic = billing", "unsafe >= 0.9"), None),
        (("unsafe >= 0.1", "topic = fraud", "unsafe < 0.6"), None),
        (("topic != other", "unsafe >= 0.2"), None),
    ],
    ids=str,
)
async def test_rare_and_common_answers_are_found_alike_on_every_page(
    filled: str, texts: tuple[str, ...], outcome: Any
) -> None:
    conditions = tuple(map(AnswerCondition.parse, texts))
    query = DecisionQuery(tenant="large", answers=conditions, outcome=outcome)
    wanted: list[str | None] = []
    for number in range(1, ROWS + 1):
        answers, became = _made(number)
        if outcome in {None, became} and all(one.holds(answers[one.question]) for one in conditions):
            wanted.append(f"m-{number}")
    found: list[str | None] = []
    async with History(filled) as history:
        page = await history.page(query, 50)
        found.extend(one.ids.message for one in page.decisions)
        while page.next_cursor is not None and len(found) < 1000:
            page = await history.page(query, 700, page.next_cursor)
            found.extend(one.ids.message for one in page.decisions)
    assert found == wanted[: len(found)]
    assert (len(found) == len(wanted)) == (page.next_cursor is None)


async def test_a_plan_is_made_for_the_values_that_are_asked_for(database_url: str) -> None:
    engine = create_engine(database_url, role="classifier_reader", timeout=30)
    select = newest(SELECT_DECISIONS, DecisionQuery(tenant="acme", outcome="filtered"), 50, None)
    async with engine.connect() as connection:
        for _ in range(8):  # from the sixth on PostgreSQL would take one plan for all values
            await connection.execute(select)
        plans = await connection.execute(
            sa.text(
                "SELECT generic_plans, custom_plans FROM pg_prepared_statements "
                "WHERE statement LIKE '%FROM classifier.decisions%' AND parameter_types <> '{}'"
            )
        )
        assert [tuple(row) for row in plans] == [(0, 8)]
    await engine.dispose()
