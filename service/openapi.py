"""The OpenAPI document of the service, built in code so that it cannot be left out of the wheel. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from service.http_events import BATCH, MAX_BATCH_EVENTS, STRUCTURED
from service.problems import PROBLEM_TYPE

_PROBLEMS = {
    400: "Not what it says it is: no JSON, no CloudEvent.",
    401: "No known token, or a signature that does not fit or is not of the last minutes.",
    404: "No such webhook.",
    408: "The body did not arrive in time.",
    413: "Too many bytes, or too many events.",
    415: "Another type, charset or encoding than those that are taken.",
    422: "A good event that nothing can be decided about.",
    429: "Too many; Retry-After says when to come back.",
    503: "Temporal or the database does not answer; sending again is safe.",
}
_TEXT: dict[str, Any] = {"type": "string"}
_NAME: dict[str, Any] = {"type": "string", "minLength": 1, "maxLength": 1024}
_OPTIONAL_TEXT: dict[str, Any] = {"type": ["string", "null"]}


def document(webhooks: Sequence[str]) -> dict[str, Any]:
    """OpenAPI 3.1.

    Args:
        webhooks: The names of those that are configured.
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
            "/healthz": {"get": _look("The process answers.", ready=False)},
            "/readyz": {"get": _look("Temporal and the database answer.", ready=True)},
        },
        "components": {
            "schemas": _schemas(),
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
    }


def _post_events() -> dict[str, Any]:
    event = {"schema": _ref("Event")}
    batch = {"schema": {"type": "array", "items": _ref("Event"), "maxItems": MAX_BATCH_EVENTS}}
    return {
        "operationId": "postEvents",
        "summary": "Take a CloudEvent, or a batch of them.",
        "description": "Binary mode works too: attributes in ce- headers, data in the body.",
        "security": [{"token": []}],
        "parameters": [_prefer()],
        "requestBody": {"required": True, "content": {STRUCTURED: event, BATCH: batch}},
        "responses": {
            "200": _answer("Decided within the time that Prefer: wait gave.", "Decided"),
            "202": _answer("Taken: the run exists durably. The same for a repeat.", "Taken", "Answers"),
            "207": _answer("Some events of a batch were not taken.", "Answers"),
            **_problems(400, 401, 408, 413, 415, 422, 429, 503),
        },
    }


def _post_webhook(webhooks: Sequence[str]) -> dict[str, Any]:
    name = {"name": "name", "in": "path", "required": True, "schema": {**_TEXT, "enum": list(webhooks)}}
    return {
        "operationId": "postWebhook",
        "summary": "Take a signed delivery: Standard Webhooks, or GitHub's.",
        "parameters": [name, _prefer()],
        "requestBody": {"required": True, "content": {"application/json": {"schema": {"type": "object"}}}},
        "responses": {
            "200": _answer("Decided within the time that Prefer: wait gave.", "Decided"),
            "202": _answer("Taken: the run exists durably. The same for a repeat.", "Taken"),
            **_problems(400, 401, 404, 408, 413, 415, 422, 429, 503),
        },
    }


def _look(what: str, *, ready: bool) -> dict[str, Any]:
    return {
        "summary": what,
        "responses": {"200": _answer(what, "Health"), **(_problems(503) if ready else {})},
    }


def _prefer() -> dict[str, Any]:
    return {
        "name": "Prefer",
        "in": "header",
        "description": "wait=5 asks for the decision with the answer, if it is made within 5 seconds.",
        "schema": {**_TEXT, "pattern": "^wait=[0-9]{1,2}$"},
    }


def _answer(description: str, *schemas: str) -> dict[str, Any]:
    refs = [_ref(name) for name in schemas]
    schema = refs[0] if len(refs) == 1 else {"oneOf": refs}
    return {"description": description, "content": {"application/json": {"schema": schema}}}


def _problems(*statuses: int) -> dict[str, Any]:
    return {
        str(status): {
            "description": _PROBLEMS[status],
            "content": {PROBLEM_TYPE: {"schema": _ref("Problem")}},
        }
        for status in statuses
    }


def _schemas() -> Mapping[str, Any]:
    taken = {
        "event_id": _OPTIONAL_TEXT,
        "workflow_id": _OPTIONAL_TEXT,
        "run_id": _OPTIONAL_TEXT,
        "ignored": {"enum": ["own_action", "ping"]},
    }
    problem = {
        "type": _TEXT,
        "title": _TEXT,
        "status": {"type": "integer"},
        "code": _TEXT,
        "detail": _TEXT,
    }
    return {
        "Event": _event(),
        "Taken": _object(taken, "event_id", "workflow_id", "run_id"),
        "Decided": _object(
            {**taken, "decision": {"type": "object"}}, "event_id", "workflow_id", "run_id", "decision"
        ),
        "Answers": {
            "type": "array",
            "items": _object({**taken, **problem}, "status"),
        },
        "Health": _object({"status": {"const": "ok"}}, "status"),
        "Problem": _object(problem, *problem),
    }


def _event() -> dict[str, Any]:
    properties = {
        "specversion": {"const": "1.0"},
        "id": _NAME,
        "source": _NAME,
        "type": _NAME,
        "subject": _NAME,
        "time": {**_TEXT, "format": "date-time"},
        "sequence": {**_TEXT, "description": "The version of the subject; else its time is."},
        "actor": {**_TEXT, "description": "Who caused it."},
        "causedby": {**_TEXT, "description": "The Idempotency-Key of a delivery of ours that caused it."},
        "data": {
            "type": ["string", "object", "array", "number", "boolean"],
            "description": "What is decided on; not blank.",
        },
    }
    required = ["specversion", "id", "source", "type", "data"]
    return {"type": "object", "properties": properties, "required": required}


def _object(properties: Mapping[str, Any], *required: str) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": properties,
        "required": list(required),
        "additionalProperties": False,
    }


def _ref(name: str) -> dict[str, Any]:
    return {"$ref": f"#/components/schemas/{name}"}
