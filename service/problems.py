"""What is wrong with a request, as `application/problem+json` (RFC 9457)."""

from __future__ import annotations

import math
from collections.abc import Mapping
from http import HTTPStatus

from starlette.responses import JSONResponse

from classifier.values import JSON

PROBLEM_TYPE = "application/problem+json"
_HANG_UP = {"Connection": "close"}
"""For a body that was not read to its end: whoever goes on sending would be read for ever."""


class Problem(Exception):
    """A fault and its answer; the detail holds names, numbers and codes, never content.

    Args:
        status: The HTTP status.
        code: Stable, for machines.
        detail: What to do about it, for people.
        headers: What the answer carries besides.
    """

    def __init__(self, status: int, code: str, detail: str, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(detail)
        self.status = status
        self.code = code
        self.detail = detail
        self.headers = dict(headers or {})

    def to_json(self) -> dict[str, JSON]:
        """The members of the document."""
        return {
            "type": "about:blank",
            "title": HTTPStatus(self.status).phrase,
            "status": self.status,
            "code": self.code,
            "detail": self.detail,
        }

    def response(self) -> JSONResponse:
        """The answer."""
        return JSONResponse(self.to_json(), self.status, headers=self.headers, media_type=PROBLEM_TYPE)


def malformed(detail: str) -> Problem:
    """400: it is not what it says it is."""
    return Problem(HTTPStatus.BAD_REQUEST, "MALFORMED", detail)


def unauthorized(detail: str, *, bearer: bool) -> Problem:
    """401; which part did not fit is nobody's business."""
    headers = {"WWW-Authenticate": 'Bearer realm="classifier"'} if bearer else {}
    return Problem(HTTPStatus.UNAUTHORIZED, "UNAUTHORIZED", detail, headers)


def unknown_webhook() -> Problem:
    """404."""
    return Problem(HTTPStatus.NOT_FOUND, "UNKNOWN_WEBHOOK", "there is no webhook of this name")


def too_slow(seconds: float) -> Problem:
    """408."""
    detail = f"the body did not arrive within {seconds:.0f} seconds"
    return Problem(HTTPStatus.REQUEST_TIMEOUT, "TOO_SLOW", detail, _HANG_UP)


def too_large(limit: int) -> Problem:
    """413."""
    detail = f"the limit is {limit:,} bytes"
    return Problem(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, "TOO_LARGE", detail, _HANG_UP)


def unsupported(detail: str) -> Problem:
    """415."""
    return Problem(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, "UNSUPPORTED_MEDIA_TYPE", detail)


def undecidable(detail: str) -> Problem:
    """422: a good event that nothing can be decided about."""
    return Problem(HTTPStatus.UNPROCESSABLE_ENTITY, "UNDECIDABLE", detail)


def unprocessable(code: str, detail: str) -> Problem:
    """422: it says something that cannot be."""
    return Problem(HTTPStatus.UNPROCESSABLE_ENTITY, code, detail)


def conflict(code: str, detail: str) -> Problem:
    """409: it comes too late, or somebody else is at it."""
    return Problem(HTTPStatus.CONFLICT, code, detail)


def too_many(code: str, detail: str, seconds: float) -> Problem:
    """429, with when to come back."""
    return Problem(
        HTTPStatus.TOO_MANY_REQUESTS, code, detail, {"Retry-After": str(max(1, math.ceil(seconds)))}
    )


def unavailable(code: str, detail: str) -> Problem:
    """503: nothing of it is lost by sending it again."""
    return Problem(HTTPStatus.SERVICE_UNAVAILABLE, code, detail, {"Retry-After": "5"})
