"""People in the loop over HTTP: who may, what they see, and that the record names who they are."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import httpx
import pytest

from classifier.errors import ConfigurationError
from service.settings import ServiceSettings
from tests.service.house import ENVIRON, KIM, ROBIN, STRANGER, TOKEN, House, bearer, until

NOWHERE = "/reviews/6d8f0b1c-2f6e-5b8e-9a51-6f6d2f1f7c11"
ADDRESSES = (
    ("GET", "/reviews"),
    ("GET", NOWHERE),
    ("POST", f"{NOWHERE}/claim"),
    ("POST", f"{NOWHERE}/release"),
    ("POST", f"{NOWHERE}/decide"),
)


async def get(desk: House, path: str, token: str = KIM, **query: Any) -> httpx.Response:
    return await desk.http.get(desk.url + path, params=query, headers=bearer(token))


async def post(desk: House, path: str, token: str = KIM, **body: Any) -> httpx.Response:
    return await desk.http.post(desk.url + path, json=body, headers=bearer(token))


async def unsure(desk: House, count: int) -> list[dict[str, Any]]:
    """So many events that wait for a person, oldest first."""
    for number in range(count):
        assert (await desk.post(desk.event(f"e{number}", f"unsure {number}"))).status_code == 202
    async with asyncio.timeout(60):
        while len(found := (await get(desk, "/reviews")).json()["waiting"]) < count:
            await asyncio.sleep(0.05)
    return list(found)


@pytest.mark.parametrize(("method", "path"), ADDRESSES)
@pytest.mark.parametrize("token", [None, TOKEN, "kim", KIM[:-1]])
async def test_sec_nobody_reads_or_decides_without_a_reviewers_token(
    door: House, method: str, path: str, token: str | None
) -> None:
    headers = {} if token is None else bearer(token)
    refused = await door.http.request(method, door.url + path, headers=headers)
    assert (refused.status_code, refused.json()["code"]) == (401, "UNAUTHORIZED")
    assert refused.headers["content-type"] == "application/problem+json"


async def test_a_reviewers_token_sends_no_events(door: House) -> None:
    assert (await door.post(door.event("e1"), token=KIM)).status_code == 401


async def test_the_queue_is_read_in_pages_by_its_own_tenant_alone(desk: House) -> None:
    waiting = await unsure(desk, 5)
    assert [one["state"] for one in waiting] == [f"unsure {n}" for n in range(5)]
    seen: list[str] = []
    cursor: str | None = None
    while True:
        query: dict[str, Any] = {"limit": 2} if cursor is None else {"limit": 2, "cursor": cursor}
        page = (await get(desk, "/reviews", **query)).json()
        seen += [one["decision_id"] for one in page["waiting"]]
        cursor = page["next_cursor"]
        if cursor is None:
            break
    assert seen == [one["decision_id"] for one in waiting]
    first = (await get(desk, "/reviews", limit=2)).json()["next_cursor"]
    for token, query in ((STRANGER, {}), (KIM, {"playbook": "other"})):
        refused = await get(desk, "/reviews", token, cursor=first, **query)
        assert (refused.status_code, refused.json()["code"]) == (400, "MALFORMED")
    assert (await get(desk, "/reviews", STRANGER)).json() == {"waiting": [], "next_cursor": None}
    playbook = waiting[0]["playbook"]
    for query, count in (
        ({"playbook": playbook}, 5),
        ({"playbook": "other\0"}, 0),
        ({"queue": "leads"}, 0),
        ({"older_than": "1h"}, 0),
        ({"older_than": "0s"}, 5),
    ):
        assert len((await get(desk, "/reviews", **query)).json()["waiting"]) == count, query


@pytest.mark.parametrize(
    "query", [{"limit": 0}, {"limit": 101}, {"limit": "x"}, {"cursor": "!"}, {"older_than": "soon"}]
)
async def test_a_query_that_makes_no_sense_is_refused(door: House, query: dict[str, Any]) -> None:
    refused = await get(door, "/reviews", **query)
    assert (refused.status_code, refused.json()["code"]) == (400, "MALFORMED")


async def test_a_claim_keeps_others_off_and_the_record_names_whose_token_it_was(desk: House) -> None:
    (one,) = await unsure(desk, 1)
    path = f"/reviews/{one['decision_id']}"
    claimed = await post(desk, f"{path}/claim", seconds=60)
    assert (claimed.status_code, claimed.json()["claimed_by"]) == (200, "Kim Doe")
    for refused in (
        await post(desk, f"{path}/claim", ROBIN),
        await post(desk, f"{path}/release", ROBIN),
        await post(desk, f"{path}/decide", ROBIN, route="billing"),
    ):
        assert (refused.status_code, refused.json()["code"]) == (409, "REVIEW_HELD")
        assert "Kim" not in refused.text
    (listed,) = (await get(desk, "/reviews", ROBIN)).json()["waiting"]
    assert listed["review"]["claimed_by"] == "Kim Doe"
    assert (await post(desk, f"{path}/release")).json()["claimed_by"] is None
    decided = await post(desk, f"{path}/decide", ROBIN, route="billing", reason="knows it")
    assert decided.status_code == 200
    assert (decided.json()["state"], decided.json()["decided_by"]) == ("delivered", "robin")
    shown = (await get(desk, path)).json()
    assert shown["review"] is None
    assert [(each["kind"], each["by"]) for each in shown["events"]] == [
        ("review_claimed", "Kim Doe"),
        ("review_released", "Kim Doe"),
        ("review", "robin"),
        ("delivery", "robin"),
    ]
    assert shown["events"][2]["facts"]["reason"] == "knows it"
    late = await post(desk, f"{path}/decide", route="billing")
    assert (late.status_code, late.json()["code"]) == (409, "ENDED")
    assert (await get(desk, "/reviews")).json()["waiting"] == []


async def test_a_review_shows_what_somebody_needs_to_decide(desk: House) -> None:
    (one,) = await unsure(desk, 1)
    shown = (await get(desk, f"/reviews/{one['decision_id']}")).json()
    assert shown["state"] == "unsure 0"
    assert shown["answers"]["department"]["choice"] == "billing"
    assert shown["routes"] == ["billing", "technical"]
    assert shown["review"]["reasons"] == ["low_probability:department"]
    assert (shown["review"]["route"], shown["review"]["claimed_by"]) == ("billing", None)


async def test_a_review_of_another_tenant_is_none(desk: House) -> None:
    (one,) = await unsure(desk, 1)
    path = f"/reviews/{one['decision_id']}"
    for answer in (
        await get(desk, path, STRANGER),
        await post(desk, f"{path}/claim", STRANGER),
        await post(desk, f"{path}/release", STRANGER),
        await post(desk, f"{path}/decide", STRANGER, route="billing"),
    ):
        assert (answer.status_code, answer.json()["code"]) == (404, "UNKNOWN_REVIEW")


async def test_a_decision_that_asked_nobody_is_no_review(desk: House) -> None:
    taken = await desk.send(
        "/events", json.dumps(desk.event("e1")).encode(), {**bearer(), "prefer": "wait=20"}
    )
    decision_id = taken.json()["decision"]["decision_id"]
    await until(lambda: len(desk.delivered()) == 1)
    assert (await get(desk, f"/reviews/{decision_id}")).status_code == 404


@pytest.mark.parametrize(
    ("verb", "body", "status", "code"),
    [
        ("decide", {"route": "billing", "by": "the boss"}, 400, "MALFORMED"),
        ("claim", {"by": "the boss"}, 400, "MALFORMED"),
        ("decide", {}, 400, "MALFORMED"),
        ("decide", {"route": 7}, 400, "MALFORMED"),
        ("claim", {"seconds": True}, 400, "MALFORMED"),
        ("claim", {"seconds": 0}, 422, "BAD_LEASE"),
        ("claim", {"seconds": 90_000}, 422, "BAD_LEASE"),
        ("decide", {"route": "billing"}, 404, "UNKNOWN_REVIEW"),
    ],
)
async def test_what_a_body_may_not_say_is_refused(
    door: House, verb: str, body: dict[str, Any], status: int, code: str
) -> None:
    refused = await post(door, f"{NOWHERE}/{verb}", **body)
    assert (refused.status_code, refused.json()["code"]) == (status, code)
    assert "the boss" not in refused.text


async def test_a_route_that_does_not_exist_is_refused_and_not_repeated(desk: House) -> None:
    (one,) = await unsure(desk, 1)
    refused = await post(desk, f"/reviews/{one['decision_id']}/decide", route="4111-1111")
    assert (refused.status_code, refused.json()["code"]) == (422, "UNKNOWN_ROUTE")
    assert "4111" not in refused.text


@pytest.mark.parametrize(
    ("reviewers", "complaint"),
    [
        ("acme:kim", "write tenant:name:token"),
        ("acme:kim:short", "write tenant:name:token"),
        (f"acme::{KIM}", "write tenant:name:token"),
        (f"acme:%20:{KIM}", "write tenant:name:token"),
        (f"acme:deadline:{KIM}", "no person is called 'deadline'"),
        (f"acme:kim:{KIM} acme:robin:{KIM}", "somebody else's already"),
        (f"acme:kim:{TOKEN}", "somebody else's already"),
    ],
)
def test_reviewers_that_cannot_be_told_apart_keep_it_from_starting(reviewers: str, complaint: str) -> None:
    with pytest.raises(ConfigurationError, match="CLASSIFIER_REVIEWERS, part") as refused:
        ServiceSettings.from_environ({**ENVIRON, "CLASSIFIER_REVIEWERS": reviewers})
    assert complaint in str(refused.value)
    assert KIM not in str(refused.value)


def test_the_settings_hide_who_reviews_with_which_token() -> None:
    settings = ServiceSettings.from_environ({"CLASSIFIER_REVIEWERS": f"acme:kim:{KIM}"})
    assert settings.reviewers.who(KIM) is not None
    assert KIM not in repr(settings)
