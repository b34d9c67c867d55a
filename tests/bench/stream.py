"""What guarding a stream costs its reader, in plain asyncio.

    python -m tests.bench.stream [--out DIR] [--rounds N]

200 chunks arrive every 20 ms; a judgement takes 100 ms, or 600 ms for one in twenty; every chunk is judged
and recorded (in memory). The guarded stream, the unguarded one and one judged chunk by chunk take turns;
medians of the rounds are printed as ratios to the unguarded stream, and written to `DIR/stream.json`.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import statistics
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any, TypeAlias

from classifier.answers import BooleanAnswer
from classifier.audit.memory import MemoryStore
from classifier.classifier import Classifier
from classifier.messages import TextDelta
from classifier.models.scripted import ScriptedModel
from classifier.policy import PolicyContext
from classifier.ports import Call
from classifier.processor import ClassifierProcessor, Coalesce
from classifier.questions import Boolean, Questions
from classifier.result import ClassifierResult
from classifier.stream import End, guard
from classifier.testing import memory_ports
from classifier.verdict import Run

CHUNKS = 200
EVERY = 0.02
USUAL = 0.1
SLOW = 0.6
SLOW_SHARE = 0.05
TARGETS = {"guarded": 1.05, "guarded, one in twenty slow": 1.10}

Reading: TypeAlias = Callable[[], Awaitable[int]]


class Safety(Questions):
    unsafe = Boolean("Is the text unsafe?")


def allow(answers: Safety, context: PolicyContext[Safety]) -> None:
    if answers.unsafe.probability_or(1.0) > 0.8:
        context.abort("unsafe")


def processor(**options: Any) -> ClassifierProcessor[Safety]:
    model = ScriptedModel(lambda request: dict.fromkeys(request.questions, BooleanAnswer(0.05)))
    return ClassifierProcessor(
        classifier=Classifier("safety", model, Safety), on_result=allow, policy_version="bench", **options
    )


class Latency:
    """An evaluation that takes as long as a remote one would."""

    def __init__(self, slow_share: float) -> None:
        self._slow_share = slow_share
        self._random = random.Random(7)

    async def __call__(self, call: Call) -> ClassifierResult[Any]:
        await asyncio.sleep(SLOW if self._random.random() < self._slow_share else USUAL)
        return await call.evaluate()


async def chunks(count: int = CHUNKS, every: float = EVERY) -> AsyncIterator[TextDelta]:
    """Chunks by the clock, so that a late reader does not slow the source."""
    started = time.perf_counter()
    for number in range(count):
        await asyncio.sleep(max(0.0, started + (number + 1) * every - time.perf_counter()))
        yield TextDelta(f"chunk {number} ")


async def unguarded() -> int:
    return len([chunk async for chunk in chunks()])


async def one_by_one() -> int:
    asked = processor()
    classifier = asked.ready()
    read = 0
    async for chunk in chunks():
        await asyncio.sleep(USUAL)
        await classifier.evaluate(chunk.text)
        read += 1
    return read


def guarded(slow_share: float = 0.0, **options: Any) -> Reading:
    async def reading() -> int:
        run, store = Run.here(), MemoryStore()
        ports = memory_ports(store, run, Latency(slow_share))
        parts = [part async for part in guard(chunks(), [processor(**options)], run=run, ports=ports)]
        end = parts.pop()
        assert isinstance(end, End)
        end.raise_unless_finished()
        assert len(store.decisions) == (len(parts) if "coalesce" not in options else len(end.judgements))
        return len(parts)

    return reading


READINGS: dict[str, Reading] = {
    "unguarded": unguarded,
    "guarded": guarded(),
    "guarded, one in twenty slow": guarded(SLOW_SHARE),
    "guarded, hold_back 60 and coalesce": guarded(hold_back=60, coalesce=Coalesce(120, 0.25)),
}


async def timed(reading: Reading) -> float:
    started = time.perf_counter()
    assert await reading() == CHUNKS
    return time.perf_counter() - started


async def cpu_per_chunk(count: int = 2000) -> float:
    """CPU milliseconds that guarding and recording a chunk takes, with a model that answers at once."""
    run = Run.here()
    ports = memory_ports(MemoryStore(), run)
    started = time.process_time()
    async for _ in guard(chunks(count, 0.0), [processor()], run=run, ports=ports):
        pass
    return (time.process_time() - started) / count * 1000


async def measured(rounds: int) -> dict[str, Any]:
    taken: dict[str, list[float]] = {name: [] for name in READINGS}
    for _ in range(rounds):
        for name, reading in READINGS.items():
            taken[name].append(await timed(reading))
    taken["one by one"] = [await timed(one_by_one)]
    base = statistics.median(taken["unguarded"])
    return {
        "chunks": CHUNKS,
        "every_ms": EVERY * 1000,
        "judgement_ms": USUAL * 1000,
        "rounds": rounds,
        "seconds": taken,
        "ratios": {name: statistics.median(seconds) / base for name, seconds in taken.items()},
        "targets": TARGETS,
        "cpu_ms_per_chunk": await cpu_per_chunk(),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=None, help="folder for stream.json")
    parser.add_argument("--rounds", type=int, default=3)
    given = parser.parse_args()
    figures = asyncio.run(measured(given.rounds))
    for name, ratio in figures["ratios"].items():
        target = TARGETS.get(name)
        print(f"{name:40} {ratio:6.3f} x" + (f"   (at most {target})" if target else ""))
    print(f"{'CPU per chunk':40} {figures['cpu_ms_per_chunk']:6.3f} ms")
    if given.out is not None:
        given.out.mkdir(parents=True, exist_ok=True)
        (given.out / "stream.json").write_text(json.dumps(figures, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
