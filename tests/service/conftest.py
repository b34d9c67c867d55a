"""A house per test, with a queue and a database of its own; and one for all who are turned away."""

from __future__ import annotations

import uuid
from collections.abc import AsyncGenerator
from pathlib import Path

import pytest
from temporalio.client import Client

from tests.postgres import PostgresServer
from tests.service.house import House, house


@pytest.fixture
async def desk(client: Client, queue: str, tmp_path: Path, database_url: str) -> AsyncGenerator[House]:
    async with house(client, queue, tmp_path, database_url) as running:
        yield running


@pytest.fixture(scope="session")
async def door(
    temporal_address: str, postgres_server: PostgresServer, tmp_path_factory: pytest.TempPathFactory
) -> AsyncGenerator[House]:
    """A house that nobody works in, for all who are turned away at its door."""
    client = await Client.connect(temporal_address)
    home = tmp_path_factory.mktemp("door")
    async with (
        postgres_server.database() as url,
        house(client, f"queue-{uuid.uuid4()}", home, url, works=False) as running,
    ):
        yield running
