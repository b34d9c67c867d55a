"""Exports: what was written comes out whole, in every form, whatever it holds."""

from __future__ import annotations

import csv
import io
import json
import math
import uuid
from collections.abc import Mapping
from dataclasses import replace
from importlib import import_module
from typing import Any

import pytest
import sqlalchemy as sa
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from classifier.audit.engine import create_engine
from classifier.audit.export import FLAT, Exporter, Form, _next_size, header, strict
from classifier.audit.memory import MemoryStore
from classifier.audit.parquet import ParquetFile
from classifier.audit.postgres import PostgresStore
from classifier.audit.query import AnswerCondition, DecisionQuery
from classifier.decision import Branch, Decision, DecisionFailure, Ids
from classifier.decision_json import decision_from_json, decision_to_json
from classifier.result import Usage
from classifier.values import JSON
from tests.classifier.audit.examples import decision, decisions
from tests.classifier.audit.many import fill
from tests.classifier.audit.whole import ask

ALL = DecisionQuery(tenant="acme")


async def exported(url: str, form: Form = "jsonl", query: DecisionQuery = ALL) -> str:
    async with Exporter(url) as exporter:
        return header(form) + "".join([page.text async for page in exporter.pages(query, form)])


def comparable(body: Mapping[str, Any]) -> Mapping[str, JSON]:
    """Through JSON and without what JSON does not have."""
    return json.loads(json.dumps(strict(body), allow_nan=False))  # type: ignore[no-any-return] # JSON


@settings(
    max_examples=20,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(st.lists(decisions() | decisions("globex"), min_size=1, max_size=12))
async def test_lines_are_what_the_decisions_are_in_json_and_read_back_as_them(
    postgres_store: PostgresStore, database_url: str, written: list[Decision]
) -> None:
    written = [replace(one, decision_id=uuid.uuid4()) for one in written]
    ours = {str(one.decision_id) for one in written if one.tenant == "acme"}
    await postgres_store.record(written)
    text = await exported(database_url)
    lines: list[dict[str, Any]] = [json.loads(line, parse_constant=pytest.fail) for line in text.splitlines()]
    found = [line for line in lines if line["decision_id"] in ours]
    memory = MemoryStore()
    await memory.record(written)
    expected = [decision_to_json(one) for one in memory.matching(ALL)]
    assert [decision_from_json(line) for line in found] == [
        decision_from_json(comparable(body)) for body in expected
    ]
    for line, body in zip(found, expected, strict=True):
        assert line.keys() == body.keys()


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, 1e300, -1e16, 0.1, 5e-324, 2**70])
async def test_aud_o02_numbers_are_strict_json(
    postgres_store: PostgresStore, database_url: str, value: float
) -> None:
    one = decision(metadata={"n": value, "␛float": "x"}, state=[value, {"deep": [value]}])
    await postgres_store.record([one])
    line = json.loads(await exported(database_url), parse_constant=pytest.fail)
    wanted = (
        value if math.isfinite(value) else {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}[str(value)]
    )
    assert line["metadata"] == {"n": wanted, "␛float": "x"}
    assert line["state"] == [wanted, {"deep": [wanted]}]
    for form in ("csv", "flat"):
        [row] = await rows(database_url, form)
        assert json.loads(row["metadata"]) == line["metadata"]


async def rows(url: str, form: Form) -> list[dict[str, Any]]:
    text = await exported(url, form)
    if form == "csv":
        return list(csv.DictReader(io.StringIO(text)))
    return [json.loads(line) for line in text.splitlines()]


@pytest.mark.parametrize("form", ["csv", "flat"])
async def test_a_flat_row_holds_every_column_and_json_as_text(
    postgres_store: PostgresStore, database_url: str, form: Form
) -> None:
    one = decision(
        state='he said: "no",\nand left\r\n\t\\x',
        ids=Ids(thread="t\0", resource="ann ␛ \ud800"),
        failure=DecisionFailure("MODEL_TIMEOUT", ""),
        branch=Branch("review", None, ("low", "late")),
        original="",
    )
    await postgres_store.record([one])
    [row] = await rows(database_url, form)
    assert list(row) == list(FLAT)
    assert row["state"] == one.state
    assert (row["thread_id"], row["resource_id"]) == ("t\ufffd", "ann ␛ \ufffd")
    assert json.loads(row["branch_reasons"]) == ["low", "late"]
    assert json.loads(row["answers"])["topic"]["choice"] == "billing"
    assert row["branch_route"] == ("" if form == "csv" else None)
    assert row["decision_id"] == str(one.decision_id)


@pytest.mark.parametrize("state", ["=HYPERLINK(1)", "+1", "-1", "@x", "\t=1", "\r=1"])
async def test_a_spreadsheet_runs_nothing_that_somebody_wrote(
    postgres_store: PostgresStore, database_url: str, state: str
) -> None:
    await postgres_store.record([decision(state=state)])
    [row] = await rows(database_url, "csv")
    assert row["state"] == f"'{state}"
    [row] = await rows(database_url, "flat")
    assert row["state"] == state


async def test_erased_content_is_exported_as_nothing(
    postgres_store: PostgresStore, database_url: str
) -> None:
    one = decision(request_context={"a": 1})
    await postgres_store.record([one])
    await ask(database_url, "DELETE FROM classifier.decision_contents RETURNING 1")
    erased = decision_from_json(json.loads(await exported(database_url)))
    assert erased == replace(one, state="", request_context={})


async def test_every_decision_comes_once_in_the_order_of_a_list(database_url: str) -> None:
    await fill(database_url, "acme", 1500)
    await fill(database_url, "globex", 10)
    lines = [json.loads(line) for line in (await exported(database_url)).splitlines()]
    assert len({line["decision_id"] for line in lines}) == len(lines) == 1500
    times = [line["decided_at"] for line in lines]
    assert times == sorted(times, reverse=True)
    assert {line["coordinates"]["tenant"] for line in lines} == {"acme"}


def test_pages_grow_to_a_limit_and_shrink_where_texts_are_long() -> None:
    assert _next_size(250, 100_000) == 1000
    assert _next_size(4000, 1_000_000) == 5000
    assert _next_size(5000, 160_000_000) == 500
    assert _next_size(1, 10**9) == 1


@pytest.mark.long
async def test_texts_of_more_than_postgresql_puts_into_one_are_exported(database_url: str) -> None:
    length, count = 5_000_000, 220  # a gigabyte, which the first page would take at once
    await fill(database_url, "acme", count)
    engine = create_engine(database_url, role="classifier_maintenance", timeout=120)
    async with engine.begin() as connection:
        long = sa.text("UPDATE classifier.decision_contents SET state = repeat('x', :length)")
        await connection.execute(
            long.bindparams(sa.bindparam("length", type_=sa.Integer)), {"length": length}
        )
    await engine.dispose()
    sizes: list[tuple[int, int]] = []
    async with Exporter(database_url, timeout=120) as exporter:
        async for page in exporter.pages(ALL, "jsonl"):
            sizes.append((page.count, len(page.text)))
            if len(sizes) == 3:
                break
    assert [size for size, _ in sizes] == [15, 3, 3]
    assert all(length * size < characters < (length + 5000) * size for size, characters in sizes)


async def test_an_export_left_early_leaves_no_connection_busy(database_url: str) -> None:
    await fill(database_url, "acme", 600)
    async with Exporter(database_url, pool_size=1) as exporter:
        pages = exporter.pages(ALL, "jsonl")
        assert (await anext(pages)).count == 250
        await pages.aclose()
        assert await exporter.count(ALL) == 600


async def test_filters_hold_for_an_export(postgres_store: PostgresStore, database_url: str) -> None:
    await postgres_store.record([decision("a"), decision("b", answers={}), decision("c", tenant="globex")])
    billing = DecisionQuery(tenant="acme", answers=(AnswerCondition.parse("topic = billing"),))
    [line] = (await exported(database_url, "jsonl", billing)).splitlines()
    assert decision_from_json(json.loads(line)) == decision("a")
    async with Exporter(database_url) as exporter:
        assert await exporter.count(billing) == 1


@pytest.mark.parametrize("form", ["jsonl", "csv", "flat"])
async def test_sec_o05_no_export_crosses_tenants(
    postgres_store: PostgresStore, database_url: str, form: Form
) -> None:
    await postgres_store.record([decision(tenant="globex", ids=Ids(thread="t-1"))])
    for query in (ALL, DecisionQuery(tenant="acme", thread="t-1")):
        assert await exported(database_url, form, query) == header(form)
        async with Exporter(database_url) as exporter:
            assert await exporter.count(query) == 0


async def test_parquet_holds_every_value_with_its_type(
    postgres_store: PostgresStore, database_url: str
) -> None:
    odd = replace(decision("odd"), state="a\0b ␛ \ud800", duration_ms=math.inf, metadata={"n": math.nan})
    plain = decision("plain", state={"text": "=x"}, usage=Usage(7, None, 0.25), request_context={"a": [1]})
    await postgres_store.record([odd, plain])
    file = io.BytesIO()
    async with Exporter(database_url) as exporter:
        with ParquetFile(file) as parquet:
            async for page in exporter.pages(ALL, "flat"):
                parquet.write(page)
    table: Any = import_module("pyarrow.parquet").read_table(file)
    assert table.column_names == list(FLAT)
    found = {row["workflow_id"]: row for row in table.to_pylist()}
    assert found["odd"]["state"] == "a\ufffdb ␛ \ufffd"
    assert found["odd"]["duration_ms"] is None
    assert json.loads(found["odd"]["metadata"]) == {"n": "NaN"}
    row = found["plain"]
    assert row["decision_id"] == str(plain.decision_id)
    assert row["decided_at"] == plain.decided_at
    assert (row["input_tokens"], row["output_tokens"], row["cost"]) == (7, None, 0.25)
    assert json.loads(row["state"]) == {"text": "=x"}
    assert (row["state_is_json"], row["refused"]) == (True, False)
    assert json.loads(row["request_context"]) == {"a": [1]}


async def test_parquet_of_nothing_is_a_table_without_rows(database_url: str) -> None:
    file = io.BytesIO()
    with ParquetFile(file):
        pass
    table: Any = import_module("pyarrow.parquet").read_table(file)
    assert (table.num_rows, table.column_names) == (0, list(FLAT))
