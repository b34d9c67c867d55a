"""SEC-O05: whatever is asked for one tenant, by whichever read, nothing of another comes out."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from dataclasses import fields, replace
from typing import Any

import pytest

from classifier.answers import Refusal
from classifier.audit.export import Exporter
from classifier.audit.history import History
from classifier.audit.postgres import PostgresStore
from classifier.audit.query import AnswerCondition, DecisionQuery
from classifier.audit.statistics import Statistics
from classifier.decision import Branch, Decision, Ids
from classifier.result import Truncation
from tests.classifier.audit.examples import KEY, NOW, decision
from tests.postgres import PostgresServer

THEIRS = replace(
    decision(tenant="globex"),
    processor_id="guard",
    playbook_id="tickets",
    branch=Branch("review", "billing", ("low",)),
    ids=Ids("t-1", "p-1", "m-1", "tr-1"),
    resolved_model="jev",
    truncation=Truncation(9, 5, "processor"),
)
REFUSED = replace(THEIRS, decision_id=THEIRS.coordinates.decision_id(1), answers={"topic": Refusal()})
FILTERS: dict[str, Any] = {
    "since": NOW,
    "until": NOW.replace(year=NOW.year + 1, day=1),
    "processor": "guard",
    "classifier": "tickets",
    "playbook": "tickets",
    "phase": "step",
    "mode": "enforce",
    "outcome": "allowed",
    "thread": "t-1",
    "resource": "p-1",
    "message": "m-1",
    "trace": "tr-1",
    "workflow": "w",
    "run": "run",
    "model": "jev",
    "action": "review",
    "route": "billing",
    "answers": (AnswerCondition.parse("topic = billing"),),
    "refused": True,
    "failed": False,
    "truncated": True,
    "reason": "low",
}


@pytest.fixture(scope="module")
async def url(postgres_server: PostgresServer) -> AsyncGenerator[str]:
    async with postgres_server.database() as url:
        store = PostgresStore(url, hash_key=KEY)
        await store.record([THEIRS, REFUSED])
        await store.aclose()
        yield url


def test_every_filter_is_tried() -> None:
    assert set(FILTERS) == {field.name for field in fields(DecisionQuery)} - {"tenant"}


@pytest.mark.parametrize("name", sorted(FILTERS))
async def test_sec_o05_every_read_with_every_filter_stays_with_its_tenant(url: str, name: str) -> None:
    query = DecisionQuery(tenant="globex", **{name: FILTERS[name]})
    assert await found(url, query) != []
    assert await found(url, replace(query, tenant="acme")) == []


async def found(url: str, query: DecisionQuery) -> list[Any]:
    """Whatever any read gives for a query."""
    async with History(url) as history, Statistics(url) as statistics, Exporter(url) as exporter:
        decisions: list[Decision] = [
            *(await history.page(query)).decisions,
            *(await history.arrived(query)).decisions,
        ]
        return [
            *decisions,
            *await history.counts(query),
            *await statistics.volumes(query),
            *await statistics.health(query),
            *await statistics.spendings(query),
            *[page async for page in exporter.pages(query, "jsonl")],
            *[page async for page in exporter.pages(query, "csv")],
            *[page async for page in exporter.pages(query, "flat")],
            *range(await exporter.count(query)),
        ]
