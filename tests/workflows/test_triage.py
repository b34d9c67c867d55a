"""Triage of one event in real runs: delivered, or decided by a person and then delivered; never twice."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Sequence
from pathlib import Path

import pytest
from temporalio.client import Client, WorkflowFailureError, WorkflowUpdateFailedError
from temporalio.exceptions import ApplicationError, CancelledError

from classifier.audit.history import History
from classifier.audit.memory import MemoryStore
from classifier.audit.postgres import PostgresStore
from classifier.audit.records import HistoryEvent
from classifier.errors import ModelUnavailable, StoreUnavailable
from classifier.models.scripted import ScriptedModel
from classifier.playbook import Review, RouteFunction
from tests.servers import Answer, Server
from tests.workflows.tickets import (
    REFUSED,
    TOKEN,
    Handle,
    Ticket,
    always,
    answer,
    app,
    by_department,
    dead,
    event,
    outbox,
    review,
    says,
    start,
    triaging,
)
from workflows.dead_letters import DROP
from workflows.messages import TriageStatus
from workflows.triage import TriageWorkflow

KEY = b"a key for tests, thirty-two bytes"


async def waiting(handle: Handle) -> TriageStatus:
    ends = time.monotonic() + 15
    while (status := await handle.query(TriageWorkflow.status)).state != "review":
        assert time.monotonic() < ends, status
        await asyncio.sleep(0.05)
    return status


async def test_a_clear_ticket_is_delivered_to_the_outbox_once(
    client: Client, queue: str, tmp_path: Path
) -> None:
    store = MemoryStore()
    async with triaging(client, app(always(says("billing"))), store, queue, tmp_path):
        handle = await start(client, queue, event("1"))
        status = await handle.result()
    (line,) = outbox(tmp_path)
    (decision,) = store.decisions.values()
    (delivery,) = store.history.values()
    assert (status.state, status.route, status.decided_by) == ("delivered", "billing", "classifier")
    assert status.destination == "outbox outbox.jsonl"
    assert line == {
        "key": str(delivery.event_id),
        "route": "billing",
        "decided_by": "classifier",
        "decision_id": str(decision.decision_id),
        "event": event("1"),
    }
    assert (delivery.kind, delivery.actor, delivery.workflow_id) == ("delivery", "classifier", handle.id)
    assert decision.ids.message == "1"


async def test_a_webhook_that_failed_gets_the_same_key_and_token_again(
    client: Client, queue: str, tmp_path: Path
) -> None:
    store = MemoryStore()
    async with Server([Answer(status=500), Answer(status=204, body=b"")]) as hook:
        async with triaging(client, app(always(says("technical")), hook=hook.url), store, queue, tmp_path):
            status = await (await start(client, queue, event("1"))).result()
        first, second = hook.calls
    (delivery,) = store.history.values()
    assert status.destination == "webhook 127.0.0.1"
    assert first.body == second.body
    assert first.json["event"] == event("1")
    for call in (first, second):
        assert call.headers["idempotency-key"] == str(delivery.event_id)
        assert call.headers["authorization"] == f"Bearer {TOKEN}"


async def test_whoever_hears_that_an_event_waits_finds_it_among_the_open_reviews(
    client: Client, queue: str, tmp_path: Path, database_url: str
) -> None:
    store = PostgresStore(database_url, hash_key=KEY)
    async with History(database_url) as history:

        async def listed() -> list[tuple[str | None, tuple[str, ...]]]:
            return [(one.route, one.reasons) for one in await history.open_reviews("acme")]

        async with triaging(client, app(always(says("technical", 0.6))), store, queue, tmp_path):
            handle = await start(client, queue, event("1"))
            await waiting(handle)
            assert await listed() == [("technical", ("low_probability:department",))]
            assert (await history.settled("acme", [handle.id]))[handle.id].waiting
            await review(handle, "billing")
            await handle.result()
            assert await listed() == []
            assert not (await history.settled("acme", [handle.id]))[handle.id].waiting
    await store.aclose()


@pytest.mark.parametrize(
    ("model", "reason"),
    [
        (always(says("billing", 0.6)), "low_probability:department"),
        (always(REFUSED), "refused"),
        (always(ModelUnavailable("down")), "error:MODEL_UNAVAILABLE"),
    ],
)
async def test_what_is_not_sure_enough_waits_and_nothing_is_delivered(
    client: Client, queue: str, tmp_path: Path, model: ScriptedModel, reason: str
) -> None:
    async with triaging(client, app(model), MemoryStore(), queue, tmp_path):
        handle = await start(client, queue, event("1"))
        assert reason in (await waiting(handle)).reasons
        await handle.terminate()
    assert outbox(tmp_path) == []


@pytest.mark.parametrize("said", ["security", "BILLING", "billin"])
async def test_a_route_outside_of_the_set_is_never_taken(
    client: Client, queue: str, tmp_path: Path, said: str
) -> None:
    store = MemoryStore()
    declared = app(always(says("billing")), route=lambda answers: said)
    async with triaging(client, declared, store, queue, tmp_path):
        handle = await start(client, queue, event("1"))
        status = await waiting(handle)
        assert (status.route, status.reasons) == (None, ["not_in_set"])
        await handle.terminate()
    (decision,) = store.decisions.values()
    assert decision.branch is not None
    assert decision.branch.reasons == ("not_in_set",)


async def refusal(handle: Handle, route: str, by: str) -> str | None:
    with pytest.raises(WorkflowUpdateFailedError) as refused:
        await review(handle, route, by)
    assert isinstance(refused.value.cause, ApplicationError)
    return refused.value.cause.type


async def test_a_choice_that_cannot_be_carried_out_is_refused_and_leaves_no_trace(
    client: Client, queue: str, tmp_path: Path
) -> None:
    store = MemoryStore()
    async with Server([Answer(status=500), Answer()]) as hook:
        declared = app(always(says("technical", 0.6)), hook=hook.url)
        async with triaging(client, declared, store, queue, tmp_path):
            handle = await start(client, queue, event("1"))
            await waiting(handle)
            assert await refusal(handle, "security", "kim") == "UNKNOWN_ROUTE"
            assert await refusal(handle, "billing", " \t") == "NO_REVIEWER"
            choosing = asyncio.create_task(review(handle, "technical"))
            await hook.asked.wait()
            assert await refusal(handle, "billing", "robin") == "NOT_IN_REVIEW"
            assert (await choosing).decided_by == "kim"
    kinds = [each.kind for each in store.history.values()]
    assert kinds == ["review", "delivery"]


async def events(database_url: str, handle: Handle) -> Sequence[HistoryEvent]:
    async with History(database_url) as history:
        return await history.events("acme", handle.id)


async def test_a_persons_choice_is_in_the_history_with_who_and_when(
    client: Client, queue: str, tmp_path: Path, database_url: str
) -> None:
    store = PostgresStore(database_url, hash_key=KEY)
    async with triaging(client, app(always(says("technical", 0.6))), store, queue, tmp_path):
        handle = await start(client, queue, event("1"))
        assert (await waiting(handle)).route == "technical"
        began = time.time()
        await review(handle, "billing", "kim", "it is about an invoice")
        await handle.result()
        chosen, delivered = await events(database_url, handle)
    await store.aclose()
    assert (chosen.kind, chosen.actor) == ("review", "kim")
    assert abs(chosen.at.timestamp() - began) < 5
    assert chosen.body == {
        "route": "billing",
        "suggested": "technical",
        "reason": "it is about an invoice",
    }
    assert (delivered.kind, delivered.decision_id) == ("delivery", chosen.decision_id)
    assert outbox(tmp_path)[0]["decided_by"] == "kim"


@pytest.mark.parametrize("gate", [0.1, 0.99])
async def test_a_waiting_run_survives_restart_and_threshold(
    client: Client, queue: str, tmp_path: Path, gate: float
) -> None:
    """The second worker replays what the first one decided, under other thresholds."""
    store = MemoryStore()
    model = always(says("billing", 0.6))
    async with triaging(client, app(model), store, queue, tmp_path):
        handle = await start(client, queue, event("1"))
        await waiting(handle)
    assert outbox(tmp_path) == []
    async with triaging(client, app(model, gate=gate), store, queue, tmp_path):
        assert (await waiting(handle)).reasons == ["low_probability:department"]
        assert (await review(handle, "billing")).state == "delivered"
        await handle.result()
    assert len(model.requests) == len(outbox(tmp_path)) == 1


class Forgetful(MemoryStore):
    """Loses its connection the first time after something was delivered."""

    def __init__(self) -> None:
        super().__init__()
        self.failures = 0

    async def record_events(self, events: Sequence[HistoryEvent]) -> None:
        if not self.failures:
            self.failures += 1
            raise StoreUnavailable("gone, for this test")
        await super().record_events(events)


async def test_an_attempt_after_the_append_adds_no_second_line(
    client: Client, queue: str, tmp_path: Path
) -> None:
    store = Forgetful()
    async with triaging(client, app(always(says("billing"))), store, queue, tmp_path):
        await (await start(client, queue, event("1"))).result()
    assert store.failures == 1
    assert len(outbox(tmp_path)) == len(store.history) == 1


async def test_a_stop_ends_a_run_that_waits(client: Client, queue: str, tmp_path: Path) -> None:
    async with triaging(client, app(always(REFUSED)), MemoryStore(), queue, tmp_path):
        handle = await start(client, queue, event("1"))
        await waiting(handle)
        await handle.cancel()
        with pytest.raises(WorkflowFailureError) as ended:
            await handle.result()
    assert isinstance(ended.value.cause, CancelledError)
    assert outbox(tmp_path) == []


MARKER = "4111-1111-1111-1111"


def careless(answers: Ticket) -> str | Review:
    raise ValueError(f"card {MARKER}, of all things")


@pytest.mark.parametrize("route", [by_department, careless])
async def test_content_is_in_inputs_and_nowhere_else_and_secrets_are_nowhere(
    client: Client, queue: str, tmp_path: Path, caplog: pytest.LogCaptureFixture, route: RouteFunction[Ticket]
) -> None:
    store = Forgetful()
    async with Server([Answer({"echo": MARKER}, 500), Answer({"echo": MARKER}, 404)]) as hook:
        declared = app(always(says("technical")), hook=hook.url, route=route)
        with caplog.at_level(logging.DEBUG):
            async with triaging(client, declared, store, queue, tmp_path):
                handle = await start(client, queue, event("1", f"card {MARKER}"))
                await dead(handle)
                await answer(handle, DROP)
                await handle.result()
    history = await handle.fetch_history()
    holding = {
        event.WhichOneof("attributes")
        for event in history.events
        if MARKER.encode() in event.SerializeToString()
    }
    assert holding == {
        "workflow_execution_started_event_attributes",
        "activity_task_scheduled_event_attributes",
    }
    assert not any(TOKEN.encode() in event.SerializeToString() for event in history.events)
    assert MARKER not in caplog.text
    assert TOKEN not in caplog.text
    assert MARKER not in str([each.body for each in store.history.values()])
