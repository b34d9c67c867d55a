"""How our errors look to Temporal: one table from error to type, retryable and delay.

| error | type | retried |
|---|---|---|
| ModelUnavailable, RateLimited, StoreUnavailable | its `code` | yes, after the wait that was asked for |
| InvalidAnswer | INVALID_ANSWER | only where the response could not be read at all |
| every other ClassifierError | its `code` | no |
"""

from __future__ import annotations

from datetime import timedelta

from temporalio.exceptions import ApplicationError

from classifier.decision import DecisionFailure
from classifier.errors import ClassifierError

LONGEST_WAIT = timedelta(minutes=5)


def as_application_error(error: ClassifierError) -> ApplicationError:
    """The same fault for Temporal; raise it `from None`, since a cause's text would enter the history."""
    delay = None if error.retry_after is None else min(timedelta(seconds=error.retry_after), LONGEST_WAIT)
    return ApplicationError(
        str(error), type=error.code, non_retryable=not error.retryable, next_retry_delay=delay
    )


def as_failure(error: ClassifierError) -> DecisionFailure:
    """The same fault for the record."""
    return DecisionFailure(error.code, str(error))
