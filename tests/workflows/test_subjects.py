"""Events of one subject: the newest state wins, a burst is one run, a loop is slow, nothing is lost."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncGenerator, Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from temporalio.client import Client

from activities.subject_messages import Version, version_of
from classifier.app import App
from classifier.audit.history import History
from classifier.audit.memory import MemoryStore
from classifier.audit.records import HistoryEvent, SourceEvent
from classifier.playbook import Review
from commands.triage import TriageRun
from embedded.stack import Addresses
from tests.workflows.tickets import (
    Handle,
    Ticket,
    always,
    answer,
    app,
    by_department,
    dead,
    event,
    outbox,
    says,
)
from worker import Service, Settings, working
from workflows.dead_letters import REPLAY
from workflows.events import Incoming, by_type
from workflows.intake import Gathering, Intake
from workflows.subjects import SETTLES_WITHIN

AT_ONCE = Gathering(timedelta(0), timedelta(0), runs_a_minute=30)
PATIENCE = 60.0


class Desk:
    """A worker, and events about one ticket for it."""

    def __init__(self, client: Client, queue: str, home: Path, store: MemoryStore) -> None:
        self.client = client
        self.queue = queue
        self.home = home
        self.store = store

    def event(self, number: str, text: str = "my card", **more: Any) -> Incoming:
        given = {**event(number, text), "source": self.queue, "subject": "ticket-9", **more}
        return Incoming(1, given, SourceEvent("acme", self.queue, number))

    def intake(self, gathering: Gathering = AT_ONCE) -> Intake:
        return Intake(self.client, self.store, task_queue=self.queue, playbook="tickets", gathering=gathering)

    def happened(self, kind: str) -> list[HistoryEvent]:
        return [each for each in self.store.history.values() if each.kind == kind]

    def delivered(self) -> list[str]:
        return [line["event"]["id"] for line in outbox(self.home)]

    async def until(self, true: Callable[[], bool]) -> None:
        async with asyncio.timeout(PATIENCE):
            while not true():
                await asyncio.sleep(0.02)


@pytest.fixture
async def desk(client: Client, queue: str, tmp_path: Path) -> AsyncGenerator[Desk]:
    store = MemoryStore()
    async with at_work(client, app(always(says("billing"))), store, queue, tmp_path):
        yield Desk(client, queue, tmp_path, store)


@contextlib.asynccontextmanager
async def at_work(
    client: Client, declared: App, store: MemoryStore, queue: str, home: Path
) -> AsyncGenerator[None]:
    settings = Settings(home=home, task_queue=queue, environ={"HOOK_TOKEN": "sk-test-123"})
    service = Service(settings, Addresses(None, None, None), True, "", store, client, None)
    async with working(service, declared):
        yield


async def test_a_late_old_event_is_noted_as_stale_and_changes_nothing(desk: Desk) -> None:
    intake = desk.intake()
    await intake.accept([desk.event("v1", sequence="1")])
    await desk.until(lambda: desk.delivered() == ["v1"])
    await intake.accept([desk.event("v3", sequence="3")])
    await desk.until(lambda: desk.delivered() == ["v1", "v3"])
    await intake.accept([desk.event("v2", sequence="2")])
    await desk.until(lambda: bool(desk.happened("stale")))
    (stale,) = desk.happened("stale")
    assert stale.body["events"] == ["v2"]
    assert desk.delivered() == ["v1", "v3"]


async def test_an_old_event_is_stale_also_when_the_subjects_workflow_has_ended(desk: Desk) -> None:
    intake = desk.intake()
    (started,) = await intake.accept([desk.event("v3", time="2026-01-01T10:00:03Z")])
    await desk.until(lambda: desk.delivered() == ["v3"])
    await desk.client.get_workflow_handle(started.workflow_id).terminate()
    await intake.accept([desk.event("v2", time="2026-01-01T12:00:02+02:00")])
    await desk.until(lambda: bool(desk.happened("stale")))
    assert desk.delivered() == ["v3"]


async def test_a_burst_is_one_run_that_sees_the_latest_state_and_names_every_event(desk: Desk) -> None:
    intake = desk.intake(Gathering(timedelta(seconds=1), timedelta(seconds=20), 30))
    moment = datetime(2026, 1, 1, tzinfo=UTC)
    batch = [
        desk.event(
            f"e{number:02}", text=f"state {number}", time=(moment + timedelta(seconds=number)).isoformat()
        )
        for number in range(20)
    ]
    await asyncio.gather(*(intake.accept([each]) for each in batch))
    await desk.until(lambda: bool(desk.delivered()))
    (line,) = outbox(desk.home)
    assert line["event"]["data"]["text"] == "state 19"
    (applied,) = desk.happened("applied")
    assert sorted(str(each) for each in _events(applied)) == sorted(each.source.id for each in batch)
    (decision,) = desk.store.decisions.values()
    assert decision.request_context["merged_events"] == applied.body["events"]


async def test_nothing_waits_longer_than_the_longest_wait_however_much_comes(desk: Desk) -> None:
    intake = desk.intake(Gathering(timedelta(seconds=1), timedelta(seconds=2), 30))
    number = 0
    while len(desk.delivered()) < 2:
        number += 1
        assert number < 600
        await intake.accept([desk.event(f"e{number}")])
        await asyncio.sleep(0.1)
    names = [name for applied in desk.happened("applied") for name in _events(applied)]
    assert names == [f"e{place}" for place in range(1, len(names) + 1)]


async def test_a_loop_is_slowed_down_and_noted_and_nothing_of_it_is_lost(desk: Desk) -> None:
    intake = desk.intake(Gathering(timedelta(0), timedelta(0), runs_a_minute=3))
    for number in range(1, 4):
        await intake.accept([desk.event(f"e{number}")])
        await desk.until(lambda: len(desk.delivered()) == number)  # noqa: B023 - awaited at once
    for number in range(4, 51):
        await intake.accept([desk.event(f"e{number}")])
    await desk.until(lambda: bool(desk.happened("loop")))
    assert desk.delivered() == ["e1", "e2", "e3"]
    (loop,) = desk.happened("loop")
    assert loop.body["runs_a_minute"] == 3


async def test_the_first_events_of_a_subject_may_come_in_any_order_and_at_once(desk: Desk) -> None:
    intake = desk.intake()
    numbers = [f"e{number}" for number in range(50)]
    started = await asyncio.gather(*(intake.accept([desk.event(number)]) for number in numbers))
    assert len({each.workflow_id for (each,) in started}) == 1
    await desk.until(lambda: sum(len(_events(each)) for each in desk.happened("applied")) == 50)
    names = [name for applied in desk.happened("applied") for name in _events(applied)]
    assert sorted(names) == sorted(numbers)


async def test_a_repeat_has_the_answer_of_the_first_and_is_not_decided_again(desk: Desk) -> None:
    intake = desk.intake()
    (first,) = await intake.accept([desk.event("e1")])
    await desk.until(lambda: desk.delivered() == ["e1"])
    await desk.client.get_workflow_handle(first.workflow_id).terminate()
    (again,) = await intake.accept([desk.event("e1")])
    assert (again.workflow_id, again.run_id, again.kind) == (first.workflow_id, first.run_id, "repeat")


@given(st.integers(0, 10**12), st.integers(0, 10**12))
def test_sequences_of_digits_are_compared_as_numbers(one: int, other: int) -> None:
    older = _version({"sequence": str(one)}).is_older_than(_version({"sequence": f"000{other}"}))
    assert older == (one < other)


@given(st.datetimes(timezones=st.timezones()), st.datetimes(timezones=st.timezones()))
def test_times_are_compared_as_moments_whatever_their_zone(one: datetime, other: datetime) -> None:
    first, second = version_of({"time": one.isoformat()}), version_of({"time": other.isoformat()})
    if first is not None and second is not None:
        assert first.is_older_than(second) == (one.astimezone(UTC) < other.astimezone(UTC))


@given(st.text(), st.text())
def test_what_cannot_be_compared_is_not_older(time: str, sequence: str) -> None:
    mixed = version_of({"sequence": sequence or "a"}), Version("time", time)
    assert mixed[0] is None or not mixed[0].is_older_than(mixed[1])
    assert not mixed[1].is_older_than(mixed[0])
    assert version_of({}) is None


def _version(given: dict[str, Any]) -> Version:
    found = version_of(given)
    assert found is not None
    return found


def _events(applied: HistoryEvent) -> list[Any]:
    events = applied.body["events"]
    assert isinstance(events, list)
    return events


class NoProgress:
    """Shown nowhere."""

    def advance(self, done: int) -> None:
        return


async def test_a_file_that_repeats_what_a_subject_has_taken_follows_nothing(
    desk: Desk, database_url: str
) -> None:
    taken = desk.event("v1")
    (started,) = await desk.intake().accept([taken])
    assert started.gathered
    alone = Intake(desk.client, desk.store, task_queue=desk.queue, playbook="tickets")
    async with History(database_url) as history:
        triage = TriageRun(
            intakes={"tickets": alone},
            history=history,
            client=desk.client,
            tenant="acme",
            choose=by_type(app(always(says("billing"))).playbooks),
            progress=NoProgress(),
            tell=pytest.fail,
        )
        summary = await triage.run([json.dumps(taken.event).encode()])
    assert (summary.repeats, summary.started, summary.resumed) == (1, 0, 0)


async def test_a_dead_letter_of_a_subject_whose_workflow_has_ended_is_replayed_like_any_other(
    client: Client, queue: str, tmp_path: Path
) -> None:
    store = MemoryStore()
    left = [ValueError("nor mended"), ValueError("what nobody thought of")]

    def route(answers: Ticket) -> str | Review:
        if left:
            raise left.pop()
        return by_department(answers)

    async with at_work(client, app(always(says("billing")), route=route), store, queue, tmp_path):
        desk = Desk(client, queue, tmp_path, store)
        (started,) = await desk.intake().accept([desk.event("v1", sequence="1")])
        await desk.until(lambda: len(desk.happened("dead_letter")) == 1)
        await client.get_workflow_handle(started.workflow_id).terminate()
        run = desk.happened("dead_letter")[0].workflow_id
        handle: Handle = client.get_workflow_handle(run)
        await dead(handle)
        assert (await answer(handle, REPLAY)).state == "dead_letter"
        assert (await answer(handle, REPLAY)).state == "delivered"


async def test_tri_o05_a_poison_event_is_a_dead_letter_and_the_next_of_its_subject_does_not_wait_for_it(
    client: Client, queue: str, tmp_path: Path
) -> None:
    store = MemoryStore()
    left = [ValueError("what nobody thought of")]

    def route(answers: Ticket) -> str | Review:
        if left:
            raise left.pop()
        return by_department(answers)

    async with at_work(client, app(always(says("billing")), route=route), store, queue, tmp_path):
        desk = Desk(client, queue, tmp_path, store)
        intake = desk.intake()
        await intake.accept([desk.event("v1", sequence="1")])
        await desk.until(lambda: bool(desk.happened("dead_letter")))
        await intake.accept([desk.event("v2", sequence="2")])
        await desk.until(lambda: desk.delivered() == ["v2"])
    (letter,) = desk.happened("dead_letter")
    assert (letter.body["event"], letter.body["stage"]) == ("v1", "decide")
    waited = store.decisions.values()
    first, second = (decision.decided_at for decision in waited)
    assert second - first < SETTLES_WITHIN
