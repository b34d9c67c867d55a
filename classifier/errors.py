"""What can go wrong, as one small tree. Pure.

    ClassifierError
    ├── ConfigurationError       what was declared cannot work; found when built or at start
    │   └── QuestionError        a question is malformed; names it and the fault
    ├── ModelError               a decision model gave no usable answer
    │   ├── ModelUnavailable     no connection, a timeout, overload or a server fault
    │   ├── RateLimited          too many requests for now
    │   ├── QuotaExhausted       paid or allotted amount is used up
    │   ├── RequestRejected      the service does not accept the request
    │   │   ├── AuthenticationFailed
    │   │   └── InputTooLarge    state or question set over a limit; mostly found before any I/O
    │   ├── InvalidAnswer        the response is unreadable, incomplete or contradicts itself
    │   └── ActivityLost         the activity that asked ended without a result
    ├── PolicyError              application policy raised; never retried, never fail-open
    └── StoreError               the audit store did not take or give a record
        ├── StoreUnavailable     not reachable, or not in time
        └── DecisionMismatch     the same decision id was recorded for something else

Every error has a stable `code` and says whether trying again can help (`retryable`) and, where the other
side asked for it, after how many seconds (`retry_after`). Messages hold names, numbers and codes; never the
state, a provider's text or a secret.
"""

from __future__ import annotations


class ClassifierError(Exception):
    """Base of everything this library raises on purpose."""

    code: str = "CLASSIFIER_ERROR"
    retryable: bool = False
    retry_after: float | None = None


class ConfigurationError(ClassifierError):
    """Declared things cannot work together: unknown or repeated ids, missing keys, bad options."""

    code = "CONFIGURATION"


class QuestionError(ConfigurationError):
    """A question is malformed. `question` is its id, `fault` what is wrong with it."""

    code = "QUESTION"

    def __init__(self, question: str, fault: str) -> None:
        super().__init__(f"question {question!r}: {fault}")
        self.question = question
        self.fault = fault


class ModelError(ClassifierError):
    """A decision model gave no usable answer.

    Args:
        message: What happened, to which model; no provider text.
        status: HTTP status, where there was one.
        request_id: The provider's name for the request, for its support.
        retry_after: Seconds the provider asked to wait.
        provider_code: The provider's short error identifier, where it sent one.
    """

    code = "MODEL_ERROR"

    def __init__(
        self,
        message: str,
        *,
        status: int | None = None,
        request_id: str | None = None,
        retry_after: float | None = None,
        provider_code: str | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.request_id = request_id
        self.retry_after = retry_after
        self.provider_code = provider_code


class ModelUnavailable(ModelError):
    """No connection, a timeout, overload or a server fault; trying again can help."""

    code = "MODEL_UNAVAILABLE"
    retryable = True


class RateLimited(ModelError):
    """Too many requests for now; try again, after `retry_after` seconds where given."""

    code = "RATE_LIMITED"
    retryable = True


class QuotaExhausted(ModelError):
    """The paid or allotted amount is used up; waiting a little does not help."""

    code = "QUOTA_EXHAUSTED"


class RequestRejected(ModelError):
    """The service does not accept this request; the same request fails again."""

    code = "REQUEST_REJECTED"


class AuthenticationFailed(RequestRejected):
    """The key is missing, wrong or not allowed to do this."""

    code = "AUTHENTICATION_FAILED"


class InputTooLarge(RequestRejected):
    """State or questions exceed a limit of the model."""

    code = "INPUT_TOO_LARGE"


class InvalidAnswer(ModelError):
    """The response cannot be trusted: unreadable, incomplete, or in contradiction to itself.

    It is never turned into an answer. `retryable` is true only where the response could not be read at all
    (half a body, not JSON), since a decision model that contradicts itself tends to do so again.
    """

    code = "INVALID_ANSWER"

    def __init__(
        self,
        message: str,
        *,
        unreadable: bool = False,
        missing: tuple[str, ...] = (),
        extra: tuple[str, ...] = (),
        request_id: str | None = None,
    ) -> None:
        super().__init__(message, request_id=request_id)
        self.retryable = unreadable
        self.missing = missing
        self.extra = extra


class ActivityLost(ModelError):
    """The activity that asked ended without a result; `code` says why it did."""

    code = "ACTIVITY_LOST"

    def __init__(self, code: str) -> None:
        super().__init__("the activity ended without a result")
        self.code = code


class PolicyError(ClassifierError):
    """Application policy (`on_result`, a gate or a route function) raised instead of deciding."""

    code = "POLICY_ERROR"


class StoreError(ClassifierError):
    """The audit store did not take or give a record."""

    code = "STORE_ERROR"


class StoreUnavailable(StoreError):
    """The audit store is not reachable, or did not answer in time."""

    code = "STORE_UNAVAILABLE"
    retryable = True


class DecisionMismatch(StoreError):
    """A stored decision has this id but another processor, phase or state."""

    code = "DECISION_MISMATCH"
