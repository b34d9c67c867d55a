"""The OpenAPI document of the service, built in code so that it cannot be left out of the wheel. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from service.http_events import BATCH, MAX_BATCH_EVENTS, STRUCTURED
from service.openapi_parts import OPTIONAL_TEXT, TEXT, answer, closed, problems, ref
from service.openapi_reviews import review_paths, review_schemas

_NAME: dict[str, Any] = {"type": "string", "minLength": 1, "maxLength": 1024}


def document(webhooks: Sequence[str], *, reviews: bool) -> dict[str, Any]:
    """OpenAPI 3.1.

    Args:
        webhooks: The names of those that are configured.
        reviews: Whether there is anybody who reviews.
    """
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "temporal-classifier",
            "version": "1",
            "description": "Takes events, each once, to be decided.",
        },
        "paths": {
            "/events": {"post": _post_events()},
            **({"/webhooks/{name}": {"post": _post_webhook(webhooks)}} if webhooks else {}),
            **(review_paths() if reviews else {}),
            "/healthz": {"get": _look("The process answers.", ready=False)},
            "/readyz": {"get": _look("Temporal and the database answer.", ready=True)},
        },
        "components": {
            "schemas": {**_schemas(), **(review_schemas() if reviews else {})},
            "securitySchemes": {name: {"type": "http", "scheme": "bearer"} for name in ("token", "reviewer")},
        },
    }


def _post_events() -> dict[str, Any]:
    event = {"schema": ref("Event")}
    batch = {"schema": {"type": "array", "items": ref("Event"), "maxItems": MAX_BATCH_EVENTS}}
    return {
        "operationId": "postEvents",
        "summary": "Take a CloudEvent, or a batch of them.",
        "description": "Binary mode works too: attributes in ce- headers, data in the body.",
        "security": [{"token": []}],
        "parameters": [_prefer()],
        "requestBody": {"required": True, "content": {STRUCTURED: event, BATCH: batch}},
        "responses": {
            "200": answer("Decided within the time that Prefer: wait gave.", "Decided"),
            "202": answer("Taken: the run exists durably. The same for a repeat.", "Taken", "Answers"),
            "207": answer("Some events of a batch were not taken.", "Answers"),
            **problems(400, 401, 408, 413, 415, 422, 429, 503),
        },
    }


def _post_webhook(webhooks: Sequence[str]) -> dict[str, Any]:
    name = {"name": "name", "in": "path", "required": True, "schema": {**TEXT, "enum": list(webhooks)}}
    return {
        "operationId": "postWebhook",
        "summary": "Take a signed delivery: Standard Webhooks, or GitHub's.",
        "parameters": [name, _prefer()],
        "requestBody": {"required": True, "content": {"application/json": {"schema": {"type": "object"}}}},
        "responses": {
            "200": answer("Decided within the time that Prefer: wait gave.", "Decided"),
            "202": answer("Taken: the run exists durably. The same for a repeat.", "Taken"),
            **problems(400, 401, 404, 408, 413, 415, 422, 429, 503),
        },
    }


def _look(what: str, *, ready: bool) -> dict[str, Any]:
    return {
        "summary": what,
        "responses": {"200": answer(what, "Health"), **(problems(503) if ready else {})},
    }


def _prefer() -> dict[str, Any]:
    return {
        "name": "Prefer",
        "in": "header",
        "description": "wait=5 asks for the decision with the answer, if it is made within 5 seconds.",
        "schema": {**TEXT, "pattern": "^wait=[0-9]{1,2}$"},
    }


def _schemas() -> Mapping[str, Any]:
    taken = {
        "event_id": OPTIONAL_TEXT,
        "workflow_id": OPTIONAL_TEXT,
        "run_id": OPTIONAL_TEXT,
        "ignored": {"enum": ["own_action", "ping"]},
    }
    problem = {
        "type": TEXT,
        "title": TEXT,
        "status": {"type": "integer"},
        "code": TEXT,
        "detail": TEXT,
    }
    return {
        "Event": _event(),
        "Taken": closed(taken, "event_id", "workflow_id", "run_id"),
        "Decided": closed(
            {**taken, "decision": {"type": "object"}}, "event_id", "workflow_id", "run_id", "decision"
        ),
        "Answers": {
            "type": "array",
            "items": closed({**taken, **problem}, "status"),
        },
        "Health": closed({"status": {"const": "ok"}}, "status"),
        "Problem": closed(problem, *problem),
    }


def _event() -> dict[str, Any]:
    properties = {
        "specversion": {"const": "1.0"},
        "id": _NAME,
        "source": _NAME,
        "type": _NAME,
        "subject": _NAME,
        "time": {**TEXT, "format": "date-time"},
        "sequence": {**TEXT, "description": "The version of the subject; else its time is."},
        "actor": {**TEXT, "description": "Who caused it."},
        "causedby": {**TEXT, "description": "The Idempotency-Key of a delivery of ours that caused it."},
        "data": {
            "type": ["string", "object", "array", "number", "boolean"],
            "description": "What is decided on; not blank.",
        },
    }
    required = ["specversion", "id", "source", "type", "data"]
    return {"type": "object", "properties": properties, "required": required}
