"""Decisions without a workflow: durable, retried and recorded, over Temporal's standalone activities.

    verdict = await Guards(client, "safety", task_queue="classifier").input([text], key="message-17")

A key names one request for good. While it runs, and for as long as Temporal remembers it afterwards (the
namespace's retention), asking with the same key gives the same decision and asks no model. After that, only
`at` does: with the same key and the same `at` the row itself is found, however old.

A caller that goes away leaves the decision running if its process dies, or if `on_stop` is "finish"; a caller
whose task is cancelled closes the model's request, for everyone who waits for the same key. Asking again
with the key of a decision that was stopped starts it anew and keeps what it had recorded.

There is no workflow that a record could travel to, so `audit` is always "required": while the store is away
the activity is retried, and nothing moves. There is no local mode.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any, Literal, TypeVar

from temporalio.client import ActivityFailureError, ActivityHandle, Client
from temporalio.common import ActivityIDConflictPolicy, ActivityIDReusePolicy, RetryPolicy
from temporalio.exceptions import ActivityAlreadyStartedError, CancelledError
from temporalio.service import RPCError

from classifier.decision import Ids
from classifier.errors import ConfigurationError
from classifier.messages import Message
from classifier.questions import Questions
from classifier.temporal.messages import (
    DECIDE,
    RECORD,
    DecideRequest,
    DecideResult,
    RecordRequest,
    record_to_json,
    request_to_json,
    result_from_json,
)
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
from classifier.temporal.verdicts import judgements_of
from classifier.temporal.workflow import DEFAULT_OPTIONS, RETRY, DecideOptions
from classifier.values import JSON, State
from classifier.verdict import Verdict

__all__ = ["Guards", "decide", "evaluate"]

Q = TypeVar("Q", bound=Questions)

_LONGEST_STOP = 5.0
"""Seconds a cancelled caller waits until the model's request is closed."""
_RECORD_RETRY = RetryPolicy(maximum_interval=timedelta(minutes=1))


async def evaluate(
    client: Client,
    classifier: str,
    state: State,
    questions: type[Q],
    *,
    key: str,
    task_queue: str,
    at: datetime | None = None,
    context: Mapping[str, JSON] | None = None,
    options: DecideOptions = DEFAULT_OPTIONS,
) -> Evaluation[Q]:
    """Asks a classifier about a state.

    Args:
        client: A Temporal client.
        classifier: Key or id of a classifier that the worker's app registers.
        state: What to ask about.
        questions: The class its questions are declared with.
        key: Names this request.
        task_queue: Where a worker with the plugin polls.
        at: When it was decided, which with the key makes it findable for good; now, where left out.
        context: The caller's request context.
        options: Timeouts and what a stop does.

    Raises:
        ApplicationError: No usable answer within the attempt budget; `type` is the code of the error.
    """
    request = step_request(classifier, state, context, options.failures_allowed)
    result = await decide(client, request, key=key, task_queue=task_queue, at=at, options=options)
    return evaluation_of(result, questions)


class Guards:
    """Processors over messages.

    Args:
        client: A Temporal client.
        names: Keys or ids of processors that the worker's app registers, in the order they run.
        task_queue: Where a worker with the plugin polls.
        options: Timeouts and what a stop does.

    Raises:
        ConfigurationError: No processor is named.
    """

    def __init__(
        self, client: Client, *names: str, task_queue: str, options: DecideOptions = DEFAULT_OPTIONS
    ) -> None:
        if not names:
            raise ConfigurationError("Guards needs the name of at least one processor")
        self._client = client
        self._names = names
        self._task_queue = task_queue
        self._options = options

    async def input(
        self,
        messages: Sequence[Message | str],
        *,
        key: str,
        at: datetime | None = None,
        ids: Ids = Ids(),
        context: Mapping[str, JSON] | None = None,
    ) -> Verdict:
        """What the processors make of messages on their way to the model.

        Args:
            messages: In conversation order; text is a user's message.
            key: Names this request.
            at: When it was decided, which with the key makes it findable for good; now, where left out.
            ids: Thread and resource; what is absent falls back to the message, then to the request context.
            context: The caller's request context.

        Returns:
            The verdict. Reading its `messages`, and `raise_if_aborted`, raise `Tripped` after an abort.

        Raises:
            ApplicationError: What is declared cannot work, or policy raised; `type` is the code of the error.
        """
        return await self._run("input", messages, key, at, ids, context)

    async def output(
        self,
        messages: Sequence[Message | str],
        *,
        key: str,
        at: datetime | None = None,
        ids: Ids = Ids(),
        context: Mapping[str, JSON] | None = None,
    ) -> Verdict:
        """The same for what a model said; text is an assistant's message."""
        return await self._run("output", messages, key, at, ids, context)

    async def _run(  # noqa: PLR0917 - in the order of its callers
        self,
        phase: Literal["input", "output"],
        messages: Sequence[Message | str],
        key: str,
        at: datetime | None,
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
        result = await decide(
            self._client, request, key=key, task_queue=self._task_queue, at=at, options=self._options
        )
        return Verdict(judgements_of(result.decisions), given)


async def decide(
    client: Client,
    request: DecideRequest,
    *,
    key: str,
    task_queue: str,
    at: datetime | None = None,
    options: DecideOptions = DEFAULT_OPTIONS,
) -> DecideResult:
    """Runs `classifier.decide` under the caller's key; see the module for what a key promises.

    Where the activity dies, its failure is recorded by `classifier.record`, and a decision that an attempt
    recorded before wins over it.

    Raises:
        ApplicationError: Type INPUT_TOO_LARGE: the request exceeds what Temporal carries. Of processors also
            what cannot be decided by a failure rule: CONFIGURATION, POLICY_ERROR.
        ConfigurationError: The options ask for local mode, or the key is blank.
        CancelledError: The decision was stopped by somebody else.
        asyncio.CancelledError: The caller's task was cancelled.
    """
    if options.local or not key.strip():
        raise ConfigurationError("a decision without a workflow needs a key, and has no local mode")
    check_size(request)
    if at is not None:
        request = replace(request, decided_at=at.isoformat(), look_first=True)
    standalone = _Standalone(client, key, options.task_queue or task_queue, options)
    handle, request = await standalone.started(request)
    try:
        return await standalone.result(handle)
    except ActivityFailureError as error:
        if isinstance(error.cause, CancelledError):
            raise error.cause from None
        if is_fatal(request, error.cause):
            raise as_fatal(error.cause) from error
        return await standalone.record_lost(handle, request, code_of(error.cause))


class _Standalone:
    """The activities of one key."""

    def __init__(self, client: Client, key: str, task_queue: str, options: DecideOptions) -> None:
        self._client = client
        self._key = key
        self._task_queue = task_queue
        self._options = options

    async def started(self, request: DecideRequest) -> tuple[ActivityHandle[Any], DecideRequest]:
        """The activity, which may have been started before, and what it was asked."""
        try:
            return await self._start(request), request
        except ActivityAlreadyStartedError as known:
            handle = self._client.get_activity_handle(self._key, run_id=known.run_id)
        try:
            await handle.result()
        except ActivityFailureError as error:
            if isinstance(error.cause, CancelledError):
                again = replace(await _as_of(handle, request), look_first=True)
                return await self._start(again, ActivityIDReusePolicy.ALLOW_DUPLICATE), again
        return handle, request

    async def _start(
        self,
        request: DecideRequest,
        reuse: ActivityIDReusePolicy = ActivityIDReusePolicy.REJECT_DUPLICATE,
    ) -> ActivityHandle[Any]:
        options = self._options
        return await self._client.start_activity(
            DECIDE,
            request_to_json(request),
            id=self._key,
            task_queue=self._task_queue,
            start_to_close_timeout=options.attempt,
            schedule_to_close_timeout=options.overall,
            heartbeat_timeout=options.heartbeat,
            retry_policy=RETRY,
            id_reuse_policy=reuse,
            id_conflict_policy=ActivityIDConflictPolicy.USE_EXISTING,
        )

    async def result(self, handle: ActivityHandle[Any]) -> DecideResult:
        """What the activity comes to; a caller that is cancelled stops it, if it may."""
        try:
            return result_from_json(await handle.result())
        except asyncio.CancelledError:
            if self._options.on_stop == "cancel":
                await self._stop(handle)
            raise

    async def _stop(self, handle: ActivityHandle[Any]) -> None:
        with contextlib.suppress(ActivityFailureError, RPCError, TimeoutError):
            async with asyncio.timeout(_LONGEST_STOP):
                await handle.cancel(reason="the caller left")
                await handle.result()

    async def record_lost(
        self, handle: ActivityHandle[Any], request: DecideRequest, code: str
    ) -> DecideResult:
        """What is on record for an activity that came to nothing."""
        request = await _as_of(handle, request)
        lost = RecordRequest(lost=request, activity_id=self._key, code=code)
        recording = await self._client.start_activity(
            RECORD,
            record_to_json(lost),
            id=f"{self._key} lost",
            task_queue=self._task_queue,
            start_to_close_timeout=timedelta(seconds=30),
            retry_policy=_RECORD_RETRY,
            id_conflict_policy=ActivityIDConflictPolicy.USE_EXISTING,
        )
        try:
            return result_from_json(await recording.result())
        except ActivityFailureError as error:
            raise unrecordable(code, error.cause) from error


async def _as_of(handle: ActivityHandle[Any], request: DecideRequest) -> DecideRequest:
    """The request with the time that the activity took for the decision's."""
    if request.decided_at is not None:
        return request
    known = await handle.describe(include_input=True)
    given: Any = await known.input()  # of whoever was first, who may have said when
    said = given[0]["decided_at"] if given else None
    return replace(request, decided_at=said or known.schedule_time.isoformat())
