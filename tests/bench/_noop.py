"""The yardstick: workflows that do nothing, on the same stack, with the same worker settings."""

from __future__ import annotations

import asyncio
import tempfile
import time
from pathlib import Path

from temporalio.client import Client
from temporalio.worker import Worker

from embedded.stack import Stack
from tests.bench._noop_workflow import NoopWorkflow, nothing

QUEUE = "bench"
AT_ONCE = 100


async def noop_rate(count: int) -> float:
    """Workflows a second, one no-op activity each, nothing decided and nothing recorded."""
    with tempfile.TemporaryDirectory(prefix="classifier-bench-", ignore_cleanup_errors=True) as folder:
        async with Stack(Path(folder) / "home", database=False) as stack:
            client = await Client.connect(stack.addresses.temporal_address or "")
            async with Worker(client, task_queue=QUEUE, workflows=[NoopWorkflow], activities=[nothing]):
                await _run(client, "warm", AT_ONCE)
                began = time.monotonic()
                await _run(client, "run", count)
                return count / (time.monotonic() - began)


async def _run(client: Client, name: str, count: int) -> None:
    slots = asyncio.Semaphore(AT_ONCE)

    async def one(number: int) -> None:
        async with slots:
            await client.execute_workflow(NoopWorkflow.run, id=f"{name}-{number}", task_queue=QUEUE)

    await asyncio.gather(*(one(number) for number in range(count)))
