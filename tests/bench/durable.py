"""What a durable, recorded decision costs, against the public plugin that records nothing.

    python -m tests.bench.durable [--count N] [--rounds N] [--out FOLDER]

The peer, `temporalio-typesafe`, runs in an environment of its own that this installs. Both workers, the
decision model (a stand-in that answers at once), Temporal and PostgreSQL are processes of their own. The
variants take turns in each round; a ratio is the median of the rounds' ratios, since a machine's load changes
from round to round. Rates are for this machine alone. The processor time of a decision, of all processes
together, says more than its rate where others use the machine too.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import statistics
import subprocess
import sys
import tempfile
import time
import venv
from asyncio.subprocess import PIPE
from collections.abc import AsyncGenerator, Awaitable, Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TypeAlias

import psutil
from temporalio.client import Client

from classifier.temporal.client import evaluate
from embedded.stack import Stack
from tests.bench._durable_workflows import Message

PEER = ("temporalio-typesafe==0.0.1", "typesafe-sdk==0.7.5", "asyncpg")
HERE = Path(__file__).parent
AT_ONCE = 100
MANY = 500
STATE = "The invoice was paid twice and nobody answers. " * 10
TARGETS = (
    ("one remote", "one: ours", "one: peer", 1.0),
    ("one remote, peer inserts", "one: ours", "one: peer + insert", 1.2),
    ("one local", "one: ours, local", "one: peer", 1.3),
    ("one local, peer inserts", "one: ours, local", "one: peer + insert", 1.7),
    ("without a workflow", "one: ours, no workflow", "one: peer", 1.6),
    ("500 in one workflow", "500: ours", "500: peer", 4.0),
)
Variant: TypeAlias = Callable[[str, int], Awaitable[None]]


def variants(client: Client) -> dict[str, tuple[Variant, int]]:
    """What takes turns, and the decisions of one unit of it."""

    def one(workflow: str, queue: str) -> Variant:
        async def run(name: str, number: int) -> None:
            await client.execute_workflow(workflow, STATE, id=f"{name}-{number}", task_queue=queue)

        return run

    def many(workflow: str, queue: str) -> Variant:
        async def run(name: str, number: int) -> None:
            states = [f"{STATE} {each}" for each in range(MANY)]
            await client.execute_workflow(workflow, states, id=f"{name}-{number}", task_queue=queue)

        return run

    async def alone(name: str, number: int) -> None:
        await evaluate(client, "messages", STATE, Message, key=f"{name}-{number}", task_queue="ours")

    return {
        "one: peer": (one("Peer", "peer"), 1),
        "one: ours": (one("Ask", "ours"), 1),
        "one: peer + insert": (one("PeerRecorded", "peer"), 1),
        "one: ours, local": (one("AskLocally", "ours"), 1),
        "one: ours, no workflow": (alone, 1),
        "500: peer": (many("PeerMany", "peer"), MANY),
        "500: ours": (many("AskMany", "ours"), MANY),
    }


@dataclass(frozen=True)
class Speed:
    """Decisions a second, and the milliseconds of processor time of one, of all processes together."""

    rate: float
    cpu_ms: float


async def speed(variant: Variant, size: int, name: str, count: int) -> Speed:
    """Measures a variant once."""
    slots = asyncio.Semaphore(AT_ONCE if size == 1 else 1)

    async def unit(number: int) -> None:
        async with slots:
            await variant(name, number)

    began, used = time.monotonic(), cpu()
    await asyncio.gather(*(unit(number) for number in range(count)))
    made = count * size
    return Speed(made / (time.monotonic() - began), (cpu() - used) * 1000 / made)


def cpu() -> float:
    """Seconds of processor time of this process and all below it."""
    own = psutil.Process()
    times = [one.cpu_times() for one in [own, *own.children(recursive=True)]]
    return sum(each.user + each.system for each in times)


async def measure(count: int, rounds: int, peer: Path | None) -> dict[str, list[Speed]]:
    """The speeds of every variant, a round after another."""
    speeds: dict[str, list[Speed]] = {}
    with tempfile.TemporaryDirectory(prefix="classifier-bench-", ignore_cleanup_errors=True) as folder:
        home = Path(folder)
        home.chmod(0o711)
        peer = peer or await asyncio.to_thread(peer_environment, home / "peer")
        async with contextlib.AsyncExitStack() as exits:
            stack = await exits.enter_async_context(Stack(home / "state"))
            address, database_url = stack.addresses.temporal_address, stack.addresses.database_url
            assert address
            assert database_url
            port = await exits.enter_async_context(
                saying(
                    sys.executable, "-c", "import tests.bench.evaluate as e, asyncio; asyncio.run(e.serve())"
                )
            )
            given = (address, f"http://127.0.0.1:{port}", database_url)
            ours = [sys.executable, "-m", "tests.bench._durable_worker", *given]
            await exits.enter_async_context(saying(*ours))
            await exits.enter_async_context(saying(str(peer), str(HERE / "_peer.py"), *given))
            client = await Client.connect(address)
            known = variants(client)
            for name, (variant, size) in known.items():
                await speed(variant, size, f"warm {name}", 30 if size == 1 else 1)
            for number in range(rounds):
                for name, (variant, size) in known.items():
                    found = await speed(variant, size, f"{number} {name}", count if size == 1 else 2)
                    speeds.setdefault(name, []).append(found)
                    print(
                        f"  {number + 1}  {name:<24} {found.rate:7.1f}/s {found.cpu_ms:6.1f} ms", flush=True
                    )
    return speeds


def peer_environment(folder: Path) -> Path:
    """Installs the peer; gives back its Python."""
    venv.create(folder, with_pip=True)
    python = folder / "bin" / "python"
    subprocess.run([python, "-m", "pip", "install", "-q", *PEER], check=True)
    return python


@contextlib.asynccontextmanager
async def saying(*command: str) -> AsyncGenerator[str]:
    """A process that runs meanwhile, and the first line it says."""
    process = await asyncio.create_subprocess_exec(*command, stdout=PIPE)
    try:
        assert process.stdout
        line = await process.stdout.readline()
        if not line:
            raise SystemExit(f"it ended at once: {' '.join(command)}")
        yield line.decode().strip()
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()


def ratios(speeds: dict[str, list[Speed]], ours: str, peer: str) -> tuple[float, float]:
    """How many times faster, and how many times less processor time: medians over the rounds."""
    rounds = list(zip(speeds[ours], speeds[peer], strict=True))
    return (
        statistics.median(one.rate / other.rate for one, other in rounds),
        statistics.median(other.cpu_ms / one.cpu_ms for one, other in rounds),
    )


def main() -> None:
    """Prints the figures and writes them where asked."""
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--count", type=int, default=300)
    arguments.add_argument("--rounds", type=int, default=3)
    arguments.add_argument("--peer", type=Path, help="a Python that has the peer installed already")
    arguments.add_argument("--out", type=Path)
    given = arguments.parse_args()
    speeds = asyncio.run(measure(given.count, given.rounds, given.peer))
    found = {what: ratios(speeds, ours, peer) for what, ours, peer, _ in TARGETS}
    print("  rate    CPU")
    for what, _, peer, target in TARGETS:
        rate, cpu_ratio = found[what]
        print(f"{rate:5.2f} x {cpu_ratio:5.2f} x of {peer:<20} {what:<26} (aim {target} x)")
    for name, each in speeds.items():
        rate = statistics.median(one.rate for one in each)
        used = statistics.median(one.cpu_ms for one in each)
        print(f"{rate:8.1f}/s {used:6.1f} ms CPU  {name}")
    if given.out is not None:
        given.out.mkdir(parents=True, exist_ok=True)
        kept = {name: [asdict(one) for one in each] for name, each in speeds.items()}
        written = json.dumps({"ratios": found, "speeds": kept}, indent=2)
        (given.out / "durable.json").write_text(written, encoding="utf-8")


if __name__ == "__main__":
    main()
