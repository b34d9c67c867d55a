"""A client, and a queue per test."""

from __future__ import annotations

import uuid

import pytest
from temporalio.client import Client


@pytest.fixture(scope="session")
async def client(temporal_address: str) -> Client:
    return await Client.connect(temporal_address)


@pytest.fixture
def queue() -> str:
    return f"queue-{uuid.uuid4()}"
