"""What workflow code calls: deterministic, sandbox-safe, no policy. Imports nothing that does I/O."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any, Literal, TypeVar

from temporalio import workflow
from temporalio.common import Priority, RetryPolicy
from temporalio.exceptions import ActivityError, ApplicationError, FailureError, is_cancelled_exception

from classifier.decision import SHADOW, Ids
from classifier.errors import ConfigurationError
from classifier.messages import Message
from classifier.questions import Questions
from classifier.temporal.clock import moment
from classifier.temporal.messages import (
    DECIDE,
    DecideRequest,
    DecideResult,
    RecordRequest,
    request_to_json,
    result_from_json,
)
from classifier.temporal.pending import recorded, recording, records_are_in
from classifier.temporal.requests import (
    Evaluation,
    as_fatal,
    as_messages,
    check_size,
    code_of,
    evaluation_of,
    guard_request,
    is_fatal,
    step_request,
    unrecordable,
)
from classifier.temporal.shadows import begin, shadow_request
from classifier.temporal.travel import chunks, unpacked
from classifier.temporal.verdicts import TripwireError, WorkflowVerdict, judgements_of, tripwire_of
from classifier.values import JSON, State
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
RETRY = RetryPolicy(
    initial_interval=timedelta(milliseconds=500),
    backoff_coefficient=2,
    maximum_interval=timedelta(seconds=30),
)
_RETRY_LOCAL = replace(RETRY, maximum_interval=LOCAL_LIMIT)
_LAST = Priority(priority_key=5)
"""A shadow waits behind what is live, where tasks wait."""


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
    request = step_request(classifier, state, context, options.failures_allowed)
    return evaluation_of(await decide(request, options), questions)


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
        given = as_messages(messages, phase)
        request = guard_request(
            self._names,
            phase,
            given,
            ids=ids,
            context=context,
            failures_allowed=self._options.failures_allowed,
        )
        decisions = (await decide(request, self._options)).decisions
        return WorkflowVerdict(judgements_of(decisions), given)


async def decide(request: DecideRequest, options: DecideOptions = DEFAULT_OPTIONS) -> DecideResult:
    """Runs `classifier.decide`, whatever happens to workers and stores.

    Where the activity dies, its failure is recorded from here, and a decision that an attempt recorded
    before wins over it. The shadow of a playbook starts when this returns, as an activity of its own.

    Raises:
        ApplicationError: Type INPUT_TOO_LARGE: the request exceeds what Temporal carries. Of processors also
            what cannot be decided by a failure rule: CONFIGURATION, POLICY_ERROR.
        asyncio.CancelledError: The run is cancelled; the model's request is closed first.
    """
    check_size(request)
    number = _next_number()
    when = await moment(number, local=options.local)
    before = None if when.before is None else when.before.isoformat()
    request = replace(request, decided_at=when.at.isoformat(), maybe_decided_at=before)
    result = await _settled(request, f"{DECIDE}-{number}", options)
    if result.shadow_budget is not None:
        shadow = shadow_request(request, result)
        begin(_settled(shadow, f"{DECIDE}-{number}{SHADOW}", _within(result.shadow_budget, options)))
    return result


def _within(budget: float, options: DecideOptions) -> DecideOptions:
    overall = timedelta(seconds=budget)
    return DecideOptions(
        attempt=min(options.attempt, overall),
        overall=overall,
        heartbeat=options.heartbeat,
        failures_allowed=options.failures_allowed,
        task_queue=options.task_queue,
    )


async def _settled(request: DecideRequest, activity_id: str, options: DecideOptions) -> DecideResult:
    stops = _stops()
    while True:
        made = await _made(request, activity_id, options)
        result = await _with_pending(made, request, options) if made.pending else made
        if _stops() > stops:  # the activity ended before it heard of the stop, or was let to
            raise asyncio.CancelledError
        if not request.processors or _outcomes(result) == _outcomes(made):
            return result
        # What an earlier attempt recorded leads elsewhere: to processors that were not asked.
        request = replace(request, look_first=True)


async def _made(request: DecideRequest, activity_id: str, options: DecideOptions) -> DecideResult:
    try:
        return await _run(request, activity_id, options)
    except (ActivityError, ApplicationError) as error:  # the latter of a local one, which nothing wraps
        if is_cancelled_exception(error):
            raise asyncio.CancelledError from error  # which is what `asyncio.timeout` knows
        cause = _cause_of(error)
        if is_fatal(request, cause):
            raise as_fatal(cause) from error
        lost = RecordRequest(lost=request, activity_id=activity_id, code=code_of(cause))
        return await _record_lost(lost, options)


async def _run(request: DecideRequest, activity_id: str, options: DecideOptions) -> DecideResult:
    body = request_to_json(request)
    handle: workflow.ActivityHandle[Any]
    if options.local:
        handle = workflow.start_local_activity(
            DECIDE,
            body,
            activity_id=activity_id,
            start_to_close_timeout=min(options.attempt, LOCAL_LIMIT),
            schedule_to_close_timeout=options.overall,
            retry_policy=_RETRY_LOCAL,
            cancellation_type=workflow.ActivityCancellationType.WAIT_CANCELLATION_COMPLETED,
        )
    else:
        handle = workflow.start_activity(
            DECIDE,
            body,
            activity_id=activity_id,
            task_queue=options.task_queue,
            start_to_close_timeout=options.attempt,
            schedule_to_close_timeout=options.overall,
            heartbeat_timeout=options.heartbeat,
            retry_policy=RETRY,
            cancellation_type=workflow.ActivityCancellationType.WAIT_CANCELLATION_COMPLETED,
            priority=_LAST if request.shadow is not None else Priority.default,
        )
    return result_from_json(await (handle if options.on_stop == "cancel" else _to_its_end(handle)))


async def _to_its_end(handle: workflow.ActivityHandle[Any]) -> Any:
    """The result, also where the run is stopped meanwhile; the caller sees that it was."""
    while True:
        try:
            return await asyncio.shield(handle)
        except asyncio.CancelledError:
            if handle.cancelled():  # the run leaves the cache
                raise


async def _with_pending(result: DecideResult, request: DecideRequest, options: DecideOptions) -> DecideResult:
    bodies = [unpacked(body, request) for body in result.pending]
    tasks = [recording(RecordRequest(pending=chunk), options.task_queue) for chunk in chunks(bodies)]
    if options.audit == "deferred" and not result.unsure:
        return result
    stored = {each.decision_id: each for task in tasks for each in (await recorded(task)).decisions}
    decisions = [stored.get(decided.decision_id, decided) for decided in result.decisions]
    return replace(result, decisions=decisions, pending=[])


async def _record_lost(request: RecordRequest, options: DecideOptions) -> DecideResult:
    try:
        return await recorded(recording(request, options.task_queue))
    except ActivityError as error:
        raise unrecordable(request.code, error.cause) from error


def _cause_of(error: FailureError) -> BaseException | None:
    return error.cause if isinstance(error, ActivityError) else error


def _outcomes(result: DecideResult) -> list[str]:
    return [each.outcome for each in result.decisions]


def _next_number() -> int:
    instance: Any = workflow.instance()
    count: int = getattr(instance, _COUNT, 0) + 1
    setattr(instance, _COUNT, count)
    return count


def _stops() -> int:
    task = asyncio.current_task()
    return 0 if task is None else task.cancelling()
