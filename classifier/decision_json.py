"""A decision as JSON and back, for payloads, exports and stores. Pure."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping
from dataclasses import asdict
from datetime import datetime
from typing import Any, TypeVar

from classifier.answers import answers_from_json, answers_to_json
from classifier.decision import Branch, Coordinates, Decision, DecisionFailure, Ids, Tripwire
from classifier.errors import StoreError
from classifier.result import Truncation, Usage
from classifier.values import JSON

T = TypeVar("T")

PLAIN = (
    "ordinal",
    "classifier_id",
    "phase",
    "outcome",
    "state",
    "question_set",
    "duration_ms",
    "attempts",
    "processor_id",
    "playbook_id",
    "policy_version",
    "provider",
    "requested_model",
    "resolved_model",
    "provider_request_id",
    "mode",
    "original",
)
OBJECTS = ("gates", "request_context", "metadata")
LISTS = ("warnings", "normalised")
"""With the two before: the fields that stand in JSON under their own names."""


def decision_to_json(decision: Decision) -> dict[str, JSON]:
    """Every field of a decision; `decision_from_json` reads it back unchanged."""
    body: dict[str, JSON] = {
        "decision_id": str(decision.decision_id),
        "decided_at": decision.decided_at.isoformat(),
        "coordinates": asdict(decision.coordinates),
        "ids": asdict(decision.ids),
        "usage": asdict(decision.usage),
        "answers": _or_none(answers_to_json, decision.answers),
        "failure": _or_none(asdict, decision.failure),
        "tripwire": _or_none(asdict, decision.tripwire),
        "branch": _or_none(branch_to_json, decision.branch),
        "truncation": _or_none(asdict, decision.truncation),
    }
    body.update({name: getattr(decision, name) for name in PLAIN})
    body.update({name: dict(getattr(decision, name)) for name in OBJECTS})
    body.update({name: list(getattr(decision, name)) for name in LISTS})
    return body


def decision_from_json(body: Mapping[str, Any]) -> Decision:
    """Reads what `decision_to_json` wrote.

    Raises:
        StoreError: A field is missing or unreadable.
    """
    try:
        plain: dict[str, Any] = {name: body[name] for name in (*PLAIN, *OBJECTS)}
        plain.update({name: tuple(body[name]) for name in LISTS})
        return Decision(
            decision_id=uuid.UUID(body["decision_id"]),
            decided_at=datetime.fromisoformat(body["decided_at"]),
            coordinates=Coordinates(**body["coordinates"]),
            ids=Ids(**body["ids"]),
            usage=Usage(**body["usage"]),
            answers=_or_none(answers_from_json, body["answers"]),
            failure=_or_none(lambda failure: DecisionFailure(**failure), body["failure"]),
            tripwire=_or_none(lambda tripwire: Tripwire(**tripwire), body["tripwire"]),
            branch=_or_none(branch_from_json, body["branch"]),
            truncation=_or_none(lambda cut: Truncation(**cut), body["truncation"]),
            **plain,
        )
    except (KeyError, TypeError, ValueError) as error:
        raise StoreError(f"a decision in JSON is unreadable ({type(error).__name__})") from error


def _or_none(read: Callable[[Any], T], value: Any) -> T | None:
    return None if value is None else read(value)


def branch_to_json(branch: Branch) -> dict[str, JSON]:
    """A branch as JSON."""
    return {"action": branch.action, "route": branch.route, "reasons": list(branch.reasons)}


def branch_from_json(body: Mapping[str, Any]) -> Branch:
    """Reads what `branch_to_json` wrote."""
    return Branch(body["action"], body["route"], tuple(body["reasons"]))
