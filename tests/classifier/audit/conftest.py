"""The two stores under one contract, and what reads the history."""

from __future__ import annotations

from collections.abc import AsyncGenerator

import pytest

from classifier.audit.history import History
from classifier.audit.memory import MemoryStore
from classifier.audit.postgres import PostgresStore
from classifier.audit.store import AuditStore
from tests.classifier.audit.examples import KEY
from tests.postgres import PostgresServer


@pytest.fixture
async def postgres_store(database_url: str) -> AsyncGenerator[PostgresStore]:
    store = PostgresStore(database_url, hash_key=KEY)
    yield store
    await store.aclose()


@pytest.fixture
async def history(database_url: str) -> AsyncGenerator[History]:
    async with History(database_url) as history:
        yield history


@pytest.fixture(params=["memory", "postgres"])
async def store(
    request: pytest.FixtureRequest, postgres_server: PostgresServer
) -> AsyncGenerator[AuditStore]:
    if request.param == "memory":
        yield MemoryStore()
        return
    async with postgres_server.database() as url:
        store = PostgresStore(url, hash_key=KEY)
        yield store
        await store.aclose()
