"""From a user's stop of a run to the model's server seeing its request closed.

    python -m tests.bench.stop [--tries N] [--out FOLDER]

Twenty guarded runs, one after another, over a model that never answers.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import statistics
import tempfile
import time
from pathlib import Path

from temporalio.client import Client, WorkflowFailureError

from classifier.audit.memory import MemoryStore
from embedded.stack import Stack
from tests.classifier.temporal.chats import given, guarding, over_http
from tests.classifier.temporal.project.worker import worker
from tests.servers import Hang, Server

AIM = 1.0


async def measure(tries: int) -> list[float]:
    """Seconds of each try."""
    with tempfile.TemporaryDirectory(prefix="classifier-bench-", ignore_cleanup_errors=True) as folder:
        async with Stack(Path(folder) / "home", database=False) as stack:
            client = await Client.connect(stack.addresses.temporal_address or "")
            async with (
                Server(lambda call: Hang()) as server,
                worker(client, over_http(server), MemoryStore(), "bench"),
            ):
                return [await _try(client, server) for _ in range(tries)]


async def _try(client: Client, server: Server) -> float:
    server.asked.clear()
    server.left.clear()
    handle = await guarding(client, "bench", given("hello"))
    await server.asked.wait()
    began = time.monotonic()
    await handle.cancel()
    await server.left.wait()
    closed = time.monotonic() - began
    with contextlib.suppress(WorkflowFailureError):
        await handle.result()
    return closed


def main() -> None:
    """Prints the figures and writes them where asked."""
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--tries", type=int, default=20)
    arguments.add_argument("--out", type=Path)
    given_arguments = arguments.parse_args()
    seconds = asyncio.run(measure(given_arguments.tries))
    found = {"median": statistics.median(seconds), "longest": max(seconds), "seconds": seconds}
    print(f"from the stop to the closed request: median {found['median']:.2f} s", end=", ")
    print(f"longest {found['longest']:.2f} s of {len(seconds)} (aim {AIM} s)")
    if given_arguments.out is not None:
        given_arguments.out.mkdir(parents=True, exist_ok=True)
        (given_arguments.out / "stop.json").write_text(json.dumps(found, indent=2), encoding="utf-8")


if __name__ == "__main__":
    main()
