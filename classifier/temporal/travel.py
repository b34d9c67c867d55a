"""Decisions on their way to a store that was away; what a workflow holds already does not travel. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from classifier.decision import position_of
from classifier.messages import message_from_json
from classifier.temporal.messages import DecideRequest
from classifier.values import JSON, State, canonical_json

CHUNK_BYTES = 1_000_000
"""Of decisions in one `classifier.record`; a single one may be larger, since its text fits a payload."""


def packed(body: Mapping[str, JSON], request: DecideRequest) -> dict[str, JSON]:
    """A decision in JSON without the request context, and without its text where the request holds it."""
    left_out = {"request_context"}
    if body["state"] == _given(request, body):
        left_out.add("state")
    return {name: value for name, value in body.items() if name not in left_out}


def unpacked(body: Mapping[str, Any], request: DecideRequest) -> dict[str, Any]:
    """What `packed` was given."""
    whole: dict[str, Any] = {"request_context": request.context, **body}
    if "state" not in whole:
        whole["state"] = _given(request, whole)
    return whole


def chunks(bodies: Sequence[dict[str, Any]]) -> Iterator[list[dict[str, Any]]]:
    """The same in lists that fit a payload each."""
    chunk: list[dict[str, Any]] = []
    size = 0
    for body in bodies:
        length = len(canonical_json(body))
        if chunk and size + length > CHUNK_BYTES:
            yield chunk
            chunk, size = [], 0
        chunk.append(body)
        size += length
    if chunk:
        yield chunk


def _given(request: DecideRequest, body: Mapping[str, Any]) -> State:
    if request.processors:
        return message_from_json(request.states[position_of(body["ordinal"])]).text
    state: State = request.states[body["ordinal"]]
    return state
