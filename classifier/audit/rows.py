"""Decisions as rows of JSON values, and back. Pure.

The same rows are what the insert statement reads and what quarantine keeps.
"""

from __future__ import annotations

import hmac
import json
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, cast

from classifier.answers import Answer, Refusal, answers_from_json, answers_to_json
from classifier.audit.contents import KEEP_ALL, ContentPolicy, Kept
from classifier.audit.escape import (
    bounded,
    decode,
    dumps,
    encode,
    escape,
    escape_optional,
    number,
    question_key,
    unescape,
    unescape_optional,
)
from classifier.audit.query import number_of, reason_text
from classifier.audit.records import ERASABLE, AcceptedEvent, HistoryEvent
from classifier.decision import Branch, Coordinates, Decision, DecisionFailure, Ids, Tripwire
from classifier.result import Truncation, Usage
from classifier.values import JSON, State, canonical_json

Row = dict[str, Any]

ERASED: State = ""
"""The state of a decision whose content was erased or not kept."""


@dataclass(frozen=True, slots=True)
class Rows:
    """What one decision is in each of its three tables; values are JSON. Erased contents are empty."""

    decision: Row
    contents: Row
    answers: list[Row]


def utc(moment: datetime) -> datetime:
    """`moment` in UTC; one without a zone is taken to be UTC already."""
    if moment.tzinfo is None:
        return moment.replace(tzinfo=UTC)
    return moment.astimezone(UTC)


def keyed_hash(key: bytes, value: JSON) -> str:
    """HMAC-SHA256 of the canonical form, in hex: says whether two values are equal, and nothing else."""
    return hmac.digest(key, canonical_json(encode(value)), "sha256").hex()


def subject_of(key: bytes, tenant: str, resource: str) -> str:
    """The pseudonym of a person: the same for the same key, and no way back."""
    return keyed_hash(key, [tenant, resource])


def rows_of(decision: Decision, hash_key: bytes, contents: ContentPolicy = KEEP_ALL) -> Rows:
    """The rows of a decision, with as much of its content as is to be kept."""
    kept = contents.kept(decision)
    identity = {
        "decision_id": str(decision.decision_id),
        "decided_at": utc(decision.decided_at).isoformat(),
        "tenant": escape(decision.tenant),
    }
    facts: Row = identity | _where(decision) | _what(decision) | _model(decision)
    facts |= _derived(decision, hash_key)
    facts["metadata"] = encode({**decision.metadata, **kept.note})
    return Rows(facts, identity | _contents(decision, kept), _answer_rows(identity, decision))


def _where(decision: Decision) -> Row:
    at, ids = decision.coordinates, decision.ids
    return {
        "namespace": escape(at.namespace),
        "workflow_id": escape(at.workflow_id),
        "run_id": escape(at.run_id),
        "activity_id": escape(at.activity_id),
        "ordinal": decision.ordinal,
        "classifier_id": escape(decision.classifier_id),
        "processor_id": escape_optional(decision.processor_id),
        "playbook_id": escape_optional(decision.playbook_id),
        "phase": decision.phase,
        "thread_id": escape_optional(ids.thread),
        "message_id": escape_optional(ids.message),
        "trace_id": escape_optional(ids.trace),
        "span_id": escape_optional(ids.span),
    }


def _what(decision: Decision) -> Row:
    failure, tripwire, branch = decision.failure, decision.tripwire, decision.branch
    return {
        "outcome": decision.outcome,
        "mode": decision.mode,
        "answers": None if decision.answers is None else encode(answers_to_json(decision.answers)),
        "question_set": escape(decision.question_set),
        "gates": encode(dict(decision.gates)),
        "failure_code": failure and escape(failure.code),
        "failure_message": failure and escape(failure.message),
        "tripwire_reason": tripwire and escape(tripwire.reason),
        "tripwire_metadata": tripwire and encode(tripwire.metadata),
        "branch_action": branch and branch.action,
        "branch_route": branch and escape_optional(branch.route),
        "branch_reasons": branch and encode(branch.reasons),
        "policy_version": escape_optional(decision.policy_version),
        "warnings": encode(decision.warnings),
        "normalised": encode(decision.normalised),
    }


def _model(decision: Decision) -> Row:
    usage, truncation = decision.usage, decision.truncation
    return {
        "duration_ms": number(decision.duration_ms),
        "attempts": decision.attempts,
        "provider": escape_optional(decision.provider),
        "requested_model": escape_optional(decision.requested_model),
        "resolved_model": escape_optional(decision.resolved_model),
        "provider_request_id": escape_optional(decision.provider_request_id),
        "input_tokens": usage.input_tokens,
        "output_tokens": usage.output_tokens,
        "cost": number(usage.cost),
        "truncated_from": truncation and truncation.original,
        "truncated_to": truncation and truncation.sent,
        "truncated_by": truncation and escape(truncation.by),
    }


def _derived(decision: Decision, hash_key: bytes) -> Row:
    resource = decision.ids.resource
    return {
        "refused": any(isinstance(answer, Refusal) for answer in (decision.answers or {}).values()),
        "reason_text": escape_optional(reason_text(decision)),
        "state_hash": keyed_hash(hash_key, decision.state),
        "state_length": len(_state_text(decision.state)),
        "subject": None if resource is None else subject_of(hash_key, decision.tenant, resource),
    }


def _contents(decision: Decision, kept: Kept) -> Row:
    return {
        "resource_id": escape_optional(decision.ids.resource),
        "state": None if kept.state is None else _state_text(kept.state),
        "state_is_json": not isinstance(kept.state, str | None),
        "request_context": encode(kept.request_context),
        "original": escape_optional(kept.original),
    }


def event_row(event: HistoryEvent, contents: ContentPolicy = KEEP_ALL) -> Row:
    """The row of an event, with what people wrote apart from the facts."""
    content = {key: event.body[key] for key in event.body.keys() & ERASABLE}
    return {
        "event_id": str(event.event_id),
        "at": utc(event.at).isoformat(),
        "tenant": escape(event.tenant),
        "kind": event.kind,
        "workflow_id": escape(event.workflow_id),
        "run_id": escape(event.run_id),
        "decision_id": None if event.decision_id is None else str(event.decision_id),
        "actor": escape_optional(event.actor),
        "body": encode({key: value for key, value in event.body.items() if key not in content}),
        "content": encode(contents.kept_of_event(content)) if content else None,
    }


def accepted_row(item: AcceptedEvent) -> Row:
    """The row of an accepted event."""
    return {
        "tenant": escape(item.event.tenant),
        "source": bounded(item.event.source),
        "event_id": bounded(item.event.id),
        "workflow_id": escape(item.workflow_id),
        "run_id": escape(item.run_id),
        "accepted_at": utc(item.accepted_at).isoformat(),
    }


def _state_text(state: State) -> str:
    return escape(state) if isinstance(state, str) else dumps(encode(state))


def _answer_rows(identity: Row, decision: Decision) -> list[Row]:
    shadow = decision.mode == "shadow"
    return [
        identity
        | {
            "question": question_key(question, shadow=shadow),
            "kind": answer.kind,
            "choice": escape(answer.choice) if answer.kind == "choice" else None,
            "number": number_of(answer),
        }
        for question, answer in (decision.answers or {}).items()
    ]


def decision_of(row: Mapping[str, Any]) -> Decision:
    """The decision in a row of `decisions` joined with its contents, which may be absent."""
    return Decision(
        decision_id=_uuid(row["decision_id"]),
        decided_at=_moment(row["decided_at"]),
        coordinates=Coordinates(
            unescape(row["tenant"]),
            unescape(row["namespace"]),
            unescape(row["workflow_id"]),
            unescape(row["run_id"]),
            unescape(row["activity_id"]),
        ),
        ordinal=row["ordinal"],
        classifier_id=unescape(row["classifier_id"]),
        processor_id=unescape_optional(row["processor_id"]),
        playbook_id=unescape_optional(row["playbook_id"]),
        phase=row["phase"],
        outcome=row["outcome"],
        mode=row["mode"],
        answers=_answers(row["answers"]),
        question_set=unescape(row["question_set"]),
        gates=cast("dict[str, float]", decode(row["gates"])),
        duration_ms=float(row["duration_ms"]),
        attempts=row["attempts"],
        failure=_failure(row),
        tripwire=_tripwire(row),
        branch=_branch(row),
        ids=_ids(row),
        state=_state(row),
        request_context=cast("dict[str, JSON]", decode(row.get("request_context") or {})),
        policy_version=unescape_optional(row["policy_version"]),
        provider=unescape_optional(row["provider"]),
        requested_model=unescape_optional(row["requested_model"]),
        resolved_model=unescape_optional(row["resolved_model"]),
        provider_request_id=unescape_optional(row["provider_request_id"]),
        usage=Usage(row["input_tokens"], row["output_tokens"], _cost(row["cost"])),
        warnings=_texts(row["warnings"]),
        truncation=_truncation(row),
        normalised=_texts(row["normalised"]),
        original=unescape_optional(row.get("original")),
        metadata=cast("dict[str, JSON]", decode(row["metadata"])),
    )


def _uuid(value: object) -> uuid.UUID:
    return value if isinstance(value, uuid.UUID) else uuid.UUID(str(value))


def _moment(value: object) -> datetime:
    return utc(value if isinstance(value, datetime) else datetime.fromisoformat(str(value)))


def _texts(value: Any) -> tuple[str, ...]:
    return tuple(cast("list[str]", decode(value)))


def _cost(value: Any) -> float | None:
    return None if value is None else float(value)


def _answers(value: Any) -> Mapping[str, Answer] | None:
    return None if value is None else answers_from_json(cast("Mapping[str, Any]", decode(value)))


def _failure(row: Mapping[str, Any]) -> DecisionFailure | None:
    code = row["failure_code"]
    return None if code is None else DecisionFailure(unescape(code), unescape(row["failure_message"] or ""))


def _tripwire(row: Mapping[str, Any]) -> Tripwire | None:
    reason = row["tripwire_reason"]
    return None if reason is None else Tripwire(unescape(reason), decode(row["tripwire_metadata"]))


def _branch(row: Mapping[str, Any]) -> Branch | None:
    action = row["branch_action"]
    if action is None:
        return None
    return Branch(action, unescape_optional(row["branch_route"]), _texts(row["branch_reasons"]))


def _truncation(row: Mapping[str, Any]) -> Truncation | None:
    original = row["truncated_from"]
    return (
        None if original is None else Truncation(original, row["truncated_to"], unescape(row["truncated_by"]))
    )


def _ids(row: Mapping[str, Any]) -> Ids:
    return Ids(
        unescape_optional(row["thread_id"]),
        unescape_optional(row.get("resource_id")),
        unescape_optional(row["message_id"]),
        unescape_optional(row["trace_id"]),
        unescape_optional(row["span_id"]),
    )


def _state(row: Mapping[str, Any]) -> State:
    stored = row.get("state")
    if stored is None:
        return ERASED
    return cast("State", decode(json.loads(stored))) if row["state_is_json"] else unescape(stored)
