"""A thousand tickets end to end, with nothing configured: time, and what each process costs.

    python -m tests.bench.triage [--events N] [--out FOLDER]

Runs `classifier triage` in a fresh state folder and adds up the CPU of its process (command line, worker and
local model), of Temporal and of PostgreSQL. The yardstick, in the same run: as many workflows with one
activity that does nothing, on the same dev server.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import subprocess
import sys
import tempfile
import time
from itertools import islice
from pathlib import Path
from typing import Any

import psutil

from tests.bench._noop import noop_rate

TICKETS = Path(__file__).parents[2] / "examples" / "tickets.jsonl"


def measure(events: int) -> dict[str, Any]:
    """One run over the first `events` tickets."""
    with tempfile.TemporaryDirectory(prefix="classifier-bench-", ignore_cleanup_errors=True) as folder:
        home = Path(folder)
        home.chmod(0o711)
        file = home / "tickets.jsonl"
        with TICKETS.open(encoding="utf-8") as source:
            file.write_text("".join(islice(source, events)), encoding="utf-8")
        command = [sys.executable, "-m", "cli", "triage", str(file), "--json"]
        environ = {**os.environ, "CLASSIFIER_HOME": str(home / "state")}
        began = time.monotonic()
        process = subprocess.Popen(command, env=environ, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        cpu, memory = _watch(psutil.Process(process.pid), process)
        output, _ = process.communicate()
        if process.returncode != 0:
            raise SystemExit(f"classifier triage ended with {process.returncode}")
        summary = json.loads(output)
    return {
        "wall_seconds": round(time.monotonic() - began, 1),
        "triage_seconds": summary["seconds"],
        "events_per_second": summary["events_per_second"],
        "cpu_seconds": {name: round(seconds, 1) for name, seconds in cpu.items()},
        "worker_memory_mb": round(memory / 2**20),
        "summary": summary,
    }


def _watch(parent: psutil.Process, process: subprocess.Popen[bytes]) -> tuple[dict[str, float], int]:
    """CPU seconds by kind of process, and the most memory the worker's process had."""
    seconds: dict[int, tuple[str, float]] = {}
    memory = 0
    while process.poll() is None:
        for one in [parent, *_children(parent)]:
            try:
                times = one.cpu_times()
                kind = "worker" if one.pid == parent.pid else one.name().split("-", maxsplit=1)[0]
                seconds[one.pid] = (kind, times.user + times.system)
                if one.pid == parent.pid:
                    memory = max(memory, one.memory_info().rss)
            except psutil.Error:
                continue  # it has just ended; its last sample stands
        time.sleep(0.1)
    total: dict[str, float] = {}
    for kind, spent in seconds.values():
        total[kind] = total.get(kind, 0.0) + spent
    return total, memory


def _children(parent: psutil.Process) -> list[psutil.Process]:
    try:
        return parent.children(recursive=True)
    except psutil.Error:
        return []


def main() -> None:
    """Prints the figures and writes them where asked."""
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--events", type=int, default=1_000)
    arguments.add_argument("--out", type=Path)
    given = arguments.parse_args()
    found = measure(given.events)
    found["noop_per_second"] = round(asyncio.run(noop_rate(given.events)), 1)
    found["ratio_to_noop"] = round(found["events_per_second"] / found["noop_per_second"], 2)
    noop = found["noop_per_second"]
    print(f"{found['ratio_to_noop']:.2f} x workflows that do nothing, which reach {noop:.1f}/s here")
    print(f"{given.events} tickets: {found['triage_seconds']:.1f} s ({found['events_per_second']:.1f}/s)")
    print(f"from the command to its end: {found['wall_seconds']} s")
    for name, seconds in found["cpu_seconds"].items():
        print(f"CPU {name:<12} {seconds:>6.1f} s, {1000 * seconds / given.events:.1f} ms an event")
    print(f"memory of command line, worker and model together: {found['worker_memory_mb']} MB")
    if given.out is not None:
        given.out.mkdir(parents=True, exist_ok=True)
        (given.out / "triage.json").write_text(json.dumps(found, indent=2), encoding="utf-8")


if __name__ == "__main__":
    main()
