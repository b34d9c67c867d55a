"""Half of what it can take, for ten minutes: memory, connections and backlog stay where they are.

    python -m tests.chaos.soak [--minutes 10] [--rate EVENTS_A_SECOND] [--json FILE]

One worker and the service, as processes, over servers of their own. First a burst measures the capacity,
unless a rate is given; then events come evenly at half of it. Exits with 1 where something grows too much.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import sys
import time
from collections import defaultdict
from collections.abc import AsyncGenerator
from dataclasses import asdict, dataclass, field
from pathlib import Path

import psutil
import sqlalchemy as sa
from rich.console import Console
from rich.table import Table
from sqlalchemy.ext.asyncio import AsyncEngine
from temporalio.api.enums.v1 import TaskQueueType
from temporalio.api.taskqueue.v1 import TaskQueue
from temporalio.api.workflowservice.v1 import DescribeTaskQueueRequest

from classifier.audit.engine import create_engine
from tests.chaos.arena import Arena, arena
from tests.chaos.bout import SERVICE as SERVICE_PROCESS
from tests.chaos.bout import Bout, Settings, prepared
from tests.chaos.growth import Bound, Growth, Sample, growth_of

EVERY = 2.0
WARM = 100
BURST = 400
SHARE = 0.5
KINDS = (TaskQueueType.TASK_QUEUE_TYPE_WORKFLOW, TaskQueueType.TASK_QUEUE_TYPE_ACTIVITY)

WORKER, SERVICE = "memory of the worker, MB", "memory of the service, MB"
CONNECTIONS, WAITING, OPEN = "connections", "tasks that wait in Temporal", "events not delivered yet"
MEMORY_A_MINUTE = 4.0
"""MB; a leak of a kilobyte an event would be ten times this at the rates of two cores."""


def bounds(rate: float) -> dict[str, Bound]:
    """What is too much, at so many events a second."""
    return {
        WORKER: Bound(MEMORY_A_MINUTE, 400.0),
        SERVICE: Bound(MEMORY_A_MINUTE, 300.0),
        CONNECTIONS: Bound(1.0, 40.0),
        WAITING: Bound(rate, rate * 15),
        OPEN: Bound(rate * 2, rate * 30),
    }


@dataclass(frozen=True)
class Soaked:
    """What a soak found.

    Attributes:
        capacity: Events a second in the burst; None where the rate was given.
        rate: At which events came.
        events: How many there were.
        growths: How each thing that was measured fared.
    """

    capacity: float | None
    rate: float
    events: int
    growths: tuple[Growth, ...]

    @property
    def breaches(self) -> list[str]:
        """What is too much."""
        return [breach for growth in self.growths for breach in growth.breaches]


@dataclass
class Gauge:
    """Measures again and again.

    Attributes:
        samples: By name.
    """

    bout: Bout
    engine: AsyncEngine
    samples: dict[str, list[Sample]] = field(default_factory=lambda: defaultdict(list))

    async def watch(self) -> None:
        """Until it is told to stop."""
        began = time.monotonic()
        while True:
            measured = await self._measured()
            at = time.monotonic() - began
            for name, value in measured.items():
                self.samples[name].append(Sample(at, value))
            await asyncio.sleep(EVERY)

    async def _measured(self) -> dict[str, float]:
        (worker,) = self.bout.workers
        return {
            WORKER: _memory(worker.pid),
            SERVICE: _memory(self.bout.processes[SERVICE_PROCESS].pid),
            CONNECTIONS: float(await self._connections()),
            WAITING: float(sum([await self._waiting(kind) for kind in KINDS])),
            OPEN: float(len(self.bout.sender.sent) - len({post.event for post in self.bout.hook.posts})),
        }

    async def _connections(self) -> int:
        query = sa.text("SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()")
        async with self.engine.connect() as connection:
            return int((await connection.execute(query)).scalar_one())

    async def _waiting(self, kind: TaskQueueType.ValueType) -> int:
        client = self.bout.client
        described = await client.workflow_service.describe_task_queue(
            DescribeTaskQueueRequest(
                namespace=client.namespace,
                task_queue=TaskQueue(name=self.bout.queue),
                task_queue_type=kind,
                report_stats=True,
            )
        )
        return described.stats.approximate_backlog_count


def _memory(pid: int | None) -> float:
    assert pid is not None, "a process ended by itself"
    return float(psutil.Process(pid).memory_info().rss) / 1e6


async def soak(servers: Arena, seconds: float, rate: float | None) -> Soaked:
    """Measures the capacity where no rate is given, then half of it for so many seconds."""
    settings = Settings(seed=None, turns=0, only=(), workers=1)
    async with contextlib.AsyncExitStack() as exits:
        bout = await prepared(exits, servers, settings)
        capacity: float | None = None
        await _burst(bout, WARM)
        if rate is None:
            capacity = await _burst(bout, BURST)
        steady = rate or (capacity or 0.0) * SHARE
        gauge = await exits.enter_async_context(_gauge(servers, bout))
        before = len(bout.sender.sent)
        watching = asyncio.create_task(gauge.watch())
        sending = asyncio.create_task(bout.sender.send(round(steady * seconds), seconds, first=before))
        done, _ = await asyncio.wait({watching, sending}, return_when=asyncio.FIRST_COMPLETED)
        watching.cancel()
        sending.cancel()
        await asyncio.gather(watching, sending, return_exceptions=True)
        for each in done:
            each.result()
    growths = [growth_of(name, gauge.samples[name], bound) for name, bound in bounds(steady).items()]
    return Soaked(capacity, steady, len(bout.sender.sent) - before, tuple(growths))


@contextlib.asynccontextmanager
async def _gauge(servers: Arena, bout: Bout) -> AsyncGenerator[Gauge]:
    engine = create_engine(servers.database_url, role=None, timeout=30)
    try:
        yield Gauge(bout, engine)
    finally:
        await engine.dispose()


async def _burst(bout: Bout, count: int) -> float:
    """So many events as fast as they are taken; delivered events a second."""
    began, before = time.monotonic(), len(bout.sender.sent)
    await bout.sender.send(count, 0.0, first=before)
    while len({post.event for post in bout.hook.posts}) < before + count:
        await asyncio.sleep(0.05)
    return count / (time.monotonic() - began)


def show(found: Soaked) -> None:
    """A table, and what is too much."""
    console = Console(width=120, highlight=False)
    capacity = "" if found.capacity is None else f"capacity {found.capacity:.1f} events a second; "
    console.print(f"{capacity}soaked at {found.rate:.1f}, {found.events} events")
    table = Table("measured", "after warm-up", "at the end", "highest", "growth a minute", "bound")
    for each in found.growths:
        figures = (each.first, each.last, each.highest)
        bound = f"{each.bound.a_minute:g} a minute, {each.bound.highest:g} at most"
        table.add_row(each.name, *(f"{figure:.1f}" for figure in figures), f"{each.a_minute:+.2f}", bound)
    console.print(table)
    for breach in found.breaches:
        console.print(f"BROKEN  {breach}", markup=False)
    print("BROKEN" if found.breaches else "flat", flush=True)


async def fill(seconds: float, rate: float | None) -> Soaked:
    """A soak on servers of its own."""
    async with arena() as servers:
        return await soak(servers, seconds, rate)


def main() -> int:
    """Soaks and tells; the exit code."""
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    arguments.add_argument("--minutes", type=float, default=10.0)
    arguments.add_argument(
        "--rate", type=float, help="events a second; default: half of the measured capacity"
    )
    arguments.add_argument("--json", type=Path, help="write figures to this file")
    given = arguments.parse_args()
    found = asyncio.run(fill(given.minutes * 60, given.rate))
    show(found)
    if given.json is not None:
        whole = asdict(found) | {"breaches": found.breaches}
        given.json.write_text(json.dumps(whole, indent=2), encoding="utf-8")
    return 1 if found.breaches else 0


if __name__ == "__main__":
    sys.exit(main())
