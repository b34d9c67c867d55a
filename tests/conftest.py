"""What every folder shares: one PostgreSQL, one Temporal; per test a migrated database and a task queue."""

from __future__ import annotations

import gc
import os
import shutil
import tempfile
import uuid
from collections.abc import AsyncGenerator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from temporalio.client import Client

from embedded.stack import Stack
from tests.postgres import PostgresServer, running_postgres
from tests.tree import NOBODYS_CA

ENOUGH = 8e9
"""Bytes of memory that servers and their files may need."""
MEMORY = Path("/dev/shm")
if MEMORY.is_dir() and shutil.disk_usage(MEMORY).free > ENOUGH:
    tempfile.tempdir = str(MEMORY)  # a database is made and dropped in a tenth of the time there

# Each client would read 150 certificates, for 50 ms.
os.environ["SSL_CERT_FILE"] = NOBODYS_CA

settings.register_profile(
    "busy machine", suppress_health_check=[HealthCheck.too_slow], deadline=None, max_examples=50
)
settings.register_profile("thorough", settings.get_profile("busy machine"), max_examples=1000)
settings.load_profile("busy machine")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Files with slow tests come first, so that no process is left alone with one at the end."""
    slow = {item.path for item in items if item.get_closest_marker("slow")}
    items.sort(key=lambda item: item.path not in slow)


def pytest_collection_finish() -> None:
    """What is loaded by now stays; going through it again and again would be a fourteenth of all work."""
    gc.collect()
    gc.freeze()


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


@pytest.fixture(scope="session")
async def temporal_address() -> AsyncGenerator[str]:
    """The address of a Temporal dev server, shared by all tests; each takes a task queue of its own."""
    home = Path(tempfile.mkdtemp(prefix="classifier-tests-"))
    try:
        async with Stack(home, database=False) as stack:
            assert stack.addresses.temporal_address is not None
            yield stack.addresses.temporal_address
    finally:
        shutil.rmtree(home, ignore_errors=True)


@pytest.fixture(scope="session")
async def client(temporal_address: str) -> Client:
    """A client of that server."""
    return await Client.connect(temporal_address)


@pytest.fixture
def queue() -> str:
    """A task queue of the test's own."""
    return f"queue-{uuid.uuid4()}"
