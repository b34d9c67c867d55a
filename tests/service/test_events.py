"""CloudEvents over HTTP: taken once and for good, or refused with the status that says why."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator
from typing import Any

import httpx
import pytest
from temporalio.api.common.v1 import WorkflowExecution
from temporalio.api.workflowservice.v1 import DeleteWorkflowExecutionRequest
from temporalio.client import Client
from temporalio.service import RPCError

from service.http_events import MAX_BATCH_EVENTS
from tests.service.house import OTHER_TOKEN, STRUCTURED, TOKEN, House, bearer
from workflows.events import MAX_EVENT_BYTES
from workflows.messages import TriageStatus

BATCH = "application/cloudevents-batch+json"


def problem(response: httpx.Response) -> tuple[int, str]:
    """Its status and code; every refusal is a problem document that repeats nothing."""
    assert response.headers["content-type"] == "application/problem+json"
    body = response.json()
    assert set(body) == {"type", "title", "status", "code", "detail"}
    assert body["status"] == response.status_code
    return response.status_code, body["code"]


async def test_an_event_that_is_taken_has_a_run_that_delivers_it(desk: House) -> None:
    response = await desk.post(desk.event("e1"))
    assert response.status_code == 202, response.text
    taken = response.json()
    assert set(taken) == {"event_id", "workflow_id", "run_id"}
    assert taken["event_id"] == "e1"
    handle = desk.client.get_workflow_handle(
        taken["workflow_id"], run_id=taken["run_id"], result_type=TriageStatus
    )
    assert (await handle.result()).state == "delivered"
    assert [each["id"] for each in desk.delivered()] == ["e1"]


async def test_a_repeat_has_the_same_answer_also_when_temporal_has_forgotten_the_run(desk: House) -> None:
    first = await desk.post(desk.event("e1"))
    await desk.until_delivered(1)
    again = await asyncio.gather(*(desk.post(desk.event("e1", "changed since")) for _ in range(5)))
    assert {each.text for each in again} == {first.text}
    await desk.client.workflow_service.delete_workflow_execution(_deletion(desk, first.json()))
    await _gone(desk.client, first.json()["workflow_id"])
    last = await desk.post(desk.event("e1"))
    assert (last.status_code, last.text) == (202, first.text)
    assert len(desk.delivered()) == 1


async def test_the_same_event_of_another_tenant_is_another_event(desk: House) -> None:
    first, other = await desk.post(desk.event("e1")), await desk.post(desk.event("e1"), OTHER_TOKEN)
    assert first.json()["workflow_id"] != other.json()["workflow_id"]
    await desk.until_delivered(2)


async def test_binary_mode_takes_attributes_from_headers_and_json_or_text_from_the_body(desk: House) -> None:
    attributes = {
        "ce-specversion": "1.0",
        "ce-id": "caf%C3%A9%20%25",
        "ce-source": desk.source,
        "ce-type": "ticket",
        "ce-time": "2026-11-02T08:00:00Z",
        "ce-priority": "high",
    }
    body = json.dumps({"text": "my card"}).encode()
    json_headers = {**bearer(), **attributes, "content-type": "application/json; charset=utf-8"}
    assert (await desk.send("/events", body, json_headers)).status_code == 202
    text_headers = {**bearer(), **attributes, "ce-id": "e2", "content-type": "text/plain"}
    assert (await desk.send("/events", "Grüße".encode(), text_headers)).status_code == 202
    one, other = sorted(await desk.until_delivered(2), key=lambda event: str(event["id"]))
    assert (one["id"], one["data"], one["priority"]) == ("café %", {"text": "my card"}, "high")
    assert (other["id"], other["data"]) == ("e2", "Grüße")


async def test_a_batch_has_an_answer_for_each_event_in_its_order(desk: House) -> None:
    events = [desk.event("e1"), {"id": "no event"}, desk.event("e3"), 7, desk.event("e5", text=" ")]
    headers = bearer() | {"content-type": BATCH}
    response = await desk.send("/events", json.dumps(events).encode(), headers)
    assert response.status_code == 207
    answers = response.json()
    assert [answer["status"] for answer in answers] == [202, 400, 202, 400, 422]
    assert [answer.get("event_id") for answer in answers] == ["e1", None, "e3", None, None]
    assert {each["id"] for each in await desk.until_delivered(2)} == {"e1", "e3"}
    good = await desk.send("/events", json.dumps([events[0], events[2]]).encode(), headers)
    assert good.status_code == 202
    assert [answer["run_id"] for answer in good.json()] == [answers[0]["run_id"], answers[2]["run_id"]]
    empty = await desk.send("/events", b"[]", headers)
    assert (empty.status_code, empty.json()) == (202, [])


@pytest.mark.parametrize(
    ("changes", "status", "code"),
    [
        ({"id": None}, 400, "MALFORMED"),
        ({"specversion": "0.3"}, 400, "MALFORMED"),
        ({"time": "yesterday"}, 400, "MALFORMED"),
        ({"id": "x" * 1025}, 400, "MALFORMED"),
        ({"id": "a\0b"}, 400, "MALFORMED"),
        ({"subject": 7}, 400, "MALFORMED"),
        ({"data": {"text": "  "}}, 422, "UNDECIDABLE"),
        ({"data": None}, 422, "UNDECIDABLE"),
        ({"data": None, "data_base64": "aGk="}, 422, "UNDECIDABLE"),
        ({"type": "com.github.issues.opened", "data": {"no": "issue"}}, 422, "UNDECIDABLE"),
        ({"data": "x" * MAX_EVENT_BYTES}, 413, "TOO_LARGE"),
    ],
    ids=str,
)
async def test_what_is_wrong_with_an_event_has_its_status(
    door: House, changes: dict[str, Any], status: int, code: str
) -> None:
    assert problem(await door.post(door.event("e1", **changes))) == (status, code)


@pytest.mark.parametrize(
    ("body", "headers", "status"),
    [
        (b"{", {}, 400),
        (b"\xff", {}, 400),
        (b"[]", {}, 400),
        (b"", {}, 400),
        (b"[" * 100_000, {}, 400),
        (b"{}", {"content-type": BATCH}, 400),
        (json.dumps([{}] * (MAX_BATCH_EVENTS + 1)).encode(), {"content-type": BATCH}, 413),
        (b"{}", {"content-type": "application/json"}, 415),
        (b"{}", {"content-type": ""}, 415),
        (b"{}", {"content-type": "application/cloudevents+xml"}, 415),
        (b"{}", {"content-type": f"{STRUCTURED}; charset=utf-16"}, 415),
        (b"{}", {"content-encoding": "gzip"}, 415),
        (b"\x89PNG", {"content-type": "image/png", "ce-specversion": "1.0", "ce-id": "1"}, 415),
        (b"{}", {"content-type": "application/json", "ce-specversion": "1.0"}, 400),
        (b"{}", {"content-type": "application/json", "ce-specversion": "1.0", "ce-id": "%ff"}, 400),
        (b"{}", {"content-type": "application/json", "ce-specversion": "1.0", "ce-data": "1"}, 400),
    ],
    ids=lambda value: str(value)[:60],
)
async def test_what_is_wrong_with_a_request_has_its_status(
    door: House, body: bytes, headers: dict[str, str], status: int
) -> None:
    assert problem(await door.send("/events", body, bearer() | headers))[0] == status


@pytest.mark.parametrize(
    "authorization", [None, "", "Bearer", f"Bearer {TOKEN[:-1]}", f"Basic {TOKEN}", TOKEN]
)
async def test_nobody_sends_without_a_token(door: House, authorization: str | None) -> None:
    headers = {} if authorization is None else {"authorization": authorization}
    response = await door.send("/events", json.dumps(door.event("e1")).encode(), headers)
    assert problem(response) == (401, "UNAUTHORIZED")
    assert response.headers["www-authenticate"].startswith("Bearer")


async def test_a_body_that_does_not_say_how_long_it_is_is_cut_off_at_the_limit(door: House) -> None:
    sent = 0

    async def endless() -> AsyncGenerator[bytes]:
        nonlocal sent
        while sent < 2000:
            sent += 1
            yield b"x" * 65_536
            await asyncio.sleep(0)  # the server shares this loop

    headers = {"content-type": STRUCTURED, **bearer()}
    try:
        response = await door.http.post(f"{door.url}/events", content=endless(), headers=headers)
        assert problem(response) == (413, "TOO_LARGE")
    except httpx.TransportError:  # it hung up while we still sent, which is as good
        pass
    assert sent < 2000


async def test_other_addresses_and_methods_are_refused_as_problems(door: House) -> None:
    assert problem(await door.http.get(f"{door.url}/nowhere")) == (404, "NOT_FOUND")
    response = await door.http.get(f"{door.url}/events")
    assert problem(response) == (405, "METHOD_NOT_ALLOWED")
    assert response.headers["allow"] == "POST"


async def test_who_would_rather_wait_is_told_the_decision(desk: House) -> None:
    response = await desk.post(desk.event("e1"), Prefer="respond-async, wait=20")
    assert response.status_code == 200, response.text
    assert response.headers["preference-applied"] == "wait=20"
    answer = response.json()
    assert (answer["decision"]["route"], answer["decision"]["decided_by"]) == ("billing", "classifier")
    assert answer["decision"]["decision_id"]
    unsure = await desk.post(desk.event("e2", "unsure of this"), Prefer="wait=20")
    assert unsure.json()["decision"]["state"] == "review"
    await desk.until_delivered(1)
    again = await desk.post(desk.event("e1"), Prefer="wait=20")
    assert again.json()["decision"]["state"] == "delivered"
    assert again.json()["run_id"] == answer["run_id"]


async def test_an_event_that_a_delivery_of_ours_caused_starts_nothing_and_is_on_record(desk: House) -> None:
    by_actor = await desk.post(desk.event("e1", actor="triage-bot"))
    by_key = await desk.post(desk.event("e2", causedby="6d8f0b1c-2f6e-5b8e-9a51-6f6d2f1f7c11"))
    for number, response in (("e1", by_actor), ("e2", by_key)):
        assert response.status_code == 202
        expected = {"event_id": number, "workflow_id": None, "run_id": None, "ignored": "own_action"}
        assert response.json() == expected
    again = await desk.post(desk.event("e1", actor="triage-bot"))
    assert again.text == by_actor.text
    loops = await desk.loops()
    assert sorted(str(each.body["events"]) for each in loops) == ["['e1']", "['e2']"]
    assert [each.body["reason"] for each in loops] == ["own_action"] * 2


async def test_states_of_a_subject_that_come_late_are_stale(desk: House) -> None:
    def state(number: str) -> dict[str, Any]:
        return desk.event(f"v{number}", type="state", subject="order-9", sequence=number)

    for number, count in (("1", 1), ("3", 2)):
        response = await desk.post(state(number))
        await desk.until_delivered(count)
    workflow = response.json()["workflow_id"]
    late = await desk.post(state("2"))
    assert (late.status_code, late.json()["workflow_id"]) == (202, workflow)
    async with asyncio.timeout(30):
        while not (stale := [e for e in await desk.history.events("acme", workflow) if e.kind == "stale"]):
            await asyncio.sleep(0.05)
    assert stale[0].body["events"] == ["v2"]
    assert [each["id"] for each in desk.delivered()] == ["v1", "v3"]
    again = await desk.post(state("1"))
    assert again.json() | {"event_id": "v3"} == response.json()


async def test_a_burst_is_one_run_with_the_latest_state(desk: House) -> None:
    events = [
        desk.event(f"e{n:02}", f"state {n}", type="burst", subject="cart", sequence=str(n)) for n in range(20)
    ]
    answers = await asyncio.gather(*map(desk.post, events))
    assert {(answer.status_code, answer.json()["run_id"]) for answer in answers} == {
        (202, answers[0].json()["run_id"])
    }
    (delivered,) = await desk.until_delivered(1)
    assert delivered["data"]["text"] == "state 19"


def _deletion(desk: House, taken: dict[str, Any]) -> Any:
    execution = WorkflowExecution(workflow_id=taken["workflow_id"], run_id=taken["run_id"])
    return DeleteWorkflowExecutionRequest(namespace=desk.client.namespace, workflow_execution=execution)


async def _gone(client: Client, workflow_id: str) -> None:
    async with asyncio.timeout(60):
        while True:
            try:
                await client.get_workflow_handle(workflow_id).describe()
            except RPCError:
                return
            await asyncio.sleep(0.1)
