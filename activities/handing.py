"""How handing an event over fails: for now or for good, with what its dead letter has to say."""

from __future__ import annotations

from datetime import timedelta

from temporalio import activity
from temporalio.exceptions import ApplicationError

DELIVERY_REJECTED = "DELIVERY_REJECTED"
DELIVERY_UNAVAILABLE = "DELIVERY_UNAVAILABLE"

LONGEST_WAIT = 300.0
"""Seconds that a receiver may ask us to wait."""


def unavailable(message: str, *, status: int | None = None, wait: float | None = None) -> ApplicationError:
    """The receiver could not take it now; Temporal tries again.

    Args:
        message: What happened; nothing that the receiver said.
        status: Its HTTP status, where there was one.
        wait: Seconds it asked to wait.
    """
    delay = None if wait is None else timedelta(seconds=min(wait, LONGEST_WAIT))
    facts = _facts(status)
    return ApplicationError(message, facts, type=DELIVERY_UNAVAILABLE, next_retry_delay=delay)


def rejected(message: str, *, status: int | None = None) -> ApplicationError:
    """The receiver will not take it, however often it is tried; arguments as for `unavailable`."""
    return ApplicationError(message, _facts(status), type=DELIVERY_REJECTED, non_retryable=True)


def counted(error: ApplicationError) -> ApplicationError:
    """The same error, with how often it was tried."""
    return ApplicationError(
        error.message,
        _facts(None),
        type=error.type,
        non_retryable=error.non_retryable,
        next_retry_delay=error.next_retry_delay,
    )


def _facts(status: int | None) -> dict[str, int | None]:
    return {"attempts": activity.info().attempt, "status": status}
