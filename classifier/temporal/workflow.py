"""What workflow code calls: deterministic, sandbox-safe, no policy. Imports nothing that does I/O."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any, Generic, Literal, TypeVar

from temporalio import exceptions as temporal_errors
from temporalio import workflow
from temporalio.common import RetryPolicy
from temporalio.exceptions import ActivityError, ApplicationError, is_cancelled_exception

from classifier.answers import answers_from_json
from classifier.decision import Ids
from classifier.errors import ConfigurationError, DecisionMismatch, InputTooLarge, PolicyError, StoreError
from classifier.messages import Message, message_to_json
from classifier.questions import Questions
from classifier.temporal.messages import DECIDE, MAX_INPUT_BYTES, DecideRequest, DecideResult, RecordRequest
from classifier.temporal.pending import recorded, recording, records_are_in
from classifier.temporal.travel import chunks, unpacked
from classifier.temporal.verdicts import TripwireError, WorkflowVerdict, judgements_of, tripwire_of
from classifier.values import JSON, State, canonical_json
from classifier.verdict import Verdict

__all__ = [
    "DEFAULT_OPTIONS",
    "DecideOptions",
    "Evaluation",
    "Processors",
    "TripwireError",
    "decide",
    "evaluate",
    "records_are_in",
    "tripwire_of",
]

Q = TypeVar("Q", bound=Questions)

LOCAL_LIMIT = timedelta(seconds=2)
"""Longest attempt in local mode; a workflow task waits for it."""

_COUNT = "_classifier_decide_count"
_FATAL = {ConfigurationError.code, DecisionMismatch.code, PolicyError.code, StoreError.code}


@dataclass(frozen=True, kw_only=True)
class DecideOptions:
    """How a decision is run.

    Attributes:
        attempt: Longest time one attempt may take.
        overall: Longest time all attempts and waits together may take.
        heartbeat: A worker silent for so long is taken for dead. Cancels do not wait for it: they arrive with
            the next heartbeat, half a second apart.
        failures_allowed: How many failed model calls are one too many, for each decision.
        audit: "deferred" lets content move on and holds back only the end of the run until its records are
            in; "required" moves nothing before the row is durable.
        on_stop: "cancel" closes the model's request when the run is stopped; "finish" lets the decision come
            to its end and be recorded first.
        local: Run it as a local activity, for models known to answer within two seconds: less work for the
            Temporal server. A stop then takes effect after the call.
        task_queue: Where its worker polls, for a decision model with a queue and a rate of its own.
    """

    attempt: timedelta = timedelta(seconds=60)
    overall: timedelta = timedelta(minutes=10)
    heartbeat: timedelta = timedelta(seconds=5)
    failures_allowed: int = 3
    audit: Literal["deferred", "required"] = "deferred"
    on_stop: Literal["cancel", "finish"] = "cancel"
    local: bool = False
    task_queue: str | None = None


DEFAULT_OPTIONS = DecideOptions()
_RETRY = RetryPolicy(
    initial_interval=timedelta(milliseconds=500),
    backoff_coefficient=2,
    maximum_interval=timedelta(seconds=30),
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
    context: Mapping[str, JSON] | None = None,
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
    request = DecideRequest(
        states=[state],
        classifier=classifier,
        context=dict(context or {}),
        failures_allowed=options.failures_allowed,
    )
    (decided,) = (await decide(request, options)).decisions
    if decided.answers is None:
        failure = decided.failure or {"code": "MODEL_ERROR", "message": "no answer"}
        raise ApplicationError(failure["message"], type=failure["code"], non_retryable=True)
    return Evaluation(questions(answers_from_json(decided.answers)), decided.decision_id)


class Processors:
    """Processors over the messages of a conversation, durably and on the record.

        verdict = await Processors("safety", "topic").input([message], ids=Ids(thread="t-7"))
        if verdict.outcome == "aborted": ...
        for message in verdict.messages: ...

    Policy runs in the activity, so a changed threshold never breaks the replay of a run.

    Args:
        names: Keys or ids of processors the worker's app registers, in the order they run.
        options: Timeouts and audit mode.

    Raises:
        ConfigurationError: No processor is named.
    """

    def __init__(self, *names: str, options: DecideOptions = DEFAULT_OPTIONS) -> None:
        if not names:
            raise ConfigurationError("Processors needs the name of at least one processor")
        self._names = names
        self._options = options

    async def input(
        self,
        messages: Sequence[Message | str],
        *,
        ids: Ids = Ids(),
        context: Mapping[str, JSON] | None = None,
    ) -> Verdict:
        """What the processors make of messages on their way to the model.

        Args:
            messages: In conversation order; text is a user's message.
            ids: Thread and resource of the agent's memory; what is absent falls back to the message, then to
                the request context. Trace and span are those that are open, unless they are given.
            context: The caller's request context.

        Returns:
            The verdict. Reading its `messages`, and `raise_if_aborted`, raise a `TripwireError` after an
            abort, which fails the workflow and is not retried.

        Raises:
            ApplicationError: What is declared cannot work, or policy raised; `type` is the code of the error.
        """
        return await self._run("input", messages, ids, context)

    async def output(
        self,
        messages: Sequence[Message | str],
        *,
        ids: Ids = Ids(),
        context: Mapping[str, JSON] | None = None,
    ) -> Verdict:
        """The same for what a model said; text is an assistant's message."""
        return await self._run("output", messages, ids, context)

    async def _run(
        self,
        phase: Literal["input", "output"],
        messages: Sequence[Message | str],
        ids: Ids,
        context: Mapping[str, JSON] | None,
    ) -> Verdict:
        role = "user" if phase == "input" else "assistant"
        given = tuple(Message(each, role) if isinstance(each, str) else each for each in messages)
        request = DecideRequest(
            states=[message_to_json(each) for each in given],
            processors=list(self._names),
            phase=phase,
            context=dict(context or {}),
            failures_allowed=self._options.failures_allowed,
            thread=ids.thread,
            resource=ids.resource,
            trace=ids.trace,
            span=ids.span,
        )
        decisions = (await decide(request, self._options)).decisions
        return WorkflowVerdict(judgements_of(decisions), given)


async def decide(request: DecideRequest, options: DecideOptions = DEFAULT_OPTIONS) -> DecideResult:
    """Runs `classifier.decide`, whatever happens to workers and stores.

    Where the activity dies, its failure is recorded from here, and a decision that an attempt recorded
    before wins over it.

    Raises:
        ApplicationError: Type INPUT_TOO_LARGE: the request exceeds what Temporal carries. Of processors also
            what cannot be decided by a failure rule: CONFIGURATION, POLICY_ERROR.
        asyncio.CancelledError: The run is cancelled; the model's request is closed first.
    """
    request = replace(request, decided_at=workflow.now().isoformat())
    _check_size(request)
    activity_id = _next_activity_id()
    stops = _stops()
    try:
        result = await _run(request, activity_id, options)
    except ActivityError as error:
        if is_cancelled_exception(error):
            raise
        if request.processors and _code_of(error) in _FATAL:
            raise ApplicationError(_message_of(error), type=_code_of(error), non_retryable=True) from error
        lost = RecordRequest(lost=request, activity_id=activity_id, code=_code_of(error))
        result = await _record_lost(lost)
    if result.pending:
        result = await _with_pending(result, request, options)
    if _stops() > stops:  # the activity ended before it heard of the stop, or was let to
        raise asyncio.CancelledError
    return result


async def _run(request: DecideRequest, activity_id: str, options: DecideOptions) -> DecideResult:
    handle: workflow.ActivityHandle[DecideResult]
    if options.local:
        handle = workflow.start_local_activity(
            DECIDE,
            request,
            activity_id=activity_id,
            result_type=DecideResult,
            start_to_close_timeout=min(options.attempt, LOCAL_LIMIT),
            schedule_to_close_timeout=options.overall,
            retry_policy=_RETRY,
            cancellation_type=workflow.ActivityCancellationType.WAIT_CANCELLATION_COMPLETED,
        )
    else:
        handle = workflow.start_activity(
            DECIDE,
            request,
            activity_id=activity_id,
            task_queue=options.task_queue,
            result_type=DecideResult,
            start_to_close_timeout=options.attempt,
            schedule_to_close_timeout=options.overall,
            heartbeat_timeout=options.heartbeat,
            retry_policy=_RETRY,
            cancellation_type=workflow.ActivityCancellationType.WAIT_CANCELLATION_COMPLETED,
        )
    return await (handle if options.on_stop == "cancel" else _to_its_end(handle))


async def _to_its_end(handle: workflow.ActivityHandle[DecideResult]) -> DecideResult:
    """The result, also where the run is stopped meanwhile; the caller sees that it was."""
    while True:
        try:
            return await asyncio.shield(handle)
        except asyncio.CancelledError:
            if handle.cancelled():  # the run leaves the cache
                raise


async def _with_pending(result: DecideResult, request: DecideRequest, options: DecideOptions) -> DecideResult:
    bodies = [unpacked(body, request) for body in result.pending]
    tasks = [recording(RecordRequest(pending=chunk)) for chunk in chunks(bodies)]
    if options.audit == "deferred" and not result.unsure:
        return result
    stored = {each.decision_id: each for task in tasks for each in (await recorded(task)).decisions}
    decisions = [stored.get(decided.decision_id, decided) for decided in result.decisions]
    return replace(result, decisions=decisions, pending=[])


async def _record_lost(request: RecordRequest) -> DecideResult:
    try:
        return await recorded(recording(request))
    except ActivityError as error:
        message = f"classifier.decide died ({request.code}), and that cannot be recorded: {error.cause}"
        raise ApplicationError(message, type=_code_of(error), non_retryable=True) from error


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


def _message_of(error: ActivityError) -> str:
    cause = error.cause
    return cause.message if isinstance(cause, ApplicationError) else str(error)


def _next_activity_id() -> str:
    instance: Any = workflow.instance()
    count = getattr(instance, _COUNT, 0) + 1
    setattr(instance, _COUNT, count)
    return f"{DECIDE}-{count}"


def _stops() -> int:
    task = asyncio.current_task()
    return 0 if task is None else task.cancelling()
