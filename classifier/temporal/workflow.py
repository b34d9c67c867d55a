"""What workflow code calls: deterministic, sandbox-safe, no policy. Imports nothing that does I/O."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any, Generic, Literal, TypeVar

from temporalio import exceptions as temporal_errors
from temporalio import workflow
from temporalio.common import RetryPolicy
from temporalio.exceptions import ActivityError, ApplicationError, is_cancelled_exception

from classifier.answers import answers_from_json
from classifier.errors import InputTooLarge
from classifier.questions import Questions
from classifier.temporal.messages import (
    DECIDE,
    MAX_INPUT_BYTES,
    RECORD,
    DecideRequest,
    DecideResult,
    RecordRequest,
)
from classifier.values import State, canonical_json

Q = TypeVar("Q", bound=Questions)

_PENDING = "_classifier_pending_records"
_COUNT = "_classifier_decide_count"


@dataclass(frozen=True, kw_only=True)
class DecideOptions:
    """How a decision is run.

    Attributes:
        attempt: Longest time one attempt may take.
        overall: Longest time all attempts and waits together may take.
        heartbeat: A worker silent for so long is taken for dead. Cancels do not wait for it: they arrive with
            the next heartbeat, half a second apart.
        audit: "deferred" lets content move on and holds back only the end of the run until its records are
            in; "required" moves nothing before the row is durable.
    """

    attempt: timedelta = timedelta(seconds=60)
    overall: timedelta = timedelta(minutes=10)
    heartbeat: timedelta = timedelta(seconds=5)
    audit: Literal["deferred", "required"] = "deferred"


DEFAULT_OPTIONS = DecideOptions()
_RETRY = RetryPolicy(
    initial_interval=timedelta(milliseconds=500),
    backoff_coefficient=2,
    maximum_interval=timedelta(seconds=30),
)
_RECORD_RETRY = RetryPolicy(
    initial_interval=timedelta(seconds=1), backoff_coefficient=2, maximum_interval=timedelta(minutes=1)
)


@dataclass(frozen=True)
class Evaluation(Generic[Q]):
    """Typed answers of one classification step, and the id of their row in the history."""

    answers: Q
    decision_id: str


async def evaluate(
    classifier: str,
    state: State,
    questions: type[Q],
    *,
    context: dict[str, Any] | None = None,
    options: DecideOptions = DEFAULT_OPTIONS,
) -> Evaluation[Q]:
    """Asks a classifier about a state, durably and on the record.

    Args:
        classifier: Key or id of a classifier the worker's app registers.
        state: What to ask about.
        questions: The class its questions are declared with.
        context: The caller's request context.
        options: Timeouts and audit mode.

    Raises:
        ApplicationError: No usable answer within the attempt budget; `type` is the code of the error.
    """
    request = DecideRequest(states=[state], classifier=classifier, context=context or {})
    (decided,) = (await decide(request, options)).decisions
    if decided.answers is None:
        failure = decided.failure or {"code": "MODEL_ERROR", "message": "no answer"}
        raise ApplicationError(failure["message"], type=failure["code"], non_retryable=True)
    return Evaluation(questions(answers_from_json(decided.answers)), decided.decision_id)


async def decide(request: DecideRequest, options: DecideOptions = DEFAULT_OPTIONS) -> DecideResult:
    """Runs `classifier.decide`; one decision per state, whatever happens to workers and stores.

    Where the activity dies, its failure is recorded from here, and a decision that an attempt recorded
    before wins over it.

    Raises:
        ApplicationError: Type INPUT_TOO_LARGE; the request exceeds what Temporal carries.
        asyncio.CancelledError: The run is cancelled; the model's request is closed first.
    """
    request = replace(request, decided_at=workflow.now().isoformat())
    _check_size(request)
    activity_id = _next_activity_id()
    stops = _stops()
    try:
        result: DecideResult = await workflow.execute_activity(
            DECIDE,
            request,
            activity_id=activity_id,
            result_type=DecideResult,
            start_to_close_timeout=options.attempt,
            schedule_to_close_timeout=options.overall,
            heartbeat_timeout=options.heartbeat,
            retry_policy=_RETRY,
            cancellation_type=workflow.ActivityCancellationType.WAIT_CANCELLATION_COMPLETED,
        )
    except ActivityError as error:
        if is_cancelled_exception(error):
            raise
        lost = RecordRequest(lost=request, activity_id=activity_id, code=_code_of(error))
        result = await _record_lost(lost)
    if result.pending:
        result = await _with_pending(result, options)
    if _stops() > stops:  # the activity ended before it heard of the stop, and the SDK let the stop go
        raise asyncio.CancelledError
    return result


async def records_are_in() -> None:
    """Waits until everything this run decided is in the history; the plugin calls it before a run closes.

    Raises:
        asyncio.CancelledError: The run was cancelled meanwhile; the records are in all the same.
    """
    pending = _pending()
    stopped: asyncio.CancelledError | None = None
    while pending:
        try:
            await asyncio.shield(pending[0])
        except asyncio.CancelledError as error:
            if pending[0].cancelled():  # the run leaves the cache
                raise
            stopped = error
        else:
            pending.pop(0)
    if stopped is not None:
        raise stopped


async def _with_pending(result: DecideResult, options: DecideOptions) -> DecideResult:
    recording = _recording(RecordRequest(pending=result.pending))
    if options.audit == "deferred":
        return result
    stored = {decided.decision_id: decided for decided in (await _recorded(recording)).decisions}
    decisions = [stored.get(decided.decision_id, decided) for decided in result.decisions]
    return replace(result, decisions=decisions, pending=[])


async def _record_lost(request: RecordRequest) -> DecideResult:
    try:
        return await _recorded(_recording(request))
    except ActivityError as error:
        message = f"classifier.decide died ({request.code}), and that cannot be recorded: {error.cause}"
        raise ApplicationError(message, type=_code_of(error), non_retryable=True) from error


def _recording(request: RecordRequest) -> asyncio.Task[DecideResult]:
    """Starts to record; the run does not close before it is done, and a stop does not reach it."""
    recording = asyncio.create_task(_record(request))
    _pending().append(recording)
    return recording


async def _recorded(recording: asyncio.Task[DecideResult]) -> DecideResult:
    try:
        return await asyncio.shield(recording)
    finally:
        if recording.done():
            _pending().remove(recording)


async def _record(request: RecordRequest) -> DecideResult:
    stored: DecideResult = await workflow.execute_activity(
        RECORD,
        request,
        result_type=DecideResult,
        start_to_close_timeout=timedelta(seconds=30),
        retry_policy=_RECORD_RETRY,
    )
    return stored


def _check_size(request: DecideRequest) -> None:
    size = len(canonical_json([request.states, request.context]))
    if size > MAX_INPUT_BYTES:
        raise ApplicationError(
            f"states and context are {size:,} bytes as JSON; the limit is {MAX_INPUT_BYTES:,}",
            type=InputTooLarge.code,
            non_retryable=True,
        )


def _code_of(error: ActivityError) -> str:
    match error.cause:
        case ApplicationError(type=str() as code):
            return code
        case temporal_errors.TimeoutError():
            return "TIMEOUT"
        case _:
            return "ACTIVITY_FAILED"


def _next_activity_id() -> str:
    instance: Any = workflow.instance()
    count = getattr(instance, _COUNT, 0) + 1
    setattr(instance, _COUNT, count)
    return f"{DECIDE}-{count}"


def _stops() -> int:
    task = asyncio.current_task()
    return 0 if task is None else task.cancelling()


def _pending() -> list[asyncio.Task[DecideResult]]:
    instance: Any = workflow.instance()
    if not hasattr(instance, _PENDING):
        setattr(instance, _PENDING, [])
    pending: list[asyncio.Task[DecideResult]] = getattr(instance, _PENDING)
    return pending
