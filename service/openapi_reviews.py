"""The part of the OpenAPI document that is about reviews. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from service.openapi_parts import OPTIONAL_TEXT, TEXT, answer, closed, problems, ref
from workflows.messages import MAX_LEASE

_SECURITY: list[dict[str, list[str]]] = [{"reviewer": []}]
_MOMENT: dict[str, Any] = {**TEXT, "format": "date-time"}
_OPTIONAL_MOMENT: dict[str, Any] = {**OPTIONAL_TEXT, "format": "date-time"}
_ID: dict[str, Any] = {
    "name": "id",
    "in": "path",
    "required": True,
    "description": "The id of the decision.",
    "schema": {**TEXT, "format": "uuid"},
}


def review_paths() -> Mapping[str, Any]:
    """What can be read, and what can be done."""
    one = "/reviews/{id}"
    return {
        "/reviews": {"get": _list()},
        one: {"get": _show()},
        f"{one}/claim": {
            "post": _act("claimReview", "Keep others off it for a while, or go on with that.", _claim())
        },
        f"{one}/release": {
            "post": _act("releaseReview", "Give it back.", {"type": "object", "maxProperties": 0})
        },
        f"{one}/decide": {
            "post": _act("decideReview", "Choose where the event goes.", _choice(), waits=True)
        },
    }


def review_schemas() -> Mapping[str, Any]:
    """What comes back."""
    review = {
        "since": _MOMENT,
        "route": OPTIONAL_TEXT,
        "reasons": {"type": "array", "items": TEXT},
        "queue": OPTIONAL_TEXT,
        "claimed_by": OPTIONAL_TEXT,
        "claimed_until": _OPTIONAL_MOMENT,
    }
    decided = {
        "decision_id": {**TEXT, "format": "uuid"},
        "playbook": OPTIONAL_TEXT,
        "message_id": OPTIONAL_TEXT,
        "state": {"description": "What was asked about: text or JSON."},
    }
    summary = {**decided, "review": ref("Waits")}
    event = {"at": _MOMENT, "kind": TEXT, "by": OPTIONAL_TEXT, "facts": {"type": "object"}}
    whole = {
        **decided,
        "answers": {"type": ["object", "null"]},
        "policy_version": OPTIONAL_TEXT,
        "review": {"oneOf": [ref("Waits"), {"type": "null"}]},
        "routes": {"type": "array", "items": TEXT},
        "events": {"type": "array", "items": closed(event, *event)},
    }
    page = {"waiting": {"type": "array", "items": closed(summary, *summary)}, "next_cursor": OPTIONAL_TEXT}
    stands = {
        "decision_id": {**TEXT, "format": "uuid"},
        "state": TEXT,
        "route": OPTIONAL_TEXT,
        "decided_by": OPTIONAL_TEXT,
        "destination": OPTIONAL_TEXT,
        "claimed_by": OPTIONAL_TEXT,
        "claimed_until": _OPTIONAL_MOMENT,
    }
    return {
        "Waits": closed(review, *review),
        "Review": closed(whole, *whole),
        "Reviews": closed(page, *page),
        "Stands": closed(stands, *stands),
    }


def _list() -> dict[str, Any]:
    return {
        "operationId": "listReviews",
        "summary": "Events that wait for a person, oldest first.",
        "security": _SECURITY,
        "parameters": [
            _query("playbook", "Only this playbook's.", TEXT),
            _query("queue", "Only those that a deadline escalated to this queue.", TEXT),
            _query(
                "older_than", "Only those that wait for longer.", {**TEXT, "pattern": "^[0-9]{1,4}[smhd]$"}
            ),
            _query("limit", "How many at most.", {"type": "integer", "minimum": 1, "maximum": 100}),
            _query("cursor", "What the page before said.", TEXT),
        ],
        "responses": {"200": answer("A page.", "Reviews"), **problems(400, 401, 503)},
    }


def _show() -> dict[str, Any]:
    return {
        "operationId": "showReview",
        "summary": "All about one that waits, or waited.",
        "security": _SECURITY,
        "parameters": [_ID],
        "responses": {"200": answer("All about it.", "Review"), **problems(401, 404, 503)},
    }


def _act(name: str, summary: str, body: Mapping[str, Any], *, waits: bool = False) -> dict[str, Any]:
    under_way = {"202": answer("Chosen; still under way there.", "Stands")} if waits else {}
    return {
        "operationId": name,
        "summary": summary,
        "description": "Who does it is who the token says.",
        "security": _SECURITY,
        "parameters": [_ID],
        "requestBody": {"required": waits, "content": {"application/json": {"schema": body}}},
        "responses": {
            "200": answer("Where the event stands.", "Stands"),
            **under_way,
            **problems(400, 401, 404, 408, 409, 413, 415, 422, 503),
        },
    }


def _claim() -> dict[str, Any]:
    seconds = {
        "type": "number",
        "exclusiveMinimum": 0,
        "maximum": MAX_LEASE.total_seconds(),
        "description": "For how long; default 900.",
    }
    return closed({"seconds": seconds})


def _choice() -> dict[str, Any]:
    reason = {**TEXT, "description": "Why; stays on the record."}
    return closed({"route": TEXT, "reason": reason}, "route")


def _query(name: str, description: str, schema: Mapping[str, Any]) -> dict[str, Any]:
    return {"name": name, "in": "query", "description": description, "schema": schema}
