"""What `Classifier.evaluate` costs above a bare call, and above the vendor's SDK.

    python -m tests.bench.evaluate [--out DIR]

A server in another process answers at once with a fixed body; on Linux client and server get a core each.
Four clients take turns, one by one and 50 at once; medians over the rounds are printed, and written to
`DIR/evaluate.json`. Ratios travel between machines, rates do not. What a core could do is 1 over the CPU time
of a call, which neighbours on a busy machine disturb less than the rate.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, TypeAlias, cast

import aiohttp
import httpx
from httpx_aiohttp import AiohttpTransport
from typesafe_sdk import AsyncTypeSafeClient

from classifier.classifier import Classifier
from classifier.models.systemone import SystemOne
from classifier.models.systemone_codec import encode_questions
from classifier.questions import Boolean, Choice, Question, Score

BASE = "httpx over aiohttp, unchecked"
AT_ONCE = 50
CALLS = 2000
ROUNDS = 3
STATE = "The invoice was paid twice and nobody answers. " * 10
QUESTIONS: dict[str, Question] = {
    "unsafe": Boolean("Is the message unsafe?"),
    "route": Choice({"billing": "Invoices", "technical": "Faults", "sales": "Offers"}, "Who should take it?"),
    "urgency": Score(["can wait", "this week", "today"], "How urgent is it?"),
}
ANSWERS = {
    "unsafe": {"type": "noul", "noul": 0.02},
    "route": {
        "type": "choice",
        "choice": "billing",
        "confidence": 0.85,
        "probabilities": {"billing": 0.9, "technical": 0.06, "sales": 0.04},
    },
    "urgency": {
        "type": "score",
        "score": 1.6,
        "confidence": 0.5,
        "legend": {"0": "can wait", "1": "this week", "2": "today"},
        "probabilities": {"0": 0.1, "1": 0.2, "2": 0.7},
    },
}
BODY = {"model": "jev-1.13.0", "answers": ANSWERS, "usage": {"input_tokens": 120, "output_tokens": 12}}

Call: TypeAlias = Callable[[], Awaitable[object]]


class Instant(asyncio.Protocol):
    """Answers every POST with the same bytes."""

    def __init__(self) -> None:
        content = json.dumps(BODY).encode()
        head = f"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {len(content)}\r\n\r\n"
        self._answer = head.encode() + content
        self._received = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport: Any = transport

    def data_received(self, data: bytes) -> None:
        self._received += data
        head, end, body = self._received.partition(b"\r\n\r\n")
        if not end:
            return
        length = head.lower().partition(b"content-length:")[2].partition(b"\r\n")[0]
        if len(body) >= int(length):
            self._received = body[int(length) :]
            self._transport.write(self._answer)


async def serve() -> None:
    """Prints its port, and answers until it is stopped."""
    server = await asyncio.get_running_loop().create_server(Instant, "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


@dataclass(frozen=True, slots=True)
class Speed:
    """Calls a second as the clock saw them, and as many as a core to itself could make."""

    per_second: float
    per_core: float


async def speed(call: Call, at_once: int) -> Speed:
    """Measures one client."""
    count = CALLS if at_once > 1 else CALLS // 3

    async def worker() -> None:
        for _ in range(count // at_once):
            await call()

    await asyncio.gather(*(call() for _ in range(at_once)))
    started, used = time.perf_counter(), time.process_time()
    await asyncio.gather(*(worker() for _ in range(at_once)))
    made = count // at_once * at_once
    return Speed(made / (time.perf_counter() - started), made / (time.process_time() - used))


async def compare(url: str) -> dict[str, dict[str, Speed]]:
    """Speeds of the four clients, one by one and at once."""
    transport = AiohttpTransport(limits=httpx.Limits(max_connections=100, max_keepalive_connections=100))
    bare = httpx.AsyncClient(transport=transport, base_url=url)
    sdk: Any = AsyncTypeSafeClient(api_key="k" * 20, base_url=url, model="jev-latest", compression=False)
    model = SystemOne("jev-latest", base_url=url, api_key="k" * 20)
    classifier = Classifier("bench", model, QUESTIONS)
    questions = cast("dict[str, Any]", encode_questions(QUESTIONS))
    payload = {"model": "jev-latest", "state": STATE, "questions": questions}

    async def bare_call() -> object:
        return (await bare.post("/v1/systemone", json=payload)).json()

    connector = aiohttp.TCPConnector(limit=100)
    barest = aiohttp.ClientSession(connector=connector, cookie_jar=aiohttp.DummyCookieJar())

    async def barest_call() -> object:
        async with barest.post(f"{url}/v1/systemone", json=payload) as response:
            return await response.json()

    calls: dict[str, Call] = {
        "aiohttp, unchecked": barest_call,
        BASE: bare_call,
        "typesafe-sdk": lambda: sdk.system_one(STATE, questions),
        "Classifier.evaluate": lambda: classifier.evaluate(STATE),
    }
    found: dict[str, dict[str, list[Speed]]] = {name: {"1": [], str(AT_ONCE): []} for name in calls}
    for _ in range(ROUNDS):
        for name, call in calls.items():
            for at_once in (1, AT_ONCE):
                found[name][str(at_once)].append(await speed(call, at_once))
    await bare.aclose()
    await barest.close()
    await sdk.aclose()
    await model.aclose()
    return {name: {key: middle(each) for key, each in rounds.items()} for name, rounds in found.items()}


def middle(speeds: list[Speed]) -> Speed:
    """Medians."""
    rates, cores = zip(*((each.per_second, each.per_core) for each in speeds), strict=True)
    return Speed(statistics.median(rates), statistics.median(cores))


def report(speeds: dict[str, dict[str, Speed]]) -> dict[str, Any]:
    """Speeds with ratios to, and microseconds of CPU above, bare httpx over aiohttp."""
    base = speeds[BASE]
    for at_once, bare in base.items():
        print(f"{at_once} at once:")
        for name, each in speeds.items():
            own = each[at_once]
            above = (1 / own.per_core - 1 / bare.per_core) * 1e6
            print(
                f"  {name:30} {own.per_second:6.0f} a second {own.per_second / bare.per_second:6.2f}   "
                f"{own.per_core:6.0f} a core {own.per_core / bare.per_core:6.2f}   {above:+6.0f} us CPU"
            )
    found = {name: {key: asdict(speed) for key, speed in by_load.items()} for name, by_load in speeds.items()}
    return {"speeds": found, "rounds": ROUNDS, "calls": CALLS}


def main(arguments: list[str] | None = None) -> None:
    """Starts the server, measures, reports."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, help="folder for evaluate.json")
    parser.add_argument("--serve", action="store_true", help="be the server")
    options = parser.parse_args(arguments)
    cores = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []
    if options.serve:
        asyncio.run(serve())
        return
    command = [sys.executable, "-m", "tests.bench.evaluate", "--serve"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        port = int(server.stdout.readline())
        if len(cores) > 1:
            os.sched_setaffinity(server.pid, {cores[1]})
            os.sched_setaffinity(0, {cores[0]})
        try:
            found = report(asyncio.run(compare(f"http://127.0.0.1:{port}")))
        finally:
            server.kill()
    if options.out is not None:
        options.out.mkdir(parents=True, exist_ok=True)
        (options.out / "evaluate.json").write_text(json.dumps(found, indent=2) + "\n")


if __name__ == "__main__":
    main()
