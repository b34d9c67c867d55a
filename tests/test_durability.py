"""Workers that die and workers that stop: every event ends, and every decision is one row.

Real workers over one stack, those that end as processes; the model is an HTTP server here that counts what it
is asked and never gives the same event the same answer twice.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections import Counter, defaultdict
from collections.abc import AsyncGenerator, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from temporalio.client import Client

from classifier.audit.history import History
from classifier.audit.postgres import PostgresStore
from classifier.audit.query import DecisionQuery
from classifier.audit.schema import upgrade
from classifier.decision import Decision
from embedded.stack import Stack
from tests.apps import remote
from tests.apps.cliff import Point
from tests.processes import Running, environment, peak_memory, run, started, state_folder, until
from tests.servers import Answer, Call, Server
from tests.tree import ROOT
from worker import Settings, opened, working
from workflows.events import Incoming, read_event
from workflows.intake import Intake, Started
from workflows.messages import TriageStatus

SHELVES = ("a", "b", "c", "d")
HASH_KEY = "only-for-tests"
IN_FLIGHT = 20
POINTS: tuple[Point, ...] = ("before the insert", "after the commit", "before the completion")
pytestmark = pytest.mark.slow


@dataclass
class CountingModel:
    """Answers a System One request; the first answer for a text is its first shelf, and so on.

    Attributes:
        latency: Seconds an answer takes.
        answered: The shelves each text was given, in order.
        open: Answers wait until it is set.
    """

    latency: float = 0.0
    answered: dict[str, list[str]] = field(default_factory=lambda: defaultdict(list))
    open: asyncio.Event = field(default_factory=asyncio.Event)

    def __post_init__(self) -> None:
        self.open.set()

    async def __call__(self, call: Call) -> Answer:
        text = call.json["state"]
        shelf = SHELVES[(sum(text.encode()) + len(self.answered[text])) % len(SHELVES)]
        self.answered[text].append(shelf)
        await asyncio.sleep(self.latency)
        await self.open.wait()
        rest = dict.fromkeys([*SHELVES, "review"], 0.02) | {shelf: 0.92}
        answer = {"type": "choice", "choice": shelf, "confidence": 0.9, "probabilities": rest}
        return Answer({"model": "counted-1", "answers": {"shelf": answer}})

    @property
    def requests(self) -> int:
        return sum(len(shelves) for shelves in self.answered.values())


@dataclass
class House:
    """A running stack, and what tests ask of it.

    Attributes:
        home: The state folder of the workers, apart from the stack's own.
    """

    home: Path
    client: Client
    temporal: str
    database_url: str

    def environ(self, model: Server | None = None, queue: str = "classifier") -> dict[str, str]:
        """The environment of a worker on a queue of its own."""
        address = {} if model is None else {"COUNTED_MODEL_URL": model.url}
        return environment(
            self.home / queue,
            TEMPORAL_ADDRESS=self.temporal,
            DATABASE_URL=self.database_url,
            CLASSIFIER_HASH_KEY=HASH_KEY,
            CLASSIFIER_TASK_QUEUE=queue,
            CLASSIFIER_APP="tests.apps.remote:app",
            **address,
        )

    @contextlib.asynccontextmanager
    async def worker(self, environ: dict[str, str]) -> AsyncGenerator[Running]:
        """`classifier worker`, polling."""
        async with started("worker", environ=environ) as running:
            await running.said("worker polls")
            yield running

    @contextlib.asynccontextmanager
    async def successor(self, environ: dict[str, str]) -> AsyncGenerator[None]:
        """The same worker in this process, which has its imports already."""
        async with (
            opened(Settings.from_environ(environ)) as service,
            working(service, remote.shelves()),
        ):
            yield

    async def accept(self, events: list[Incoming], queue: str) -> list[Started]:
        """Starts one run per event."""
        store = PostgresStore(self.database_url, hash_key=HASH_KEY.encode())
        intake = Intake(self.client, store, task_queue=queue, playbook="shelves")
        try:
            return await intake.accept(events)
        finally:
            await store.aclose()

    async def results(self, runs: Iterable[Started]) -> dict[str, TriageStatus]:
        """What every run ended with, by workflow."""
        handles = [self.client.get_workflow_handle(run.workflow_id, result_type=TriageStatus) for run in runs]
        ended: list[TriageStatus] = await asyncio.gather(*(handle.result() for handle in handles))
        return {handle.id: status for handle, status in zip(handles, ended, strict=True)}

    async def rows(self, tenant: str) -> list[Decision]:
        """Every decision of a tenant."""
        found: list[Decision] = []
        cursor: str | None = None
        async with History(self.database_url) as history:
            while True:
                page = await history.page(DecisionQuery(tenant=tenant), 1000, cursor)
                found += page.decisions
                cursor = page.next_cursor
                if cursor is None:
                    return found

    def outbox(self, queue: str) -> list[dict[str, Any]]:
        """What was delivered, in order."""
        lines = (self.home / queue / "outbox.jsonl").read_text(encoding="utf-8").splitlines()
        return [json.loads(line) for line in lines]


@contextlib.asynccontextmanager
async def running_house() -> AsyncGenerator[House]:
    """A house on a stack of its own."""
    with state_folder() as folder, state_folder() as home:
        async with Stack(folder) as stack:
            addresses = stack.addresses
            assert addresses.temporal_address
            assert addresses.database_url
            await upgrade(addresses.database_url)
            client = await Client.connect(addresses.temporal_address)
            yield House(home, client, addresses.temporal_address, addresses.database_url)


@pytest.fixture(scope="module")
async def house() -> AsyncGenerator[House]:
    async with running_house() as running:
        yield running


def events(tenant: str, count: int) -> list[Incoming]:
    """Events whose text names the tenant and a number."""
    made = [read_event(line, number, tenant, str) for number, line in enumerate(lines(tenant, count), 1)]
    return [event for event in made if isinstance(event, Incoming)]


def lines(tenant: str, count: int) -> list[bytes]:
    """The same as lines of a file."""
    return [
        json.dumps(
            {
                "specversion": "1.0",
                "id": str(number),
                "source": "tests",
                "type": "test",
                "data": f"{tenant} {number}",
            }
        ).encode()
        for number in range(count)
    ]


def chosen(decision: Decision) -> str:
    """The shelf that a row says."""
    assert decision.answers is not None
    return str(decision.answers["shelf"].choice_or(None))  # type: ignore[union-attr]


@dataclass
class Aftermath:
    """What a doomed worker and its successor left behind."""

    model: CountingModel
    results: dict[str, TriageStatus]
    rows: list[Decision]
    delivered: list[dict[str, Any]]


async def crashed_at(house: House, point: Point) -> Aftermath:
    queue = point.replace(" ", "-")
    model = CountingModel()
    async with Server(model) as server:
        environ = house.environ(server, queue)
        doomed = "tests.apps.doomed"
        async with started(point, str(IN_FLIGHT), environ=environ, module=doomed) as worker:
            await worker.said("doomed")
            runs = await house.accept(events(queue, IN_FLIGHT), queue)
            assert (await worker.finished()).code == -9, worker.errors
        assert model.requests == IN_FLIGHT
        async with house.successor(environ):
            results = await house.results(runs)
    return Aftermath(model, results, await house.rows(queue), house.outbox(queue))


@pytest.fixture(scope="module")
async def aftermaths(house: House) -> dict[Point, Aftermath]:
    """All three at the same time, since most of it is waiting for Temporal to notice."""
    found = await asyncio.gather(*(crashed_at(house, point) for point in POINTS))
    return dict(zip(POINTS, found, strict=True))


@pytest.mark.parametrize("point", POINTS)
def test_a_worker_killed_at_a_failpoint_leaves_one_row_per_decision(
    aftermaths: dict[Point, Aftermath], point: Point
) -> None:
    after = aftermaths[point]
    assert len(after.rows) == IN_FLIGHT
    assert {row.coordinates.workflow_id for row in after.rows} == set(after.results)
    assert {status.state for status in after.results.values()} == {"delivered"}


@pytest.mark.parametrize("point", POINTS)
def test_the_answer_on_record_is_the_one_acted_on(aftermaths: dict[Point, Aftermath], point: Point) -> None:
    after = aftermaths[point]
    delivered = {line["decision_id"]: line["route"] for line in after.delivered}
    assert len(after.delivered) == len(delivered) == IN_FLIGHT
    for row in after.rows:
        status = after.results[row.coordinates.workflow_id]
        assert status.decision_id == str(row.decision_id)
        assert status.route == chosen(row) == delivered[str(row.decision_id)]


def test_before_the_insert_the_answer_is_lost_and_the_second_one_counts(
    aftermaths: dict[Point, Aftermath],
) -> None:
    after = aftermaths["before the insert"]
    assert {len(shelves) for shelves in after.model.answered.values()} == {2}
    for row in after.rows:
        first, second = after.model.answered[str(row.state)]
        assert chosen(row) == second != first


@pytest.mark.parametrize("point", POINTS[1:])
def test_once_it_is_committed_the_model_is_not_asked_again(
    aftermaths: dict[Point, Aftermath], point: Point
) -> None:
    after = aftermaths[point]
    assert after.model.requests == IN_FLIGHT
    for row in after.rows:
        assert [chosen(row)] == after.model.answered[str(row.state)]


@pytest.mark.parametrize("count", [60, pytest.param(1000, marks=pytest.mark.long)])
async def test_a_worker_killed_in_the_middle_of_many_events_loses_and_doubles_nothing(
    house: House, count: int
) -> None:
    queue = f"events-{count}"
    model = CountingModel(latency=0.05)
    async with Server(model) as server:
        environ = house.environ(server, queue)
        async with house.worker(environ) as first:
            given = b"\n".join(lines(queue, count))
            triage = asyncio.create_task(
                run("triage", "-", "--json", "--tenant", queue, environ=environ, given=given)
            )
            await until(lambda: model.requests >= count // 3 or triage.done())
            assert (await first.killed()).code == -9
        assert model.requests < count
        async with house.successor(environ):
            finished = await triage
    assert finished.code == 0, finished.errors
    summary = finished.json
    assert (summary["started"], summary["decisions"], summary["reviews"]) == (count, count, 0)
    rows = await house.rows(queue)
    assert len(rows) == len({row.coordinates.workflow_id for row in rows}) == count
    outbox = house.outbox(queue)
    assert len(outbox) == len({line["key"] for line in outbox}) == count
    assert {line["decision_id"]: line["route"] for line in outbox} == {
        str(row.decision_id): chosen(row) for row in rows
    }
    assert summary["routes"] == Counter(chosen(row) for row in rows)
    assert model.requests <= count + 50, "only what was in flight is asked again"


async def test_a_worker_that_is_told_to_stop_finishes_its_calls_in_flight(house: House) -> None:
    queue, count = "stopping", 10
    model = CountingModel()
    model.open.clear()
    async with Server(model) as server:
        environ = house.environ(server, queue)
        async with house.worker(environ) as first:
            runs = await house.accept(events(queue, count), queue)
            await until(lambda: server.at_once == count)
            async with house.successor(environ):
                stopping = asyncio.create_task(first.terminated())
                await asyncio.sleep(0)  # the signal is sent; the calls are still open
                model.open.set()
                stopped = await stopping
                results = await house.results(runs)
    assert (stopped.code, stopped.output) == (0, "")
    assert "Traceback" not in stopped.errors
    assert len(results) == len(await house.rows(queue)) == model.requests == count


@pytest.mark.long
async def test_a_worker_with_the_local_model_stays_under_400_mb(house: House) -> None:
    tickets = (ROOT / "examples" / "tickets.jsonl").read_bytes().splitlines()[:60]
    environ = house.environ(queue="local") | {"CLASSIFIER_APP": "classifier.default_app:app"}
    async with house.worker(environ) as worker:
        finished = await run(
            "triage", "-", "--tenant", "local", "--json", environ=environ, given=b"\n".join(tickets)
        )
        assert finished.json["decisions"] == len(tickets)
        assert peak_memory(worker.pid) < 400
