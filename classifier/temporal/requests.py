"""Requests to `classifier.decide` and what is read from its results. Pure; sandbox-safe."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, Literal, TypeVar

from temporalio import exceptions as temporal_errors
from temporalio.exceptions import ApplicationError

from classifier.answers import answers_from_json
from classifier.decision import Ids
from classifier.errors import ConfigurationError, DecisionMismatch, InputTooLarge, PolicyError, StoreError
from classifier.messages import Message, message_to_json
from classifier.questions import Questions
from classifier.temporal.messages import MAX_INPUT_BYTES, TIMEOUT, DecideRequest, DecideResult
from classifier.values import JSON, State, canonical_json

Q = TypeVar("Q", bound=Questions)

FATAL = {ConfigurationError.code, DecisionMismatch.code, PolicyError.code, StoreError.code}
"""What no failure rule of a processor decides."""


@dataclass(frozen=True)
class Evaluation(Generic[Q]):
    """Typed answers of one classification step, and the id of their row in the history."""

    answers: Q
    decision_id: str


def step_request(
    classifier: str, state: State, context: Mapping[str, JSON] | None, failures_allowed: int
) -> DecideRequest:
    """Asks a classifier about one state."""
    return DecideRequest(
        states=[state],
        classifier=classifier,
        context=dict(context or {}),
        failures_allowed=failures_allowed,
    )


def evaluation_of(result: DecideResult, questions: type[Q]) -> Evaluation[Q]:
    """The typed answers to `step_request`.

    Raises:
        ApplicationError: There are none; `type` is the code of the error.
    """
    (decided,) = result.decisions
    if decided.answers is None:
        failure = decided.failure or {"code": "MODEL_ERROR", "message": "no answer"}
        raise ApplicationError(failure["message"], type=failure["code"], non_retryable=True)
    return Evaluation(questions(answers_from_json(decided.answers)), decided.decision_id)


def as_messages(messages: Sequence[Message | str], phase: Literal["input", "output"]) -> tuple[Message, ...]:
    """Text is what a user says on the way to the model, and what the assistant says on the way back."""
    role = "user" if phase == "input" else "assistant"
    return tuple(Message(each, role) if isinstance(each, str) else each for each in messages)


def guard_request(
    names: Sequence[str],
    phase: Literal["input", "output"],
    messages: Sequence[Message],
    *,
    ids: Ids,
    context: Mapping[str, JSON] | None,
    failures_allowed: int,
) -> DecideRequest:
    """Runs processors over messages."""
    return DecideRequest(
        states=[message_to_json(each) for each in messages],
        processors=list(names),
        phase=phase,
        context=dict(context or {}),
        failures_allowed=failures_allowed,
        thread=ids.thread,
        resource=ids.resource,
        trace=ids.trace,
        span=ids.span,
    )


def check_size(request: DecideRequest) -> None:
    """Temporal would refuse what is too large again and again.

    Raises:
        ApplicationError: Type INPUT_TOO_LARGE, with size and limit.
    """
    size = len(canonical_json([request.states, request.context]))
    if size > MAX_INPUT_BYTES:
        raise ApplicationError(
            f"states and context are {size:,} bytes as JSON; the limit is {MAX_INPUT_BYTES:,}",
            type=InputTooLarge.code,
            non_retryable=True,
        )


def code_of(cause: BaseException | None) -> str:
    """Why an activity came to nothing."""
    match cause:
        case ApplicationError(type=str() as code):
            return code
        case temporal_errors.TimeoutError():
            return TIMEOUT
        case _:
            return "ACTIVITY_FAILED"


def as_fatal(cause: BaseException | None) -> ApplicationError:
    """The same fault for the caller, who is to see it as it was raised."""
    message = cause.message if isinstance(cause, ApplicationError) else str(cause)
    return ApplicationError(message, type=code_of(cause), non_retryable=True)


def unrecordable(code: str, cause: BaseException | None) -> ApplicationError:
    """The fault where neither a decision nor its failure could be put on record."""
    message = f"classifier.decide died ({code}), and that cannot be recorded: {cause}"
    return ApplicationError(message, type=code_of(cause), non_retryable=True)


def is_fatal(request: DecideRequest, cause: BaseException | None) -> bool:
    """Whether no failure rule decides what becomes of a request that came to nothing."""
    return bool(request.processors) and code_of(cause) in FATAL
