"""What we deliver, taken in by our own service: the signature holds, and no loop begins."""

from __future__ import annotations

import uuid
from pathlib import Path

from temporalio.client import Client

from classifier.app import App
from classifier.audit.memory import MemoryStore
from classifier.playbook import Webhook
from tests.service.house import OLD_SECRET, SECRET, House
from tests.workflows.test_deliveries import leading_to
from tests.workflows.tickets import ENVIRON, answer, dead, event, start, triaging
from workflows.dead_letters import REPLAY

FOREIGN = "whsec_MDAwMDAwMDAwMDAwMDAwMDAwMDAwMDAw"


def back_to(desk: House) -> App:
    return leading_to(Webhook(f"{desk.url}/webhooks/tracker", secret_variable="HOOK_SECRET"))


async def test_a_signed_delivery_is_verified_by_serve_and_recognised_as_our_own(
    desk: House, client: Client, tmp_path: Path
) -> None:
    environ = {**ENVIRON, "HOOK_SECRET": f"{FOREIGN} {OLD_SECRET}"}
    store = MemoryStore()
    queue = f"queue-{uuid.uuid4()}"
    async with triaging(client, back_to(desk), store, queue, tmp_path, environ=environ):
        status = await (await start(client, queue, event("1"))).result()
    (delivery,) = store.history.values()
    assert status.state == "delivered"
    (loop,) = await desk.loops()
    assert loop.body["reason"] == "own_action"
    assert loop.body["events"] == [str(delivery.event_id)]


async def test_a_delivery_signed_with_a_secret_that_serve_does_not_know_is_a_dead_letter_until_it_does(
    desk: House, client: Client, tmp_path: Path
) -> None:
    queue, store = f"queue-{uuid.uuid4()}", MemoryStore()
    strange = {**ENVIRON, "HOOK_SECRET": FOREIGN}
    async with triaging(client, back_to(desk), store, queue, tmp_path, environ=strange):
        handle = await start(client, queue, event("1"))
        assert (await dead(handle)).reasons == ["DELIVERY_REJECTED"]
    known = {**ENVIRON, "HOOK_SECRET": SECRET}
    async with triaging(client, back_to(desk), store, queue, tmp_path, environ=known):
        assert (await answer(handle, REPLAY)).state == "delivered"
    letter = next(iter(store.history.values()))
    assert letter.body["status"] == 401
