"""AUD-O10: what people ask often is answered from indexes, under row-level security."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import Any

import pytest
import sqlalchemy as sa
from sqlalchemy.dialects import postgresql

from classifier.audit.arrivals import select_arrived, select_last
from classifier.audit.chain import Place
from classifier.audit.engine import create_engine, set_tenant
from classifier.audit.export import select_lines
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
    found = await plan_of(filled, "large", select_lines(DecisionQuery(tenant="large"), "jsonl", 500))
    assert read_whole(found) == []
    assert touched(found) <= 1500
