"""Events over HTTP against bare `start_workflow` calls, on the same servers in the same run, no worker.

    python -m tests.bench.events [--events N] [--rounds N] [--out FOLDER]

Both start one workflow per event and have the same number under way; the rounds take turns. What HTTP adds is
the service's own process: reading, checking, the look-up and the note in PostgreSQL.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import re
import statistics
import sys
import tempfile
import time
import uuid
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import httpx
import psutil
from httpx_aiohttp import AiohttpTransport
from temporalio.client import Client

from embedded.stack import Stack
from workflows.messages import TRIAGE, TriageRequest

AT_ONCE = 48
TOKEN = "bench-token-0123456789"
QUEUE = "bench-events"


def event(number: int) -> dict[str, Any]:
    """A ticket."""
    text = f"My card payment {number} was declined and I do not know why. Can you help?"
    return {"specversion": "1.0", "id": str(uuid.uuid4()), "source": "/bench", "type": "ticket", "data": text}


async def timed(count: int, one: Callable[[int], Awaitable[None]]) -> tuple[float, list[float]]:
    """Calls a second, and the seconds that each took."""
    numbers = iter(range(count))
    took: list[float] = []

    async def work() -> None:
        for number in numbers:
            began = time.perf_counter()
            await one(number)
            took.append(time.perf_counter() - began)

    began = time.perf_counter()
    await asyncio.gather(*(work() for _ in range(AT_ONCE)))
    return count / (time.perf_counter() - began), took


async def measure(events: int, rounds: int) -> dict[str, Any]:
    """Rounds of both, in turn, on a fresh stack."""
    with tempfile.TemporaryDirectory(prefix="classifier-bench-", ignore_cleanup_errors=True) as folder:
        Path(folder).chmod(0o711)
        async with Stack(Path(folder)) as stack:
            addresses = stack.addresses
            assert addresses.temporal_address is not None
            assert addresses.database_url is not None
            client = await Client.connect(addresses.temporal_address)
            environ = {
                **os.environ,
                "CLASSIFIER_HOME": f"{folder}/serve",
                "CLASSIFIER_HASH_KEY": "only-for-benchmarks",
                "CLASSIFIER_TASK_QUEUE": QUEUE,
                "CLASSIFIER_TOKENS": f"bench:{TOKEN}",
                "CLASSIFIER_TENANT_RATE": "1000000",
                "CLASSIFIER_BACKLOG": "1000000",
                "TEMPORAL_ADDRESS": addresses.temporal_address,
                "DATABASE_URL": addresses.database_url,
            }
            await _run("migrate", environ)
            process, url = await _serve(environ)
            try:
                service = psutil.Process(process.pid)
                return await _rounds(client, url, service, events, rounds)
            finally:
                process.terminate()
                await process.wait()


async def _rounds(
    client: Client, url: str, service: psutil.Process, events: int, rounds: int
) -> dict[str, Any]:
    async def bare(number: int) -> None:
        request = TriageRequest(event(number), "tickets", "bench", {"tenant_id": "bench"})
        await client.start_workflow(TRIAGE, request, id=str(uuid.uuid4()), task_queue=QUEUE)

    headers = {"authorization": f"Bearer {TOKEN}", "content-type": "application/cloudevents+json"}
    async with httpx.AsyncClient(transport=AiohttpTransport(), headers=headers, timeout=60) as http:

        async def over_http(number: int) -> None:
            response = await http.post(f"{url}/events", content=json.dumps(event(number)).encode())
            assert response.status_code == 202, response.text

        for warm in (bare, over_http):
            await timed(AT_ONCE * 2, warm)
        rates: dict[str, list[float]] = {"bare": [], "http": []}
        took: list[float] = []
        spent = sum(service.cpu_times()[:2])
        for _ in range(rounds):
            rates["bare"].append((await timed(events, bare))[0])
            rate, seconds = await timed(events, over_http)
            rates["http"].append(rate)
            took += seconds
        spent = sum(service.cpu_times()[:2]) - spent
    bare_rate, http_rate = (statistics.median(rates[name]) for name in ("bare", "http"))
    return {
        "start_workflow_per_second": round(bare_rate, 1),
        "http_per_second": round(http_rate, 1),
        "ratio": round(http_rate / bare_rate, 2),
        "at_once": AT_ONCE,
        "acceptance_ms": {
            "median": round(1000 * statistics.median(took), 1),
            "p95": round(1000 * statistics.quantiles(took, n=20)[-1], 1),
        },
        "service_cpu_ms": round(1000 * spent / (events * rounds), 2),
        "rounds": {name: [round(rate, 1) for rate in found] for name, found in rates.items()},
    }


async def _run(command: str, environ: dict[str, str]) -> None:
    process = await asyncio.create_subprocess_exec(sys.executable, "-m", "cli", command, env=environ)
    if await process.wait() != 0:
        raise SystemExit(f"classifier {command} failed")


async def _serve(environ: dict[str, str]) -> tuple[asyncio.subprocess.Process, str]:
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "cli", "serve", "--port", "0", env=environ, stderr=asyncio.subprocess.PIPE
    )
    assert process.stderr is not None
    said = ""
    while "stop with" not in said:
        line = await process.stderr.readline()
        if not line:
            raise SystemExit(f"classifier serve ended: {said}")
        said += line.decode()
    found = re.search(r"takes events at (\S+)/events", said)
    assert found is not None
    return process, found[1]


def main() -> None:
    """Prints the figures and writes them where asked."""
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--events", type=int, default=1_000)
    arguments.add_argument("--rounds", type=int, default=3)
    arguments.add_argument("--out", type=Path)
    given = arguments.parse_args()
    found = asyncio.run(measure(given.events, given.rounds))
    print(
        f"{found['ratio']:.2f} x bare start_workflow, "
        f"which reaches {found['start_workflow_per_second']}/s here"
    )
    took = found["acceptance_ms"]
    print(f"accepted over HTTP: {found['http_per_second']}/s with {AT_ONCE} at once")
    print(f"CPU of the service: {found['service_cpu_ms']} ms an event")
    print(f"acceptance: median {took['median']} ms, p95 {took['p95']} ms")
    if given.out is not None:
        given.out.mkdir(parents=True, exist_ok=True)
        (given.out / "events.json").write_text(json.dumps(found, indent=2), encoding="utf-8")


if __name__ == "__main__":
    main()
