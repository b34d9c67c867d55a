"""Events that cannot be handled: kept, replayed under the same key or dropped, and never in anybody's way."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from temporalio.client import Client, WorkflowExecutionStatus, WorkflowFailureError, WorkflowUpdateFailedError
from temporalio.exceptions import ApplicationError

from classifier.app import App
from classifier.audit.dead_letters import DeadLetterQuery, DeadLetters
from classifier.audit.history import History
from classifier.audit.memory import MemoryStore
from classifier.audit.postgres import PostgresStore
from classifier.audit.records import HistoryEvent, SourceEvent
from classifier.errors import StoreError, StoreUnavailable
from tests.servers import Answer, Server
from tests.workflows.tickets import (
    Handle,
    Ticket,
    always,
    answer,
    app,
    dead,
    event,
    outbox,
    review,
    says,
    start,
    triaging,
)
from workflows.dead_letters import DROP, REPLAY
from workflows.triage import TriageWorkflow


async def refusal(handle: Handle, update: str, by: str = "robin") -> str | None:
    with pytest.raises(WorkflowUpdateFailedError) as refused:
        await answer(handle, update, by)
    assert isinstance(refused.value.cause, ApplicationError)
    return refused.value.cause.type


def kinds(store: MemoryStore) -> list[str]:
    return [each.kind for each in store.history.values()]


def renamed(declared: App) -> App:
    ((_, playbook),) = declared.playbooks
    return App(playbooks=[replace(playbook, id="another")])


def careless(answers: Ticket) -> str:
    raise ValueError("what nobody thought of")


async def test_a_refused_delivery_is_kept_with_why_and_replayed_under_the_same_key(
    client: Client, queue: str, tmp_path: Path
) -> None:
    store = MemoryStore()
    async with Server([Answer(status=503), Answer(status=404), Answer()]) as hook:
        async with triaging(client, app(always(says("technical")), hook=hook.url), store, queue, tmp_path):
            handle = await start(client, queue, event("1"))
            status = await dead(handle)
            assert (status.route, status.reasons) == ("technical", ["DELIVERY_REJECTED"])
            replayed = await answer(handle, REPLAY, reason="the address was wrong")
            assert (replayed.state, replayed.reasons) == ("delivered", [])
            assert (await handle.result()).destination == "webhook 127.0.0.1"
        keys = [call.headers["idempotency-key"] for call in hook.calls]
        bodies = {call.body for call in hook.calls}
    letter, replay, delivery = store.history.values()
    assert keys == [str(delivery.event_id)] * 3
    assert len(bodies) == 1
    assert (letter.kind, letter.actor, letter.workflow_id) == ("dead_letter", "classifier", handle.id)
    assert str(letter.decision_id) == status.decision_id
    assert letter.body == {
        "stage": "deliver",
        "code": "DELIVERY_REJECTED",
        "attempts": 2,
        "status": 404,
        "playbook": "tickets",
        "route": "technical",
        "source": "/tests",
        "event": "1",
        "type": "ticket",
    }
    assert (replay.kind, replay.actor) == ("replay", "robin")
    assert replay.body == {"stage": "deliver", "code": "DELIVERY_REJECTED", "reason": "the address was wrong"}


async def test_a_dropped_event_ends_its_run_is_never_delivered_and_stays_known(
    client: Client, queue: str, tmp_path: Path
) -> None:
    store = MemoryStore()
    async with (
        Server([Answer(status=410)]) as hook,
        triaging(client, app(always(says("technical")), hook=hook.url), store, queue, tmp_path),
    ):
        handle = await start(client, queue, event("1"))
        await dead(handle)
        assert (await answer(handle, DROP, "kim", "spam")).state == "dropped"
        assert (await handle.result()).state == "dropped"
    assert [(each.kind, each.actor) for each in store.history.values()] == [
        ("dead_letter", "classifier"),
        ("drop", "kim"),
    ]
    assert list(await store.accepted([SourceEvent("acme", "/tests", "1")]))


async def test_whoever_replays_hears_that_it_came_to_nothing_again_and_it_is_one_more_dead_letter(
    client: Client, queue: str, tmp_path: Path
) -> None:
    store = MemoryStore()
    async with Server([Answer(status=404), Answer(status=401), Answer()]) as hook:
        async with triaging(client, app(always(says("technical")), hook=hook.url), store, queue, tmp_path):
            handle = await start(client, queue, event("1"))
            await dead(handle)
            again = await answer(handle, REPLAY)
            assert (again.state, again.reasons) == ("dead_letter", ["DELIVERY_REJECTED"])
            assert (await answer(handle, REPLAY)).state == "delivered"
        assert len({call.headers["idempotency-key"] for call in hook.calls}) == 1
    assert kinds(store) == ["dead_letter", "replay", "dead_letter", "replay", "delivery"]


async def test_what_a_person_chose_and_nobody_took_is_a_dead_letter_of_that_person(
    client: Client, queue: str, tmp_path: Path
) -> None:
    store = MemoryStore()
    async with Server([Answer(status=404)]) as hook:
        declared = app(always(says("billing", 0.6)), hook=hook.url)
        async with triaging(client, declared, store, queue, tmp_path):
            handle = await start(client, queue, event("1"))
            while (await handle.query(TriageWorkflow.status)).state != "review":
                await asyncio.sleep(0.05)
            chosen = await review(handle, "technical")
            assert (chosen.state, chosen.decided_by) == ("dead_letter", "kim")
            await handle.terminate()
    (letter,) = (each for each in store.history.values() if each.kind == "dead_letter")
    assert letter.actor == "kim"


async def test_an_order_that_makes_no_sense_is_refused_and_leaves_no_trace(
    client: Client, queue: str, tmp_path: Path
) -> None:
    store = MemoryStore()
    async with (
        Server([Answer(status=404), Answer(status=500), Answer()]) as hook,
        triaging(client, app(always(says("technical")), hook=hook.url), store, queue, tmp_path),
    ):
        handle = await start(client, queue, event("1"))
        await dead(handle)
        assert await refusal(handle, REPLAY, " ") == "NO_NAME"
        hook.asked.clear()
        replaying = asyncio.create_task(answer(handle, REPLAY))
        await hook.asked.wait()
        assert await refusal(handle, DROP) == "NOT_A_DEAD_LETTER"
        assert (await replaying).state == "delivered"
    assert kinds(store) == ["dead_letter", "replay", "delivery"]


async def test_tri_o05_a_poison_event_is_a_dead_letter_at_once_and_once_mended_is_decided_anew(
    client: Client, queue: str, tmp_path: Path
) -> None:
    store = MemoryStore()
    model = always(says("billing"))

    async with triaging(client, app(model, route=careless), store, queue, tmp_path):
        handle = await start(client, queue, event("2", {"body": 42}))
        status = await dead(handle)
        assert status.reasons == ["POLICY_ERROR"]
        assert len(model.requests) == 1
    async with triaging(client, app(model), store, queue, tmp_path):
        assert (await answer(handle, REPLAY)).state == "delivered"
        await handle.result()
    letter, replay, delivery = store.history.values()
    failed, decided = store.decisions.values()
    assert (letter.body["stage"], letter.body["attempts"]) == ("decide", 1)
    assert (letter.decision_id, delivery.decision_id) == (failed.decision_id, decided.decision_id)
    assert replay.kind == "replay"
    assert len(outbox(tmp_path)) == 1


async def test_a_run_whose_playbook_is_gone_waits_for_it_instead_of_failing(
    client: Client, queue: str, tmp_path: Path
) -> None:
    store = MemoryStore()
    async with triaging(client, renamed(app(always(says("billing")))), store, queue, tmp_path):
        handle = await start(client, queue, event("1"))
        assert (await dead(handle)).reasons == ["CONFIGURATION"]
    async with triaging(client, app(always(says("billing"))), store, queue, tmp_path):
        assert (await answer(handle, REPLAY)).state == "delivered"


async def test_an_event_with_more_than_can_travel_to_an_activity_is_a_dead_letter(
    client: Client, queue: str, tmp_path: Path
) -> None:
    store = MemoryStore()
    async with triaging(client, app(always(says("billing"))), store, queue, tmp_path):
        handle = await start(client, queue, event("1", "x" * 1_990_000))
        assert (await dead(handle)).reasons == ["INPUT_TOO_LARGE"]
        assert (await answer(handle, DROP)).state == "dropped"
    assert store.decisions == {}


class Refusing(MemoryStore):
    """Refuses to record deliveries for good, the first time."""

    def __init__(self) -> None:
        super().__init__()
        self.refused = 0

    async def record_events(self, events: Sequence[HistoryEvent]) -> None:
        if events[0].kind == "delivery" and not self.refused:
            self.refused += 1
            raise StoreError("refused, for this test")
        await super().record_events(events)


async def test_a_replay_of_what_was_appended_already_adds_no_second_line(
    client: Client, queue: str, tmp_path: Path
) -> None:
    store = Refusing()
    async with triaging(client, app(always(says("billing"))), store, queue, tmp_path):
        handle = await start(client, queue, event("1"))
        assert (await dead(handle)).reasons == ["STORE_ERROR"]
        assert len(outbox(tmp_path)) == 1
        assert (await answer(handle, REPLAY)).state == "delivered"
    assert len(outbox(tmp_path)) == 1
    assert kinds(store) == ["dead_letter", "replay", "delivery"]


async def test_a_stopped_dead_letter_is_over_and_says_so(client: Client, queue: str, tmp_path: Path) -> None:
    store = MemoryStore()
    async with triaging(client, app(always(says("billing")), route=careless), store, queue, tmp_path):
        handle = await start(client, queue, event("1"))
        await dead(handle)
        await handle.cancel()
        with pytest.raises(WorkflowFailureError):
            await handle.result()
        assert (await handle.describe()).status == WorkflowExecutionStatus.CANCELED
    assert kinds(store) == ["dead_letter", "stop"]


class Forgetful(MemoryStore):
    """Loses its connection before the first event is recorded."""

    def __init__(self) -> None:
        super().__init__()
        self.failures = 0

    async def record_events(self, events: Sequence[HistoryEvent]) -> None:
        self.failures += 1
        if self.failures == 1:
            raise StoreUnavailable("gone, for this test")
        await super().record_events(events)


async def test_a_dead_letter_that_could_not_be_recorded_is_recorded_once_by_the_next_attempt(
    client: Client, queue: str, tmp_path: Path
) -> None:
    store = Forgetful()
    async with triaging(client, app(always(says("billing")), route=careless), store, queue, tmp_path):
        handle = await start(client, queue, event("1"))
        await dead(handle)
        await handle.terminate()
    assert (store.failures, kinds(store)) == (2, ["dead_letter"])


async def test_whoever_hears_of_a_dead_letter_finds_it_in_the_list_and_nobody_is_asked_for_a_review(
    client: Client, queue: str, tmp_path: Path, database_url: str
) -> None:
    store = PostgresStore(database_url, hash_key=b"a key for tests, thirty-two bytes")
    async with History(database_url) as history, DeadLetters(database_url) as letters:

        async def listed() -> list[str]:
            return [one.code for one in await letters.page(DeadLetterQuery(tenant="acme"))]

        async with triaging(client, app(always(says("billing")), route=careless), store, queue, tmp_path):
            handle = await start(client, queue, event("1"))
            for _ in range(2):
                await dead(handle)
                assert await listed() == ["POLICY_ERROR"]
                assert await history.open_reviews("acme") == ()
                settled = (await history.settled("acme", [handle.id]))[handle.id]
                assert (settled.dead, settled.waiting, settled.dropped) == ("POLICY_ERROR", False, False)
                await answer(handle, REPLAY)
            await answer(handle, DROP)
        assert await listed() == []
        settled = (await history.settled("acme", [handle.id]))[handle.id]
        assert (settled.dead, settled.waiting, settled.dropped) == (None, False, True)
    await store.aclose()
