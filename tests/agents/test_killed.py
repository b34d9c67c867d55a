"""SIGKILL at each point of a turn: it ends once, each side effect once, each decision once.

A worker process dies at its point; a second worker, in this process, goes on with the thread.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import pytest
from temporalio.client import Client

from classifier.audit.history import History
from classifier.audit.postgres import PostgresStore
from classifier.audit.query import DecisionQuery
from classifier.decision import Decision
from tests.agents.charging import REPLY, charging
from tests.agents.llm import LLM, Pause, Reply, Wants
from tests.agents.support import events, send, shown, start, update, worker_of
from tests.classifier.temporal.letters import until
from tests.processes import environment, started, state_folder
from tests.servers import Answer, Call, Server
from workflows.agent_messages import APPROVE, STATE, TRANSCRIPT, Approval, ThreadState, Turn

pytestmark = pytest.mark.slow

Point: TypeAlias = tuple[str, int]
FEW: Sequence[Point] = (("input commit", 1), ("stream insert", 3), ("tool ends", 1))
THE_REST: Sequence[Point] = (
    ("input starts", 1),
    ("input insert", 1),
    ("input ends", 1),
    ("chat starts", 1),
    ("stream insert", 1),
    ("stream commit", 1),
    ("chat ends", 1),
    ("waiting", 1),
    ("tool starts", 1),
    ("chat ends", 2),
    ("output insert", 1),
    ("output commit", 1),
    ("output ends", 1),
)
"""Where it dies, and at which time of coming there: the second model call streams three pieces, slowly."""


@dataclass
class Desk:
    """Charges what it has not charged yet."""

    asked: list[str] = field(default_factory=list[str])
    charged: Counter[str] = field(default_factory=Counter[str])

    def __call__(self, call: Call) -> Answer:
        key = call.json["key"]
        self.asked.append(key)
        if key not in self.charged:
            self.charged[key] += 1
        return Answer({"charged": call.json["order"]})


@dataclass
class Aftermath:
    """What a worker that died and its successor left behind."""

    turn: Turn
    turns: list[Turn]
    seen: list[dict[str, Any]]
    rows: list[Decision]
    desk: Desk
    requests: list[dict[str, Any]]


def charge_then_say(request: dict[str, Any]) -> Reply:
    if any(message["role"] == "tool" for message in request["messages"]):
        return [REPLY[0], Pause(0.3), REPLY[1], Pause(0.3), REPLY[2]]
    return ["I charge it. ", Wants("charge", {"order": 7})]


async def killed_at(client: Client, database_url: str, address: str, point: str, count: int) -> Aftermath:
    queue, desk = f"killed-{point.replace(' ', '-')}-{count}", Desk()
    async with LLM(script=charge_then_say) as llm, Server(desk) as server:
        with state_folder() as home:
            environ = environment(
                home,
                TEMPORAL_ADDRESS=address,
                DATABASE_URL=database_url,
                LLM_URL=llm.url,
                DESK_URL=server.url,
            )
            module = "tests.apps.doomed_agent"
            async with started(queue, point, str(count), environ=environ, module=module) as worker:
                await worker.said("doomed")
                thread = await start(client, queue, context={"tenant_id": queue})
                sent = asyncio.create_task(send(thread, "charge order 7", "m1"))
                approving = asyncio.create_task(approved(thread, on=point != "waiting"))
                if point == "waiting":
                    await until(lambda: waits(thread), 60)
                    await worker.killed()
                assert (await worker.finished()).code == -9, worker.errors
        store = PostgresStore(database_url, hash_key=b"only-for-tests")
        async with worker_of(client, queue, charging(llm.url, server.url), store):
            if point == "waiting":
                await approving
                approving = asyncio.create_task(approved(thread, on=True))
            turn = await sent
            await approving
            turns: list[Turn] = await thread.query(TRANSCRIPT, result_type=list[Turn])
            seen = await events(client, thread, "m1")
        await store.aclose()
        async with History(database_url) as history:
            rows = (await history.page(DecisionQuery(tenant=queue), 100)).decisions
        return Aftermath(turn, turns, seen, list(rows), desk, llm.requests)


async def waits(thread: Any) -> bool:
    state: ThreadState = await thread.query(STATE, result_type=ThreadState)
    return state.waiting is not None


async def approved(thread: Any, *, on: bool) -> None:
    """A person who approves as soon as they are asked."""
    if on:
        await until(lambda: waits(thread), 120)
        await update(thread, APPROVE, Approval("m1:1", "kim"))


@pytest.fixture(
    scope="module",
    params=[pytest.param(FEW, id="few"), pytest.param(THE_REST, id="the-rest", marks=pytest.mark.long)],
)
async def aftermaths(
    request: pytest.FixtureRequest, temporal_address: str, client: Client, postgres_server: Any
) -> dict[Point, Aftermath]:
    """Several at a time, since most of it is waiting for Temporal to notice."""
    room = asyncio.Semaphore(5)
    points: Sequence[Point] = request.param
    async with postgres_server.database() as database_url:

        async def one(point: str, count: int) -> Aftermath:
            async with room:
                return await killed_at(client, database_url, temporal_address, point, count)

        found = await asyncio.gather(*(one(*point) for point in points))
    return dict(zip(points, found, strict=True))


def test_a_turn_whose_worker_is_killed_ends_once_with_each_effect_and_decision_once(
    aftermaths: dict[Point, Aftermath],
) -> None:
    for point, after in aftermaths.items():
        turn = after.turn
        assert (turn.outcome, turn.reply) == ("finished", "I charge it. " + "".join(REPLY)), point
        assert after.turns == [turn], point
        assert [event["type"] for event in after.seen].count("ended") == 1, point
        assert shown(after.seen) == turn.reply, point
        assert list(after.desk.charged.values()) == [1], point
        assert len(set(after.desk.asked)) == 1, point
        check_rows(after.rows, turn)


def check_rows(rows: Sequence[Decision], turn: Turn) -> None:
    """One row for the input and one for the output; in the stream, the last attempt has judged all of it."""
    phases = Counter(row.phase for row in rows)
    assert (phases["input"], phases["output"]) == (1, 1)
    assert len({row.decision_id for row in rows}) == len(rows)
    acted_on = {str(row.decision_id): row for row in rows if str(row.decision_id) in turn.decision_ids}
    assert list(acted_on)
    assert len(acted_on) == len(turn.decision_ids)
    judged = sorted(
        (row for row in acted_on.values() if row.phase == "stream"),
        key=lambda row: (row.coordinates.activity_id, row.ordinal),
    )
    assert "".join(str(row.state) for row in judged) == turn.reply
    assert {row.outcome for row in rows} == {"allowed"}


def test_a_reader_is_told_that_an_attempt_begins_anew(aftermaths: dict[Point, Aftermath]) -> None:
    for point in aftermaths.keys() & {("chat ends", 1), ("stream insert", 3)}:
        assert "restart" in [event["type"] for event in aftermaths[point].seen], point


def test_what_was_done_before_a_crash_is_not_done_again(aftermaths: dict[Point, Aftermath]) -> None:
    for point in aftermaths.keys() & {("waiting", 1), ("output insert", 1), ("tool starts", 1)}:
        assert len(aftermaths[point].requests) == 2, point
        assert len(aftermaths[point].desk.asked) == 1, point
    for point in aftermaths.keys() & {("tool ends", 1)}:
        assert len(aftermaths[point].desk.asked) == 2, point
