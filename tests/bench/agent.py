"""What guarding an agent's turn costs its reader: time to the first released text, and to the end.

    python -m tests.bench.agent [--out FOLDER] [--turns N]

Two threads take turns on one worker and one dev server: one whose message, stream and reply are judged, one
without processors. The language model writes 60 pieces, one every 20 ms; a judgement takes 100 ms and is
recorded (in memory). Medians are printed as ratios of the guarded turn to the unguarded, and written to
`FOLDER/agent.json`. What the ratios hold against: a message has to be judged before the model is asked, and a
reply before it is final, so two judgements one after another cannot be hidden.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import logging
import os
import platform
import statistics
import tempfile
import time
import uuid
from dataclasses import replace
from pathlib import Path
from typing import Any

from temporalio.client import Client

from classifier.app import App
from classifier.audit.memory import MemoryStore
from classifier.processor import Coalesce
from embedded.stack import Stack
from tests.agents.llm import LLM, Part, Pause, Reply
from tests.agents.support import Handle, agent, finding, guarding, send, worker_of
from workflows.agent import AgentWorkflow
from workflows.agent_messages import ThreadRequest
from workflows.readers import Readers

PIECES = 60
EVERY = 0.02
JUDGEMENT = 0.1
KINDS = ("unguarded", "guarded")


def reply(request: dict[str, Any]) -> Reply:
    """The same for every turn."""
    del request
    parts: list[Part] = []
    for number in range(PIECES):
        parts += [Pause(EVERY), f"piece {number} "]
    return parts


def app(llm: LLM) -> App:
    """Both agents, and the guards of one."""
    model = finding("never", latency=JUDGEMENT)
    guards = [
        guarding("front", model=model),
        guarding("flow", model=model, hold_back=40, coalesce=Coalesce(120, 0.25)),
        guarding("gate", model=model),
    ]
    plain = replace(agent(llm), id="unguarded")
    guarded = replace(agent(llm, input=["front"], stream=["flow"], output=["gate"]), id="guarded")
    return App(processors=guards, agents=[plain, guarded])


async def turn(client: Client, thread: Handle, number: int, after: int) -> tuple[float, float, int]:
    """Seconds to the first text and to the end, as a reader sees them, and where to read on."""
    readers, name = Readers(client), f"m{number}"
    began = time.perf_counter()
    sent = asyncio.create_task(send(thread, "hello", name))
    first = 0.0
    async for seen in readers.events(thread.id, after=after):
        after = seen.next
        if seen.event["turn"] != name:
            continue
        if seen.event["type"] == "text" and not first:
            first = time.perf_counter() - began
        if seen.event["type"] == "ended":
            break
    whole = time.perf_counter() - began
    done = await sent
    await readers.aclose()
    assert done.outcome == "finished"
    assert len(done.reply.split()) == 2 * PIECES
    return first, whole, after


async def measured(turns: int) -> dict[str, Any]:
    """Turns of both kinds, one after another; the first of each is not counted."""
    seconds: dict[str, dict[str, list[float]]] = {kind: {"first": [], "whole": []} for kind in KINDS}
    store, queue = MemoryStore(), f"queue-{uuid.uuid4()}"
    with tempfile.TemporaryDirectory(prefix="classifier-bench-") as home:
        async with Stack(Path(home), database=False) as stack, LLM(script=reply) as llm:
            assert stack.addresses.temporal_address is not None
            client = await Client.connect(stack.addresses.temporal_address)
            async with worker_of(client, queue, app(llm), store):
                threads = {kind: await opened(client, queue, kind) for kind in KINDS}
                at = dict.fromkeys(KINDS, 0)
                for number in range(turns + 1):
                    for kind in KINDS:
                        first, whole, at[kind] = await turn(client, threads[kind], number, at[kind])
                        if number:
                            seconds[kind]["first"].append(round(first, 4))
                            seconds[kind]["whole"].append(round(whole, 4))
    return figures(seconds, turns, len(store.decisions) / (turns + 1))


async def opened(client: Client, queue: str, kind: str) -> Handle:
    """A thread with the agent of a kind."""
    request = ThreadRequest(agent=kind)
    return await client.start_workflow(
        AgentWorkflow.run, request, id=f"{kind}-{uuid.uuid4()}", task_queue=queue
    )


def figures(seconds: dict[str, dict[str, list[float]]], turns: int, decisions: float) -> dict[str, Any]:
    """Ratios first."""
    medians = {
        kind: {what: statistics.median(taken) for what, taken in both.items()}
        for kind, both in seconds.items()
    }
    guarded, plain = medians["guarded"], medians["unguarded"]
    return {
        "ratios": {what: guarded[what] / plain[what] for what in ("first", "whole")},
        "added_seconds": {what: guarded[what] - plain[what] for what in ("first", "whole")},
        "medians": medians,
        "seconds": seconds,
        "turns": turns,
        "decisions_per_turn": decisions,
        "pieces": PIECES,
        "every_ms": EVERY * 1000,
        "judgement_ms": JUDGEMENT * 1000,
        "machine": {"platform": platform.platform(), "cores": os.cpu_count(), "load": os.getloadavg()[0]},
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=None, help="folder for agent.json")
    parser.add_argument("--turns", type=int, default=10)
    given = parser.parse_args()
    logging.disable(logging.WARNING)
    found = asyncio.run(measured(given.turns))
    for what, name in (("first", "first released text"), ("whole", "whole turn")):
        plain, guarded = (found["medians"][kind][what] for kind in KINDS)
        print(
            f"{name:22} {found['ratios'][what]:6.2f} x   ({plain:.2f} s unguarded, {guarded:.2f} s guarded)"
        )
    print(f"{'decisions per turn':22} {found['decisions_per_turn']:6.1f}")
    if given.out is not None:
        given.out.mkdir(parents=True, exist_ok=True)
        (given.out / "agent.json").write_text(json.dumps(found, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
