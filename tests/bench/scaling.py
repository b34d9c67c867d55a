"""How cost grows: 1, 2, 4 and 8 processors on one message, and 10², 10³ and 10⁴ events through triage.

    python -m tests.bench.scaling [--minutes M] [--out FOLDER]

The model is scripted, so that what is measured is this project: plain asyncio with records in memory, then
one durable workflow each, and triage from start to delivery, with Temporal's dev server and PostgreSQL.
Every processor asks a model of its own, since those that can share a request would. Figures are milliseconds
of CPU, of all processes together, for one message or event; ratios are to the smallest. A size that would not
fit into the minutes, by the speed of the one before, is left out and said to be.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

from temporalio.client import Client
from temporalio.worker import Worker

from classifier.answers import BooleanAnswer
from classifier.app import App
from classifier.audit.memory import MemoryStore
from classifier.audit.postgres import PostgresStore
from classifier.audit.schema import upgrade
from classifier.classifier import Classifier
from classifier.engine import run_messages
from classifier.messages import Message
from classifier.models.scripted import ScriptedModel
from classifier.policy import PolicyContext
from classifier.processor import ClassifierProcessor
from classifier.questions import Boolean, Questions
from classifier.temporal.plugin import ClassifierPlugin
from classifier.testing import memory_ports
from classifier.verdict import Run
from embedded.stack import Stack
from tests.bench._scaling_workflows import Guarded
from tests.bench.durable import cpu
from tests.workflows.tickets import always, app, event, says, start, triaging

PROCESSORS = (1, 2, 4, 8)
EVENTS = (100, 1_000, 10_000)
PLAIN, DURABLE = 300, 100
AT_ONCE = 50
MINUTES = 5.0
KEY = b"a key for benchmarks, long enough"
TEXT = "The invoice was paid twice and nobody answers. " * 10


class Looks(Questions):
    """What each processor asks."""

    unsafe = Boolean("Is it unsafe?")


@dataclass(frozen=True, slots=True)
class Cost:
    """What one message or event takes."""

    size: int
    cpu_ms: float
    per_second: float


def abort_unsafe(answers: Looks, context: PolicyContext[Looks]) -> None:
    """A policy."""
    if answers.unsafe.at_least(0.9, unsure=False):
        context.abort("unsafe")


def processor(number: int) -> ClassifierProcessor[Looks]:
    """One with a model of its own."""
    model = ScriptedModel(lambda request: {name: BooleanAnswer(0.1) for name in request.questions})
    classifier = Classifier(f"looks-{number}", model, Looks)
    return ClassifierProcessor(classifier=classifier, id=f"guard-{number}", on_result=abort_unsafe)


async def spent(work: Callable[[int], Awaitable[object]], count: int, size: int) -> Cost:
    """What each of `count` pieces of work takes, so many at once."""
    slots = asyncio.Semaphore(AT_ONCE)

    async def one(number: int) -> None:
        async with slots:
            await work(number)

    began, used = time.monotonic(), cpu()
    await asyncio.gather(*map(one, range(count)))
    return Cost(size, (cpu() - used) * 1000 / count, count / (time.monotonic() - began))


async def plain(guards: list[ClassifierProcessor[Looks]]) -> list[Cost]:
    """Processors in plain asyncio."""

    async def judge(count: int, number: int) -> None:
        run = Run.here(str(number))
        ports = memory_ports(MemoryStore(), run)
        verdict = await run_messages(guards[:count], [Message(TEXT)], phase="input", run=run, ports=ports)
        assert verdict.outcome == "allowed"

    await spent(partial(judge, 1), 20, 1)
    return [await spent(partial(judge, count), PLAIN, count) for count in PROCESSORS]


async def durable(
    client: Client, store: PostgresStore, guards: list[ClassifierProcessor[Looks]]
) -> list[Cost]:
    """Processors in one workflow for each message, recorded."""
    resolved = App(processors=guards).resolve({})
    names = [f"guard-{number}" for number in range(len(guards))]

    async def judge(count: int, label: str, number: int) -> None:
        name = f"{label}-{count}-{number}"
        given = [TEXT, names[:count]]
        outcome = await client.execute_workflow(Guarded.run, args=given, id=name, task_queue="guarded")
        assert outcome == "allowed"

    async with Worker(
        client, task_queue="guarded", workflows=[Guarded], plugins=[ClassifierPlugin(resolved, store)]
    ):
        await spent(partial(judge, 1, "warm"), 20, 1)
        return [await spent(partial(judge, count, "run"), DURABLE, count) for count in PROCESSORS]


async def triaged(client: Client, store: PostgresStore, home: Path, ends: float) -> list[Cost]:
    """Events from start to delivery, as many sizes as fit before `ends`."""
    costs: list[Cost] = []
    async with triaging(client, app(always(says("billing"))), store, "triage", home):

        async def triage(label: str, number: int) -> None:
            status = await (await start(client, "triage", event(f"{label}-{number}"))).result()
            assert status.state == "delivered"

        await spent(partial(triage, "warm"), 20, 1)
        for size in EVENTS:
            if costs and time.monotonic() + size / costs[-1].per_second > ends:
                break
            costs.append(await spent(partial(triage, str(size)), size, size))
    return costs


async def measured(minutes: float) -> dict[str, list[Cost]]:
    """All of it."""
    ends = time.monotonic() + 60 * minutes
    guards = [processor(number) for number in range(max(PROCESSORS))]
    found = {"processors, plain": await plain(guards)}
    with tempfile.TemporaryDirectory(prefix="classifier-bench-", ignore_cleanup_errors=True) as folder:
        home = Path(folder)
        home.chmod(0o711)
        async with Stack(home / "state") as stack:
            addresses = stack.addresses
            assert addresses.temporal_address
            assert addresses.database_url
            await upgrade(addresses.database_url)
            client = await Client.connect(addresses.temporal_address)
            store = PostgresStore(addresses.database_url, hash_key=KEY)
            try:
                found["processors, durable"] = await durable(client, store, guards)
                found["events through triage"] = await triaged(client, store, home, ends)
            finally:
                await store.aclose()
    return found


def table(found: dict[str, list[Cost]]) -> Iterable[str]:
    """A line for each size."""
    for name, costs in found.items():
        for cost in costs:
            ratio = cost.cpu_ms / costs[0].cpu_ms
            line = f"{name:<24}{cost.size:>7,} {ratio:6.2f} x"
            yield f"{line} {cost.cpu_ms:8.2f} ms CPU {cost.per_second:9.1f}/s"
    left_out = EVENTS[len(found["events through triage"]) :]
    if left_out:
        yield f"left out, since they would not fit into the time: {', '.join(map(str, left_out))} events"


def main() -> None:
    """Prints the figures and writes them where asked."""
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--minutes", type=float, default=MINUTES, help="after which no size is begun")
    arguments.add_argument("--out", type=Path)
    given = arguments.parse_args()
    found = asyncio.run(measured(given.minutes))
    print("\n".join(table(found)))
    if given.out is not None:
        given.out.mkdir(parents=True, exist_ok=True)
        kept: dict[str, Any] = {name: [asdict(cost) for cost in costs] for name, costs in found.items()}
        (given.out / "scaling.json").write_text(json.dumps(kept, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
