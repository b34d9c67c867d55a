"""Fixtures that every folder shares: one PostgreSQL for the session, a fresh migrated database per test."""

from __future__ import annotations

from collections.abc import AsyncGenerator

import pytest

from tests.postgres import PostgresServer, running_postgres


@pytest.fixture(scope="session")
async def postgres_server() -> AsyncGenerator[PostgresServer]:
    """A running server, shared by all tests."""
    async with running_postgres() as server:
        yield server


@pytest.fixture
async def database_url(postgres_server: PostgresServer) -> AsyncGenerator[str]:
    """A fresh, migrated database of the test's own."""
    async with postgres_server.database() as url:
        yield url
