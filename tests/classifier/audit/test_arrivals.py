"""The order of arrival: rows of transactions that are still open, and records that are late."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncGenerator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from datetime import timedelta

import pytest
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from classifier.audit.chain import Place
from classifier.audit.engine import create_engine, set_tenant
from classifier.audit.history import History
from classifier.audit.inserts import INSERT_DECISIONS, parameters
from classifier.audit.partitions import ensure_partitions
from classifier.audit.postgres import PostgresStore
from classifier.audit.query import AnswerCondition, DecisionQuery
from classifier.audit.rows import rows_of
from classifier.decision import Coordinates, Decision
from classifier.errors import StoreError
from tests.classifier.audit.examples import KEY, NOW, decision
from tests.classifier.audit.test_postgres import LONG_AGO
from tests.classifier.audit.whole import ask

ALL = DecisionQuery(tenant="acme")


@pytest.fixture
async def writers(database_url: str) -> AsyncGenerator[AsyncEngine]:
    engine = create_engine(database_url, role="classifier_writer", timeout=10, pool_size=8)
    yield engine
    await engine.dispose()


@asynccontextmanager
async def open_transaction(writers: AsyncEngine, *decisions: Decision) -> AsyncGenerator[AsyncConnection]:
    """A transaction that has written and is not committed; it rolls back unless the test commits it."""
    async with writers.connect() as connection:
        await write(connection, *decisions)
        yield connection


async def write(connection: AsyncConnection, *decisions: Decision) -> None:
    for one in decisions:
        await set_tenant(connection, one.tenant)
        await connection.execute(INSERT_DECISIONS, parameters([rows_of(one, KEY)]))


class Follower:
    """What `tail` does: asks again and again from where it was."""

    def __init__(self, history: History, query: DecisionQuery = ALL, limit: int = 1000) -> None:
        self._history = history
        self._query = query
        self._limit = limit
        self.position: Place | None = None
        self.seen: list[Decision] = []

    async def look(self) -> list[str]:
        """The names of what is new."""
        new: list[Decision] = []
        more = True
        while more:
            arrived = await self._history.arrived(self._query, self.position, self._limit)
            self.position, more = arrived.position, arrived.more
            new.extend(arrived.decisions)
        self.seen.extend(new)
        return names(new)

    async def comes(self, count: int) -> list[str]:
        """The names of what is new, once there is so much; the server's own housekeeping holds it up."""
        new = await self.look()
        async with asyncio.timeout(30):
            while len(new) < count:
                new += await self.look()
        return new


def names(decisions: Sequence[Decision]) -> list[str]:
    return [one.coordinates.workflow_id for one in decisions]


async def test_a_row_that_commits_late_is_not_missed(
    writers: AsyncEngine, postgres_store: PostgresStore, history: History
) -> None:
    follower = Follower(history)
    async with open_transaction(writers, decision("slow")) as slow:
        await postgres_store.record([decision("fast")])
        assert await follower.look() == []
        await slow.commit()
    assert await follower.comes(2) == ["slow", "fast"]
    assert await follower.look() == []


async def test_a_row_that_is_given_up_holds_nobody_back(
    writers: AsyncEngine, postgres_store: PostgresStore, history: History
) -> None:
    follower = Follower(history)
    async with open_transaction(writers, decision("given up")):
        await postgres_store.record([decision("kept")])
        assert await follower.look() == []
    assert await follower.comes(1) == ["kept"]


async def test_what_is_below_the_oldest_open_transaction_comes_at_once(
    writers: AsyncEngine, postgres_store: PostgresStore, history: History
) -> None:
    follower = Follower(history)
    await postgres_store.record([decision("before")])
    async with open_transaction(writers, decision("open")):
        await postgres_store.record([decision("after")])
        assert await follower.comes(1) == ["before"]
        assert await follower.look() == []


async def test_a_decision_recorded_long_after_its_time_comes_when_it_arrives(
    postgres_store: PostgresStore, history: History, database_url: str
) -> None:
    follower = Follower(history)
    await postgres_store.record([decision("today")])
    assert await follower.comes(1) == ["today"]
    late = [
        decision("last week", decided_at=NOW - timedelta(days=7)),
        decision("2001", decided_at=LONG_AGO),
    ]
    await postgres_store.record(late)
    assert await follower.comes(1) == ["last week"]
    await ensure_partitions(database_url)
    assert await follower.comes(1) == ["2001"]


async def test_rows_of_one_transaction_come_in_the_order_they_were_written(
    writers: AsyncEngine, history: History
) -> None:
    written = [decision(f"w{number}") for number in range(25)]
    async with open_transaction(writers, *written) as transaction:
        await transaction.commit()
    follower = Follower(history, limit=10)
    assert await follower.comes(25) == names(written)


@pytest.mark.parametrize("seed", range(6))
async def test_however_transactions_interleave_every_row_comes_once(
    writers: AsyncEngine, history: History, seed: int
) -> None:
    choose = random.Random(seed)
    follower = Follower(history, limit=choose.choice([1, 3, 1000]))
    others = Follower(history, DecisionQuery(tenant="globex"))
    committed: set[str] = set()
    async with AsyncExitStack() as exits:
        transactions: list[tuple[AsyncConnection, list[str]]] = []
        for number in range(60):
            name = f"w{number}"
            match choose.randrange(6):
                case 0 | 1 if len(transactions) < 6:
                    opened = open_transaction(writers, decision(name))
                    transactions.append((await exits.enter_async_context(opened), [name]))
                case 2 | 3 if transactions:
                    connection, written = choose.choice(transactions)
                    await write(connection, decision(name), decision(name, tenant="globex"))
                    written.append(name)
                case 4 if transactions:
                    connection, written = transactions.pop(choose.randrange(len(transactions)))
                    if choose.random() < 0.8:
                        await connection.commit()
                        committed.update(written)
                    await connection.close()
                case _:
                    await follower.look()
                    await others.look()
    await follower.comes(len(committed) - len(follower.seen))
    await others.look()
    assert sorted(names(follower.seen)) == sorted(committed)
    assert len(others.seen) == len(set(names(others.seen)))
    assert set(names(others.seen)) <= committed
    assert {one.tenant for one in others.seen} <= {"globex"}


async def test_what_is_not_asked_for_is_passed_over_and_not_looked_at_again(
    postgres_store: PostgresStore, history: History
) -> None:
    follower = Follower(history, DecisionQuery(tenant="acme", outcome="aborted"))
    await postgres_store.record([decision("a")])
    assert await follower.look() == []
    async with asyncio.timeout(30):
        while (passed := follower.position) is None:
            assert await follower.look() == []
    assert passed == await history.last_arrival("acme")
    await postgres_store.record([decision("b", outcome="aborted"), decision("c")])
    assert await follower.comes(1) == ["b"]
    assert follower.position is not None
    assert follower.position > passed


async def test_following_takes_the_filters_of_a_list(postgres_store: PostgresStore, history: History) -> None:
    await postgres_store.record([decision("a"), decision("b", answers={})])
    billing = DecisionQuery(tenant="acme", answers=(AnswerCondition.parse("topic = billing"),))
    follower = Follower(history, billing)
    assert await follower.comes(1) == ["a"]
    assert follower.seen == [decision("a")]


async def test_sec_o05_following_does_not_cross_tenants(
    postgres_store: PostgresStore, history: History
) -> None:
    at = Coordinates("globex", "default", "theirs", "run", "1")
    theirs = replace(decision("theirs"), coordinates=at, decision_id=at.decision_id(0))
    await postgres_store.record([theirs])
    assert await history.last_arrival("acme") is None
    assert (await history.arrived(ALL, Place(0, 0))).decisions == ()
    assert (await history.arrived(ALL)).decisions == ()
    await postgres_store.record([decision("ours")])
    assert await Follower(history).comes(1) == ["ours"]
    assert await Follower(history, DecisionQuery(tenant="globex")).comes(1) == ["theirs"]


async def test_a_history_restored_from_another_server_says_so(
    postgres_store: PostgresStore, history: History, database_url: str
) -> None:
    await postgres_store.record([decision()])
    far = "UPDATE classifier.decisions SET transaction_id = 4611686018427387904 RETURNING 1"
    assert await ask(database_url, far) == 1
    with pytest.raises(StoreError, match="restored from another server"):
        await history.arrived(ALL)
