"""Signed deliveries: who did not sign, or not lately, starts nothing; who repeats gets the same answer."""

from __future__ import annotations

import asyncio
import json
import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from classifier.errors import ConfigurationError
from service.http_events import Headers
from service.settings import ServiceSettings, Webhook
from service.signatures import GitHub, StandardWebhooks
from service.webhooks import event_of
from tests.service import deliveries
from tests.service.house import (
    ENVIRON,
    GITHUB_SECRET,
    OLD_SECRET,
    SECRET,
    House,
    github,
    standard,
)

OTHER_SECRET = "whsec_" + "QUJD" * 8


def message(text: str = "my card", **more: Any) -> bytes:
    """A payload as Standard Webhooks suggests it."""
    return json.dumps(
        {"type": "ticket", "timestamp": "2026-11-02T08:00:00Z", "data": {"text": text}, **more}
    ).encode()


async def test_a_signed_message_is_decided_and_a_replay_of_it_is_not(desk: House) -> None:
    body = message()
    headers = standard(body, "msg_1", ago=60)
    first = await desk.send("/webhooks/tracker", body, headers)
    assert first.status_code == 202, first.text
    assert first.json()["event_id"] == "msg_1"
    (event,) = await desk.until_delivered(1)
    assert (event["source"], event["type"], event["data"]) == (
        "/webhooks/tracker",
        "ticket",
        {"text": "my card"},
    )
    replays = await asyncio.gather(*(desk.send("/webhooks/tracker", body, headers) for _ in range(3)))
    assert {(each.status_code, each.text) for each in replays} == {(202, first.text)}
    assert len(desk.delivered()) == 1


async def test_while_secrets_change_both_are_good(door: House) -> None:
    for secret in (SECRET, OLD_SECRET):
        body = message(" ")
        response = await door.send("/webhooks/tracker", body, standard(body, secret=secret))
        assert response.status_code == 422  # the signature fits; there is no text in it


@pytest.mark.parametrize(
    ("change", "body"),
    [
        ({}, json.dumps(json.loads(message()), indent=1).encode()),
        ({}, message() + b"\n"),
        ({}, b"\xff"),
        ({"webhook-signature": ""}, message()),
        ({"webhook-signature": "v1,AAAA"}, message()),
        ({"webhook-signature": "v1"}, message()),
        ({"webhook-signature": "v1,%%%"}, message()),
        ({"webhook-signature": "\xe9"}, message()),
        ({"webhook-id": "msg_2"}, message()),
        ({"webhook-id": ""}, message()),
        ({"webhook-timestamp": str(int(time.time()) + 1)}, message()),
        ({"webhook-timestamp": "nan"}, message()),
        ({"webhook-timestamp": ""}, message()),
    ],
    ids=lambda value: type(value).__name__,  # the clock is in one of them, and ids may not change
)
async def test_what_was_not_signed_like_this_is_turned_away(
    door: House, change: dict[str, str], body: bytes
) -> None:
    signed = standard(message())
    headers = {name.encode(): value.encode("latin-1") for name, value in {**signed, **change}.items()}
    response = await door.http.post(f"{door.url}/webhooks/tracker", content=body, headers=headers)
    assert (response.status_code, response.json()["code"]) == (401, "UNAUTHORIZED")


@pytest.mark.parametrize("ago", [600, 301 + 5, -600])
async def test_what_was_signed_long_ago_or_in_the_future_is_turned_away(door: House, ago: float) -> None:
    body = message()
    response = await door.send("/webhooks/tracker", body, standard(body, ago=ago))
    assert response.status_code == 401


async def test_another_secret_another_scheme_or_no_signature_is_turned_away(door: House) -> None:
    body = deliveries.issue("acme/shop")
    wrong = [
        ("tracker", standard(message(), secret=OTHER_SECRET), message()),
        ("tracker", github(message(), "d-1"), message()),
        ("tracker", {"content-type": "application/json"}, message()),
        ("github", github(body, "d-1", secret="another-secret-0123456789"), body),
        ("github", github(body, "d-1"), body + b" "),
        ("github", {**github(body, "d-1"), "x-hub-signature-256": "sha256="}, body),
        ("github", {**github(body, "d-1"), "x-hub-signature-256": ""}, body),
        ("github", standard(body), body),
    ]
    for name, headers, sent in wrong:
        response = await door.send(f"/webhooks/{name}", sent, headers)
        assert response.status_code == 401, (name, headers)
    unknown = await door.send("/webhooks/nobody", body, github(body, "d-1"))
    assert (unknown.status_code, unknown.json()["code"]) == (404, "UNKNOWN_WEBHOOK")


async def test_a_github_issue_is_decided_once_however_it_is_delivered(desk: House) -> None:
    body = deliveries.issue(f"acme/{desk.source}")
    first = await desk.send("/webhooks/github", body, github(body, "d-1"))
    assert first.status_code == 202, first.text
    (event,) = await desk.until_delivered(1)
    assert (event["type"], event["source"]) == (
        "com.github.issues.opened",
        f"https://github.com/acme/{desk.source}",
    )
    assert (event["subject"], event["actor"], event["deliveryid"]) == ("issues/12", "mona", "d-1")
    again = await desk.send("/webhooks/github", body, github(body, "d-1"))
    captured = await desk.send("/webhooks/github", body, github(body, "another-id"))
    renamed = await desk.send("/webhooks/github", body, github(body, "d-1", event="pull_request"))
    assert {again.text, captured.text} == {first.text}
    assert renamed.status_code in {202, 422}
    assert len(desk.delivered()) == 1


async def test_a_label_that_we_set_ourselves_starts_nothing(desk: House) -> None:
    body = deliveries.issue(
        f"acme/{desk.source}", action="labeled", sender="triage-bot", at="2026-11-02T08:01:00Z"
    )
    response = await desk.send("/webhooks/github", body, github(body, "d-2"))
    assert (response.status_code, response.json()["ignored"]) == (202, "own_action")
    (loop,) = await desk.loops()
    assert (loop.actor, loop.body["subject"]) == ("triage-bot", "issues/12")
    assert desk.delivered() == []


async def test_an_edit_that_github_delivers_late_changes_nothing(desk: House) -> None:
    for action, at in (("opened", "08:00"), ("reopened", "08:09"), ("edited", "08:05")):
        body = deliveries.issue(f"acme/{desk.source}", action=action, at=f"2026-11-02T{at}:00Z")
        response = await desk.send("/webhooks/github", body, github(body, action))
        assert response.status_code == 202
        if action != "edited":
            await desk.until_delivered(1 if action == "opened" else 2)
    workflow = response.json()["workflow_id"]
    async with asyncio.timeout(30):
        while "stale" not in [each.kind for each in await desk.history.events("acme", workflow)]:
            await asyncio.sleep(0.05)
    assert [each["data"]["action"] for each in desk.delivered()] == ["opened", "reopened"]


async def test_a_ping_of_github_is_answered(door: House) -> None:
    body = deliveries.ping()
    response = await door.send("/webhooks/github", body, github(body, "d-0", event="ping"))
    assert (response.status_code, response.json()["ignored"]) == (202, "ping")


async def test_what_is_signed_and_no_delivery_is_refused(door: House) -> None:
    for body, headers in (
        (b"[1]", github(b"[1]", "d-1")),
        (
            b"payload=%7B%7D",
            github(b"payload=%7B%7D", "d-1") | {"content-type": "application/x-www-form-urlencoded"},
        ),
        (deliveries.ping(), {**github(deliveries.ping(), "d-1"), "x-github-event": ""}),
    ):
        response = await door.send("/webhooks/github", body, headers)
        assert (response.status_code, response.json()["code"]) == (400, "MALFORMED")


@given(st.binary(max_size=60), st.binary(max_size=60), st.booleans())
def test_only_the_signed_bytes_fit(body: bytes, other: bytes, old: bool) -> None:
    scheme = GitHub([GITHUB_SECRET, "old-secret-0123456789"])
    headers = github(body, "d", secret="old-secret-0123456789" if old else GITHUB_SECRET)
    assert scheme.is_signed(body, headers)
    assert scheme.is_signed(other, headers) == (other == body)


@given(st.dictionaries(st.sampled_from(["webhook-id", "webhook-timestamp", "webhook-signature"]), st.text()))
def test_no_header_makes_the_check_fail_in_any_other_way(headers: dict[str, str]) -> None:
    assert not StandardWebhooks([SECRET]).is_signed(b"{}", headers)
    assert not GitHub([GITHUB_SECRET]).is_signed(b"{}", {"x-hub-signature-256": str(headers)})


@given(
    st.dictionaries(
        st.sampled_from(["action", "issue", "pull_request", "repository", "sender"]),
        st.none()
        | st.text()
        | st.integers()
        | st.dictionaries(
            st.sampled_from(["number", "updated_at", "login", "html_url"]),
            st.none() | st.text() | st.integers(),
        ),
    )
)
def test_whatever_github_signs_becomes_an_event_with_an_identity(given_body: dict[str, Any]) -> None:
    webhook = Webhook("github", "acme", GitHub([GITHUB_SECRET]))
    headers: Headers = [("content-type", "application/json"), ("x-github-event", "issues")]
    event = event_of(webhook, headers, json.dumps(given_body).encode())
    assert event is not None
    assert len(event["id"]) == 64
    assert event["source"]
    assert event["data"] == given_body


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (
            {"CLASSIFIER_TOKENS": "", "CLASSIFIER_WEBHOOKS": "", "CLASSIFIER_REVIEWERS": ""},
            "CLASSIFIER_TOKENS is not set",
        ),
        ({"CLASSIFIER_TOKENS": "acme"}, "CLASSIFIER_TOKENS, pair 1"),
        ({"CLASSIFIER_TOKENS": "acme:short"}, "at least 16 characters"),
        ({"CLASSIFIER_TOKENS": ":0123456789abcdef"}, "CLASSIFIER_TOKENS, pair 1"),
        ({"CLASSIFIER_TOKENS": "a:0123456789abcdef b:0123456789abcdef"}, "another tenant's"),
        ({"CLASSIFIER_WEBHOOKS": "tracker"}, "CLASSIFIER_WEBHOOKS, part 1"),
        ({"CLASSIFIER_WEBHOOKS": "tracker=unsigned:acme:TRACKER_SECRET"}, "scheme github or standard"),
        ({"CLASSIFIER_WEBHOOKS": "Tracker=github:acme:GITHUB_SECRET"}, "small letters"),
        ({"CLASSIFIER_WEBHOOKS": "t=github:acme:A_SECRET"}, "A_SECRET is not set"),
        ({"TRACKER_SECRET": ""}, "TRACKER_SECRET is not set"),
        ({"TRACKER_SECRET": "whsec_not base64 at all!!"}, "TRACKER_SECRET"),
        ({"GITHUB_SECRET": "short"}, "GITHUB_SECRET"),
        ({"CLASSIFIER_TENANT_RATE": "0"}, "CLASSIFIER_TENANT_RATE"),
        ({"CLASSIFIER_BACKLOG": "many"}, "CLASSIFIER_BACKLOG"),
    ],
    ids=lambda value: str(value)[:50],
)
def test_the_service_does_not_start_without_secrets_and_names_the_variable(
    change: dict[str, str], said: str
) -> None:
    with pytest.raises(ConfigurationError, match=said) as caught:
        ServiceSettings.from_environ({**ENVIRON, **change})
    for secret in ("0123456789abcdef", GITHUB_SECRET, "not base64"):
        assert secret not in str(caught.value)


def test_no_secret_shows_in_what_is_printed_of_the_settings() -> None:
    settings = ServiceSettings.from_environ(ENVIRON)
    for secret in (SECRET, OLD_SECRET, GITHUB_SECRET, "acme-token"):
        assert secret not in repr(settings)
