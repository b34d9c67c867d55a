"""Signed deliveries as CloudEvents. Pure.

An event's identity comes from what was signed: the id of a Standard Webhooks message, and for GitHub, which
signs nothing but the body, the body itself. A captured delivery under another id is a repeat all the same.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from datetime import datetime
from typing import Any, cast

from service.http_events import STRUCTURED, ContentType, Headers, parsed
from service.problems import malformed
from service.reception import CAUSED_BY
from service.settings import Webhook
from service.signatures import GitHub

GITHUB_EVENT = "x-github-event"
GITHUB_DELIVERY = "x-github-delivery"
FORM = "application/x-www-form-urlencoded"
ENTITIES = {"issue": "issues", "pull_request": "pull", "discussion": "discussions"}
"""What a GitHub delivery can be about, and how its address says so."""


def event_of(webhook: Webhook, headers: Headers, body: bytes) -> dict[str, Any] | None:
    """The CloudEvent that a delivery is; None for one that only tries the connection.

    Raises:
        Problem: 400, 413 or 415.
    """
    named = dict(headers)
    if webhook.scheme.name == GitHub.name:
        return _from_github(webhook, named, ContentType.of(headers), body)
    if ContentType.of(headers).media == STRUCTURED:
        return parsed(body)
    return _from_standard(webhook, named, parsed(body))


def _from_standard(webhook: Webhook, headers: Mapping[str, str], given: dict[str, Any]) -> dict[str, Any]:
    kind = given.get("type")
    event: dict[str, Any] = {
        "specversion": "1.0",
        "id": headers["webhook-id"],
        "source": f"/webhooks/{webhook.name}",
        "type": kind if isinstance(kind, str) and kind else f"webhook.{webhook.name}",
        "data": given.get("data", given),
    }
    time, cause = given.get("timestamp"), given.get(CAUSED_BY)
    if isinstance(cause, str) and cause:
        event[CAUSED_BY] = cause
    return event | ({"time": time} if _is_moment(time) else {})


def _from_github(
    webhook: Webhook, headers: Mapping[str, str], content: ContentType, body: bytes
) -> dict[str, Any] | None:
    name = headers.get(GITHUB_EVENT, "")
    if not name:
        raise malformed("a delivery of GitHub names its event in X-GitHub-Event")
    if content.media == FORM:
        raise malformed("set the webhook's content type to application/json")
    given = parsed(body)
    if name == "ping":
        return None
    action = given.get("action")
    about = next((key for key in ENTITIES if isinstance(given.get(key), dict)), None)
    optional = {
        "subject": _subject(about, given),
        "time": _text(given, about or "", "updated_at"),
        "actor": _text(given, "sender", "login"),
        "deliveryid": headers.get(GITHUB_DELIVERY),
    }
    event: dict[str, Any] = {
        "specversion": "1.0",
        "id": hashlib.sha256(body).hexdigest(),
        "source": _text(given, "repository", "html_url") or f"/webhooks/{webhook.name}",
        "type": f"com.github.{name}" + (f".{action}" if isinstance(action, str) and action else ""),
        "data": given,
    }
    if not _is_moment(optional["time"]):
        optional["time"] = None
    return event | {key: value for key, value in optional.items() if value}


def _is_moment(value: object) -> bool:
    try:
        return isinstance(value, str) and datetime.fromisoformat(value).tzinfo is not None
    except ValueError:
        return False


def _subject(about: str | None, given: Mapping[str, Any]) -> str | None:
    number = given[about].get("number") if about else None
    return f"{ENTITIES[about]}/{number}" if about and isinstance(number, int) else None


def _text(given: Mapping[str, Any], outer: str, inner: str) -> str | None:
    within = given.get(outer)
    value = cast("Mapping[str, Any]", within).get(inner) if isinstance(within, Mapping) else None
    return value if isinstance(value, str) else None
