"""What an HTTP status, an error body and a wait hint mean, as `ModelError`s. Pure; knows no HTTP client.

retry_after(headers, now) -> seconds or None     `retry-after-ms`, else `retry-after` (seconds or a date)
error_codes(body) -> codes                       the short identifiers of an error body, wherever they are
failure(answer, service, by_code) -> ModelError  a status table; `by_code` maps a service's own codes first
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from types import MappingProxyType
from typing import Any, TypeAlias, cast

from classifier.errors import (
    AuthenticationFailed,
    InputTooLarge,
    ModelError,
    ModelUnavailable,
    QuotaExhausted,
    RateLimited,
    RequestRejected,
)
from classifier.models.wire import identifier
from classifier.values import JSON

LONGEST_WAIT = 300.0
"""Seconds; a longer wait on a 429 means that a quota is spent."""

PlainModelError: TypeAlias = "type[ModelUnavailable | RateLimited | QuotaExhausted | RequestRejected]"
CodeTable: TypeAlias = Mapping[str, PlainModelError]
"""A service's error codes that say more than its status does."""

COMMON_CODES: CodeTable = MappingProxyType(
    {
        "insufficient_quota": QuotaExhausted,
        "payment_required": QuotaExhausted,
        "context_length_exceeded": InputTooLarge,
        "max_tokens_exceeded": InputTooLarge,
        "token_limit_exceeded": InputTooLarge,
        "string_too_long": InputTooLarge,
        "payload_too_large": InputTooLarge,
    }
)
"""Codes that several services share."""

_BY_STATUS: Mapping[int, tuple[PlainModelError, str]] = {
    401: (AuthenticationFailed, "did not accept the key"),
    402: (QuotaExhausted, "wants to be paid first"),
    403: (AuthenticationFailed, "does not allow this with the key"),
    404: (RequestRejected, "does not know the model or the path"),
    408: (ModelUnavailable, "gave up waiting"),
    409: (ModelUnavailable, "is busy with a conflicting request"),
    413: (InputTooLarge, "finds the request too large"),
    425: (ModelUnavailable, "asked to come back later"),
    429: (RateLimited, "received too many requests"),
}
_FIRST_REDIRECT, _FIRST_CLIENT_ERROR, _FIRST_SERVER_ERROR = 300, 400, 500


@dataclass(frozen=True, slots=True)
class ErrorAnswer:
    """What of an unsuccessful answer decides about the error: nothing here is prose of the service."""

    status: int
    codes: tuple[str, ...] = ()
    retry_after: float | None = None
    request_id: str | None = None


def failure(answer: ErrorAnswer, service: str, by_code: CodeTable = COMMON_CODES) -> ModelError:
    """The error for an unsuccessful answer.

    Args:
        answer: Status, codes and wait.
        service: Named in the message.
        by_code: Codes that win over the status.
    """
    known = next((code for code in answer.codes if code in by_code), None)
    kind, what = _kind(answer.status)
    if known is not None:
        kind, what = by_code[known], "refused the request"
    wait = answer.retry_after
    if kind is RateLimited and wait is not None and wait > LONGEST_WAIT:
        kind, what = QuotaExhausted, f"asked to wait {wait:.0f} s, so its quota is spent"
    if wait is not None and kind.retryable:
        wait = min(wait, LONGEST_WAIT)
    code = known or next((code for code in answer.codes if not code.isdigit()), None)
    return kind(
        f"{service} {what} (HTTP {answer.status}{f', {code}' if code else ''})",
        status=answer.status,
        request_id=answer.request_id,
        retry_after=wait,
        provider_code=code or next(iter(answer.codes), None),
    )


def _kind(status: int) -> tuple[PlainModelError, str]:
    if status >= _FIRST_SERVER_ERROR:
        return ModelUnavailable, "failed"
    if status in _BY_STATUS:
        return _BY_STATUS[status]
    if _FIRST_REDIRECT <= status < _FIRST_CLIENT_ERROR:
        return RequestRejected, "answered with a redirect, which is not followed; check its address"
    return RequestRejected, "did not accept the request"


def error_codes(body: JSON) -> tuple[str, ...]:
    """The identifiers in an error body, most telling first; prose is left out."""
    found = (identifier(value) for value in _candidates(body))
    return tuple(dict.fromkeys(code for code in found if code is not None))


def _candidates(body: JSON) -> Iterator[object]:
    for entry in _entries(body):
        metadata = entry.get("metadata")
        if isinstance(metadata, dict):
            yield cast("dict[str, object]", metadata).get("error_type")
        yield from (entry.get(key) for key in ("error_type", "code", "type", "status", "error"))


def _entries(body: object) -> Iterator[dict[str, Any]]:
    """The objects that services put an error's code in, inner ones first."""
    if not isinstance(body, dict):
        return
    outer = cast("dict[str, Any]", body)
    for key in ("error", "detail"):
        if isinstance(outer.get(key), dict):
            yield outer[key]
    errors = outer.get("errors")
    if isinstance(errors, list):
        yield from (entry for entry in cast("Sequence[Any]", errors) if isinstance(entry, dict))
    yield outer


def retry_after(headers: Mapping[str, str], now: datetime) -> float | None:
    """Seconds the service asks to wait; None where it says nothing usable. `headers` ignore case."""
    milliseconds = _seconds(headers.get("retry-after-ms"))
    if milliseconds is not None:
        return milliseconds / 1000
    given = headers.get("retry-after")
    seconds = _seconds(given)
    return seconds if seconds is not None or given is None else _until(given, now)


def _seconds(text: str | None) -> float | None:
    try:
        value = float(text or "")
    except ValueError:
        return None
    return value if math.isfinite(value) and value >= 0 else None


def _until(date: str, now: datetime) -> float | None:
    try:
        moment = parsedate_to_datetime(date)
    except (ValueError, TypeError, OverflowError):
        return None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return max(0.0, (moment - now).total_seconds())
