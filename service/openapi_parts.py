"""What the parts of the OpenAPI document are made of. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from service.problems import PROBLEM_TYPE

PROBLEMS = {
    400: "Not what it says it is: no JSON, no CloudEvent.",
    401: "No known token, or a signature that does not fit or is not of the last minutes.",
    404: "No such webhook, or no such review.",
    408: "The body did not arrive in time.",
    409: "It does not wait any more, or somebody else has claimed it.",
    413: "Too many bytes, or too many events.",
    415: "Another type, charset or encoding than those that are taken.",
    422: "A good event that nothing can be decided about; a route or a time that cannot be.",
    429: "Too many; Retry-After says when to come back.",
    503: "Temporal or the database does not answer; sending again is safe.",
}
TEXT: dict[str, Any] = {"type": "string"}
OPTIONAL_TEXT: dict[str, Any] = {"type": ["string", "null"]}


def answer(description: str, *schemas: str) -> dict[str, Any]:
    """An answer of one of these schemas."""
    refs = [ref(name) for name in schemas]
    schema = refs[0] if len(refs) == 1 else {"oneOf": refs}
    return {"description": description, "content": {"application/json": {"schema": schema}}}


def problems(*statuses: int) -> dict[str, Any]:
    """The refusals with these statuses."""
    return {
        str(status): {
            "description": PROBLEMS[status],
            "content": {PROBLEM_TYPE: {"schema": ref("Problem")}},
        }
        for status in statuses
    }


def closed(properties: Mapping[str, Any], *required: str) -> dict[str, Any]:
    """An object with these members and no others."""
    return {
        "type": "object",
        "properties": properties,
        "required": list(required),
        "additionalProperties": False,
    }


def ref(name: str) -> dict[str, Any]:
    """A schema by name."""
    return {"$ref": f"#/components/schemas/{name}"}
