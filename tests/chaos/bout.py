"""A run under way: its settings, its processes, who uses them, and what goes wrong when."""

from __future__ import annotations

import asyncio
import contextlib
import sys
import time
import uuid
from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from temporalio.client import Client

from classifier.audit.history import History
from classifier.audit.postgres import PostgresStore
from classifier.audit.waiting import Settled
from classifier.errors import StoreError
from tests.agents.llm import KEY, LLM
from tests.apps.under_fire import HOOK_TOKEN, LLM_KEY, PLAYBOOK
from tests.chaos.arena import Arena, port
from tests.chaos.doors import TOKEN, Door, HttpDoor, IntakeDoor
from tests.chaos.models import DecisionModel, Receiver, Writer, person_chooses
from tests.chaos.plan import KINDS, Fault, Kind, plan_of
from tests.chaos.supervised import Supervised
from tests.chaos.traffic import People, Sender, Talk
from tests.processes import environment
from tests.servers import Server
from workflows.intake import Intake

HASH_KEY = "chaos-hash-key-0123456789"
HOOK_SECRET = "chaos-hook-token-0123456789"
CLI = (sys.executable, "-m", "cli")
SENDING = 0.75
"""The part of the run in which events and messages come in."""
BY_FILE = 10
"""One event in so many comes from a file, where there are enough of them."""
ENOUGH = 200
DRAIN = 120.0
"""Seconds in which nothing moves after which nothing is expected any more."""
LOOK = 1.0
GOODBYE = 90.0
"""Seconds in which a command has to see that all is settled."""
SERVICE = "service"


@dataclass(frozen=True, kw_only=True)
class Settings:
    """What a run is made of.

    Attributes:
        seed: Everything that is left to chance follows from it; the models behave where it is None.
        seconds: How long events come in and things go wrong; draining comes after it.
        events: How many.
        turns: Of agents, all threads together.
        only: The kinds of faults; none where it is empty.
        workers: How many workers there are.
        worker: What is run as a worker.
        serves: Whether events come in over the service; without it they go straight to the intake.
        drain: After so many seconds without progress the rest is given up.
    """

    seed: int | None
    seconds: float = 300.0
    events: int = 2000
    turns: int = 50
    only: tuple[Kind, ...] = KINDS
    workers: int = 2
    worker: Sequence[str] = (*CLI, "worker")
    serves: bool = True
    drain: float = DRAIN

    @property
    def plan(self) -> tuple[Fault, ...]:
        """Every fault."""
        return plan_of(self.dice, seconds=self.seconds, workers=self.workers, only=self.only)

    @property
    def dice(self) -> int:
        """The seed, also where the models behave."""
        return self.seed or 0

    @property
    def by_file(self) -> int:
        """How many events come from a file."""
        return self.events // BY_FILE if self.events >= ENOUGH else 0


@dataclass
class Bout:
    """A run under way.

    Attributes:
        servers: What it runs on.
        queue: Its task queue, which is its tenant too.
        marker: Stands in every text.
        home: Where its processes write.
        asked_again: How many messages were answered only when they were sent again in the end.
        commands: How those that should end did so last; None where they did not.
    """

    servers: Arena
    settings: Settings
    queue: str
    marker: str
    home: Path
    client: Client
    history: History
    model: DecisionModel
    hook: Receiver
    llm: LLM
    sender: Sender
    people: People
    talk: Talk
    processes: dict[str, Supervised] = field(default_factory=dict[str, Supervised])
    asked_again: int = 0
    commands: dict[str, int | None] = field(default_factory=dict[str, "int | None"])

    @property
    def workers(self) -> list[Supervised]:
        """The workers."""
        return [self.processes[f"worker-{number}"] for number in range(self.settings.workers)]

    async def go(self) -> float:
        """All of it; how many seconds it took from the first event to the last delivery."""
        began = time.monotonic()
        reviewing = asyncio.create_task(self.people.review())
        try:
            sending = self.settings.seconds * SENDING
            online = self.settings.events - self.settings.by_file
            async with self._file():
                await asyncio.gather(
                    self._misfortune(),
                    self.sender.send(online, sending),
                    self.talk.talk(self.settings.turns, sending, self.settings.drain * 2),
                )
                await self._settled()
                self.asked_again = await self.talk.ask_again(self.settings.drain)
        finally:
            reviewing.cancel()
            await asyncio.gather(reviewing, return_exceptions=True)
        return time.monotonic() - began

    async def _misfortune(self) -> None:
        """Every fault at its time; what is hit for longer does not hold up the rest."""
        loop = asyncio.get_running_loop()
        began = loop.time()
        async with asyncio.TaskGroup() as group:
            for fault in self.settings.plan:
                await asyncio.sleep(began + fault.at - loop.time())
                group.create_task(self._strike(fault))

    async def _strike(self, fault: Fault) -> None:
        match fault.kind:
            case "worker":
                self.workers[fault.which].killed(fault.away)
            case "service":
                self.processes[SERVICE].killed(fault.away)
            case "database":
                await self.servers.database_away(fault.how, fault.away)
            case "temporal":
                await self.servers.temporal_away(fault.how, fault.away)

    @contextlib.asynccontextmanager
    async def _file(self) -> AsyncGenerator[None]:
        """A file of events over the command, which is run again until it has seen them all settled."""
        count = self.settings.by_file
        if not count:
            yield
            return
        path = self.home / "events.jsonl"
        self.sender.write_file(path, count)
        command = (*CLI, "triage", str(path), "--tenant", self.queue, "--json")
        triage = Supervised("triage", command, self.workers[0].environ, self.home / "triage.log")
        self.processes["triage"] = triage
        async with triage.running():
            yield
            began = time.monotonic()
            while 0 not in triage.alone and time.monotonic() < began + GOODBYE:
                await asyncio.sleep(LOOK)
        self.commands["triage"] = triage.alone[-1] if triage.alone else None

    async def _settled(self) -> None:
        """Returns when every event is where it stays, or when nothing has moved for long."""
        missing = {sent.workflow for sent in self.sender.sent}
        moved = time.monotonic()
        while missing and time.monotonic() < moved + self.settings.drain:
            with contextlib.suppress(StoreError):
                known = await self.history.settled(self.queue, missing)
                found = {name for name, where in known.items() if self._is_settled(name, where)}
                moved = time.monotonic() if found else moved
                missing -= found
            await asyncio.sleep(LOOK if missing else 0)
        await self._closed()

    def _is_settled(self, workflow: str, where: Settled) -> bool:
        return where.delivered or where.dead is not None or (where.waiting and self._stays(workflow))

    def _stays(self, workflow: str) -> bool:
        return person_chooses(self.settings.dice, workflow) is None

    async def _closed(self) -> None:
        """A run closes a moment after its delivery is in the history."""
        states = {post.event for post in self.hook.posts}
        handles = [
            self.client.get_workflow_handle(sent.workflow)
            for sent in self.sender.sent
            if sent.event in states
        ]
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(30):
                await asyncio.gather(*(handle.result() for handle in handles))


async def prepared(exits: contextlib.AsyncExitStack, servers: Arena, settings: Settings) -> Bout:
    """Models that answer, processes that are ready, and nothing sent yet."""
    queue = f"chaos-{uuid.uuid4().hex[:8]}"
    marker = f"marked-{uuid.uuid4().hex}"
    home = servers.folder.home / queue
    home.mkdir()
    model, hook = DecisionModel(settings.seed), Receiver(settings.seed)
    llm = await exits.enter_async_context(LLM(script=Writer(settings.dice, marker)))
    addresses = {
        "CHAOS_MODEL_URL": (await exits.enter_async_context(Server(model))).url,
        "CHAOS_HOOK_URL": (await exits.enter_async_context(Server(hook))).url,
        "CHAOS_LLM_URL": llm.url,
    }
    client, listening = await servers.client(), port()
    history = await exits.enter_async_context(History(servers.database_url))
    door = _door(servers, client, queue, listening if settings.serves else None)
    exits.push_async_callback(door.aclose)
    bout = Bout(
        servers,
        settings,
        queue,
        marker,
        home,
        client,
        history,
        model,
        hook,
        llm,
        Sender(door, queue, marker, settings.dice),
        People(client, history, queue, settings.dice),
        Talk(client, queue, queue, marker, settings.dice),
    )
    commands = {f"worker-{number}": tuple(settings.worker) for number in range(settings.workers)}
    if settings.serves:
        commands[SERVICE] = (*CLI, "serve", "--port", str(listening))
    environ = environ_of(servers, queue, home) | addresses
    for name, command in commands.items():
        bout.processes[name] = Supervised(name, command, environ, home / f"{name}.log")
        await exits.enter_async_context(bout.processes[name].running())
    ready = {SERVICE: "takes events"}
    await asyncio.gather(
        *(process.said(ready.get(name, "worker polls")) for name, process in bout.processes.items())
    )
    return bout


def environ_of(servers: Arena, queue: str, home: Path) -> dict[str, str]:
    """The environment of every process of ours, but for the addresses of the models."""
    return environment(
        home,
        TEMPORAL_ADDRESS=servers.temporal_address,
        DATABASE_URL=servers.database_url,
        CLASSIFIER_APP="tests.apps.under_fire:app",
        CLASSIFIER_HASH_KEY=HASH_KEY,
        CLASSIFIER_TASK_QUEUE=queue,
        CLASSIFIER_TOKENS=f"{queue}:{TOKEN}",
        CLASSIFIER_TENANT_RATE="1000000",
        **{LLM_KEY: KEY, HOOK_TOKEN: HOOK_SECRET},
    )


def _door(servers: Arena, client: Client, queue: str, listening: int | None) -> Door:
    if listening is not None:
        return HttpDoor(f"http://127.0.0.1:{listening}")
    store = PostgresStore(servers.database_url, hash_key=HASH_KEY.encode())
    return IntakeDoor(Intake(client, store, task_queue=queue, playbook=PLAYBOOK), store, queue)
