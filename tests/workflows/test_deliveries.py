"""Where events go: a workflow that is started once, a webhook that is signed, and what is said of each."""

from __future__ import annotations

import asyncio
import contextlib
import uuid
from collections.abc import AsyncGenerator, Sequence
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest
from standardwebhooks import Webhook as StandardWebhook
from temporalio import workflow
from temporalio.api.enums.v1 import EventType, TimeoutType
from temporalio.client import Client, WorkflowFailureError
from temporalio.common import RetryPolicy
from temporalio.exceptions import ActivityError
from temporalio.worker import Worker

from activities.deliver import _PROMPT, DeliveryActivities
from activities.messages import DELIVER, Delivery
from classifier.app import App
from classifier.audit.memory import MemoryStore
from classifier.audit.records import HistoryEvent
from classifier.errors import ConfigurationError, StoreUnavailable
from classifier.playbook import LONGEST_ANSWER, Destination, StartWorkflow, Webhook
from classifier.temporal.heartbeat import INTERVAL
from tests.processes import environment, started, state_folder
from tests.servers import Answer, Call, Drip, Hang, Raw, Reply, Server
from tests.workflows.tickets import (
    ENVIRON,
    TOKEN,
    always,
    answer,
    app,
    dead,
    event,
    says,
    start,
    triaging,
)
from workflows.dead_letters import DROP, fault_of
from workflows.options import DELIVERY_ATTEMPT, DELIVERY_SILENCE

SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
OLD_SECRET = "whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD"
STARTED = EventType.EVENT_TYPE_ACTIVITY_TASK_STARTED
AT = "2026-11-30T09:00:00+00:00"
WITH_SECRETS = {**ENVIRON, "HOOK_SECRET": f"{SECRET}, {OLD_SECRET}"}


def leading_to(destination: Destination) -> App:
    """Everything goes there."""
    ((_, playbook),) = app(always(says("billing"))).playbooks
    return App(playbooks=[replace(playbook, destinations={"*": destination})])


@workflow.defn(name="Billing", sandboxed=False)
class Billing:
    """Somebody else's workflow."""

    @workflow.run
    async def run(self, given: dict[str, Any]) -> dict[str, Any]:
        return given


@contextlib.asynccontextmanager
async def somebody_else(client: Client, queue: str) -> AsyncGenerator[None]:
    async with Worker(client, task_queue=queue, workflows=[Billing]):
        yield


@workflow.defn(name="Impatient", sandboxed=False)
class Impatient:
    """Delivers for a moment only, and says what a dead letter would."""

    @workflow.run
    async def run(self, delivery: Delivery) -> tuple[str, int | None, int | None]:
        try:
            await workflow.execute_activity(
                DELIVER,
                delivery,
                start_to_close_timeout=timedelta(seconds=2),
                schedule_to_close_timeout=timedelta(seconds=2),
                retry_policy=RetryPolicy(initial_interval=timedelta(milliseconds=50), backoff_coefficient=1),
            )
        except ActivityError as error:
            fault = fault_of(error)
            return fault.code, fault.attempts, fault.status
        return "delivered", None, None


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


async def test_a_route_to_a_workflow_starts_it_once_by_type_and_queue_with_what_a_webhook_gets(
    client: Client, queue: str, tmp_path: Path
) -> None:
    store = Forgetful()
    theirs = f"theirs-{uuid.uuid4()}"
    declared = leading_to(StartWorkflow("Billing", theirs, prefix="billing-"))
    async with triaging(client, declared, store, queue, tmp_path):
        status = await (await start(client, queue, event("1"))).result()
    (delivery,) = store.history.values()
    (decision,) = store.decisions.values()
    assert store.failures == 1, "a second attempt found it started"
    assert status.destination == delivery.body["destination"] == f"workflow Billing on {theirs}"
    async with somebody_else(client, theirs):
        given = await client.get_workflow_handle(f"billing-{delivery.event_id}").result()
    assert given == {
        "route": "billing",
        "decided_by": "classifier",
        "decision_id": str(decision.decision_id),
        "event": event("1"),
        "causedby": str(delivery.event_id),
    }


async def test_a_workflow_that_temporal_will_never_start_is_a_dead_letter_at_once(
    client: Client, queue: str, tmp_path: Path
) -> None:
    store = MemoryStore()
    async with triaging(client, leading_to(StartWorkflow("Billing", "")), store, queue, tmp_path):
        handle = await start(client, queue, event("1"))
        assert (await dead(handle)).reasons == ["DELIVERY_REJECTED"]
        await answer(handle, DROP)
    letter = next(iter(store.history.values()))
    assert letter.body["attempts"] == 1


async def test_a_signed_webhook_carries_its_key_as_id_and_a_signature_of_each_secret(
    client: Client, queue: str, tmp_path: Path
) -> None:
    store = MemoryStore()
    async with Server([Answer(status=500), Answer()]) as hook:
        declared = leading_to(Webhook(hook.url, secret_variable="HOOK_SECRET"))
        async with triaging(client, declared, store, queue, tmp_path, environ=WITH_SECRETS):
            await (await start(client, queue, event("1"))).result()
    (delivery,) = store.history.values()
    for call in hook.calls:
        assert call.headers["webhook-id"] == call.headers["idempotency-key"] == str(delivery.event_id)
        assert call.json["causedby"] == str(delivery.event_id)
        for secret in (SECRET, OLD_SECRET):
            StandardWebhook(secret).verify(call.body, dict(call.headers))


@pytest.mark.parametrize("status", [400, 401, 403, 404, 410, 422])
async def test_a_receiver_that_refuses_for_good_is_asked_once(
    client: Client, queue: str, tmp_path: Path, status: int
) -> None:
    store = MemoryStore()
    async with (
        Server([Answer(status=status)]) as hook,
        triaging(client, leading_to(Webhook(hook.url)), store, queue, tmp_path),
    ):
        handle = await start(client, queue, event("1"))
        await dead(handle)
        await answer(handle, DROP)
    letter = next(iter(store.history.values()))
    assert (letter.body["status"], letter.body["attempts"]) == (status, 1)


@pytest.mark.parametrize("status", [408, 409, 425, 429, 502])
async def test_a_receiver_that_cannot_take_it_now_is_asked_again(
    client: Client, queue: str, tmp_path: Path, status: int
) -> None:
    store = MemoryStore()
    busy = Answer(status=status, headers={"retry-after": "0"})
    async with (
        Server([busy, Answer()]) as hook,
        triaging(client, leading_to(Webhook(hook.url)), store, queue, tmp_path),
    ):
        assert (await (await start(client, queue, event("1"))).result()).state == "delivered"
    assert [each.kind for each in store.history.values()] == ["delivery"]


async def test_what_ran_out_of_time_says_what_the_last_attempt_met_and_how_many_there_were(
    client: Client, queue: str, tmp_path: Path
) -> None:
    async with Server(lambda call: Answer(status=503)) as hook, httpx.AsyncClient() as http:
        resolved = leading_to(Webhook(hook.url)).resolve(ENVIRON)
        delivery = DeliveryActivities(resolved, MemoryStore(), home=tmp_path, client=http, environ=ENVIRON)
        given = Delivery("tickets", "billing", event("1"), "acme", str(uuid.uuid4()), "classifier", AT)
        async with Worker(client, task_queue=queue, workflows=[Impatient], activities=[delivery.deliver]):
            code, attempts, status = await client.execute_workflow(
                Impatient.run, given, id=queue, task_queue=queue
            )
        assert (code, attempts, status) == ("DELIVERY_UNAVAILABLE", len(hook.calls), 503)
        assert len(hook.calls) > 1


async def test_a_webhook_that_answers_byte_by_byte_is_given_up_in_its_time_and_asked_again(
    client: Client, queue: str, tmp_path: Path
) -> None:
    async with (
        Server([Drip(b"HTTP/1.1 200 OK\r\n", b"x-more: y\r\n"), Answer()]) as hook,
        triaging(client, leading_to(Webhook(hook.url, timeout=0.5)), MemoryStore(), queue, tmp_path),
    ):
        assert (await (await start(client, queue, event("1"))).result()).state == "delivered"
    assert len(hook.calls) == 2


def test_an_attempt_has_more_time_than_its_parts() -> None:
    assert timedelta(seconds=LONGEST_ANSWER) < DELIVERY_ATTEMPT
    assert timedelta(seconds=INTERVAL) < _PROMPT < DELIVERY_SILENCE < DELIVERY_ATTEMPT


async def test_a_webhook_that_took_it_need_not_finish_what_it_says(
    client: Client, queue: str, tmp_path: Path
) -> None:
    endless = b"HTTP/1.1 200 OK\r\ncontent-length: 1000000000\r\n\r\n"
    broken = b"HTTP/1.1 200 OK\r\ncontent-encoding: gzip\r\ncontent-length: 4\r\n\r\noops"
    replies: list[Reply] = [Hang(endless), Hang(endless + b"x" * 1_000_000), Raw(endless), Raw(broken)]
    async with (
        Server(replies) as hook,
        triaging(client, leading_to(Webhook(hook.url)), MemoryStore(), queue, tmp_path),
    ):
        for number in range(len(replies)):
            status = await (await start(client, queue, event(str(number)))).result()
            assert status.state == "delivered"


async def test_a_delivery_under_way_ends_and_is_on_record_although_its_run_is_stopped(
    client: Client, queue: str, tmp_path: Path
) -> None:
    stopped = asyncio.Event()

    async def reply(call: Call) -> Answer:
        await stopped.wait()
        await asyncio.sleep(1.5)  # longer than it takes a heartbeat to hear of the stop
        return Answer()

    store = MemoryStore()
    async with (
        Server(reply) as hook,
        triaging(client, leading_to(Webhook(hook.url)), store, queue, tmp_path),
    ):
        handle = await start(client, queue, event("1"))
        await hook.asked.wait()
        await handle.cancel()
        with pytest.raises(WorkflowFailureError):
            await handle.result()
        stopped.set()
        async with asyncio.timeout(30):
            while len(store.history) < 2:
                await asyncio.sleep(0.05)
    assert [each.kind for each in store.history.values()] == ["stop", "delivery"]
    assert len(hook.calls) == 1


async def test_a_worker_that_leaves_gives_a_delivery_back_at_once(
    client: Client, queue: str, tmp_path: Path
) -> None:
    async with Server([Hang(), Answer()]) as hook:
        declared = leading_to(Webhook(hook.url, timeout=200))
        async with asyncio.timeout(60):
            async with triaging(client, declared, MemoryStore(), queue, tmp_path):
                handle = await start(client, queue, event("1"))
                await hook.asked.wait()
            async with triaging(client, declared, MemoryStore(), queue, tmp_path):
                assert (await handle.result()).state == "delivered"


@pytest.mark.slow
async def test_a_delivery_whose_worker_was_killed_is_found_by_its_silence_and_made_again(
    client: Client, temporal_address: str, queue: str, database_url: str
) -> None:
    with state_folder() as home:
        async with Server([Hang(), Answer()]) as hook:
            environ = environment(
                home,
                TEMPORAL_ADDRESS=temporal_address,
                DATABASE_URL=database_url,
                CLASSIFIER_HASH_KEY="only-for-tests",
                CLASSIFIER_TASK_QUEUE=queue,
                CLASSIFIER_APP="tests.apps.tickets:app",
                HOOK_URL=hook.url,
                HOOK_TOKEN=TOKEN,
            )
            async with started("worker", environ=environ) as worker:
                await worker.said("worker polls")
                handle = await start(client, queue, event("1", "a broken card"))
                await hook.asked.wait()
                await worker.killed()
            async with started("worker", environ=environ):
                assert (await handle.result()).state == "delivered"
    began = [each async for each in handle.fetch_history_events() if each.event_type == STARTED][-1]
    failure = began.activity_task_started_event_attributes.last_failure.timeout_failure_info
    assert failure.timeout_type == TimeoutType.TIMEOUT_TYPE_HEARTBEAT
    first, second = hook.calls
    assert first.headers["idempotency-key"] == second.headers["idempotency-key"]


@pytest.mark.parametrize(
    ("webhook", "variable"),
    [
        (Webhook("http://127.0.0.1:9/", token_variable="NO_TOKEN"), "NO_TOKEN"),
        (Webhook("http://127.0.0.1:9/", secret_variable="NO_SECRET"), "NO_SECRET"),
        (Webhook("http://127.0.0.1:9/", secret_variable="HOOK_TOKEN"), "HOOK_TOKEN"),
    ],
)
def test_a_destination_without_its_secret_is_found_at_start(webhook: Webhook, variable: str) -> None:
    with pytest.raises(ConfigurationError, match=variable):
        leading_to(webhook).resolve(ENVIRON)
