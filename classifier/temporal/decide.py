"""The activities `classifier.decide` and `classifier.record`: evaluate, apply policy, record, answer.

Temporal alone retries. The attempt budget counts failed model calls and travels in heartbeat details, so
that a deploy or a crash costs none of it. From the second attempt on the store is asked first: the first
decision that was recorded is the one acted on.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, Literal, cast

from temporalio import activity
from temporalio.exceptions import ApplicationError

from classifier.answers import answers_from_json
from classifier.app import ResolvedApp
from classifier.audit.store import DecisionStore
from classifier.context import checked_context, tenant_of
from classifier.decision import Coordinates, Decision, Ids
from classifier.decision_json import decision_from_json
from classifier.errors import ClassifierError, ConfigurationError
from classifier.judged_anew import JudgedAnew
from classifier.messages import message_from_json
from classifier.playbook import Playbook
from classifier.step import Step
from classifier.temporal.failures import as_application_error
from classifier.temporal.guards import Guard
from classifier.temporal.heartbeat import Attempts, Progress, heartbeating
from classifier.temporal.messages import (
    DECIDE,
    RECORD,
    TIMEOUT,
    DecideRequest,
    DecideResult,
    RecordRequest,
    result_to_json,
)
from classifier.temporal.metrics import count_decisions
from classifier.temporal.recorder import Recorder
from classifier.temporal.results import decided, result_of
from classifier.temporal.steps import Steps
from classifier.tracing import current_span
from classifier.values import JSON
from classifier.verdict import Run


class ClassifierActivities:
    """The activities a worker registers.

    Args:
        app: What names resolve to.
        store: Where decisions are kept.
        concurrency: Model calls one activity makes at a time when it is given many states.
    """

    def __init__(self, app: ResolvedApp, store: DecisionStore, *, concurrency: int = 32) -> None:
        self._app = app
        self._store = store
        self._concurrency = concurrency
        self._attempts = Attempts()

    @activity.defn(name=DECIDE)
    async def decide(self, request: DecideRequest) -> dict[str, Any]:
        """Decides on every state or message of the request, each exactly once however often attempted."""
        info = activity.info()
        _check_time(info)
        progress = self._attempts.earlier()
        try:
            work = self._work(request, info.activity_id)
            look_first = info.attempt > 1 or info.is_local or request.look_first
            recorder = self._recorder(request, look_first=look_first)
            async with heartbeating(progress):
                result = await self._decide(work, request, recorder, progress)
                return result_to_json(replace(result, review=_review(work)))
        except ClassifierError as error:
            if error.retryable:
                self._attempts.leave(progress)
            raise as_application_error(error) from None

    @activity.defn(name=RECORD)
    async def record(self, request: RecordRequest) -> dict[str, Any]:
        """Stores decisions that could not be stored where they were made; gives back what is stored."""
        try:
            stored = list(await self._store.record([decision_from_json(body) for body in request.pending]))
            routes: list[str] = []
            review: list[dict[str, Any]] = []
            budget: float | None = None
            if request.lost is not None:
                work = self._work(request.lost, request.activity_id)
                stored += await self._record_lost(work, request.lost, request.code)
                routes, review, budget = _routes(work), _review(work), self._shadow_budget(work, stored)
        except ClassifierError as error:
            raise as_application_error(error) from None
        made = [decided(decision) for decision in stored]
        return result_to_json(DecideResult(made, routes, review=review, shadow_budget=budget))

    async def _decide(
        self, work: Steps | Guard, request: DecideRequest, recorder: Recorder, progress: Progress
    ) -> DecideResult:
        try:
            decisions = await _run(work, recorder, progress)
        except asyncio.CancelledError:
            if recorder.pending and _is_stopped():  # the workflow knows of the stop; it records these first
                return result_of((), request, recorder, _routes(work))
            raise
        result = result_of(decisions, request, recorder, _routes(work))
        return replace(result, shadow_budget=self._shadow_budget(work, decisions))

    async def _record_lost(self, work: Steps | Guard, request: DecideRequest, code: str) -> list[Decision]:
        recorder = self._recorder(request, look_first=True, may_travel=False)
        if isinstance(work, Steps):
            return list(await recorder.record(work.lost(code)))
        return await work.run_lost(recorder, code)

    def _recorder(
        self, request: DecideRequest, *, look_first: bool, may_travel: bool | None = None
    ) -> Recorder:
        return Recorder(
            self._store,
            tenant_of(request.context),
            [_decided_at(request), *_other_times(request)],
            look_first=look_first,
            may_travel=activity.info().in_workflow if may_travel is None else may_travel,
            count=_count,
        )

    def _work(self, request: DecideRequest, activity_id: str) -> Steps | Guard:
        named = (request.classifier, request.playbook, request.shadow, request.processors or None)
        if sum(name is not None for name in named) != 1:
            raise ConfigurationError(
                "a decide request names one of classifier, playbook, shadow and processors"
            )
        info = activity.info()
        context = checked_context(request.context)
        coordinates = Coordinates(
            tenant=tenant_of(context),
            namespace=info.namespace,
            workflow_id=info.workflow_id or "",
            run_id=info.workflow_run_id or "",
            activity_id=activity_id,
        )
        if request.processors:
            return self._guard(request, coordinates, context)
        return Steps(
            self._step(request, coordinates, context),
            request.states,
            request.failures_allowed,
            self._concurrency,
        )

    def _guard(self, request: DecideRequest, coordinates: Coordinates, context: Mapping[str, JSON]) -> Guard:
        if request.phase not in {"input", "output"}:
            raise ConfigurationError("processors run in the phase 'input' or 'output'")
        return Guard(
            processors=[self._app.processors[name] for name in request.processors],
            messages=[message_from_json(_object(each)) for each in request.states],
            phase=cast('Literal["input", "output"]', request.phase),
            run=Run(
                coordinates=coordinates,
                decided_at=_decided_at(request),
                context=context,
                ids=_ids(request),
            ),
            failures_allowed=request.failures_allowed,
        )

    def _step(self, request: DecideRequest, coordinates: Coordinates, context: Mapping[str, JSON]) -> Step:
        if request.shadow is not None:
            return self._shadow(request, request.shadow, coordinates, context)
        playbook: Playbook[Any] | None = None
        if request.playbook is not None:
            playbook = self._app.playbooks[request.playbook]
        name = request.classifier
        classifier = self._app.classifier_of(playbook) if playbook else self._app.classifiers[name or ""]
        return Step(classifier, playbook, coordinates, _decided_at(request), context, _ids(request))

    def _shadow(
        self, request: DecideRequest, name: str, coordinates: Coordinates, context: Mapping[str, JSON]
    ) -> Step:
        """A step whose decisions nothing follows from; the model is asked only where it is another one."""
        live = self._app.playbooks[name]
        if live.shadow is None:
            raise ConfigurationError(f"playbook {name!r} has no shadow any more")
        shadow = live.shadow.of(live)
        classifier = self._app.classifier_of(shadow)
        place = (classifier, shadow, coordinates, _decided_at(request), context, _ids(request))
        if not self._asks_the_same(live):
            return Step(*place, mode="shadow")
        given = [None if each is None else answers_from_json(each) for each in request.answers]
        return JudgedAnew(*place, mode="shadow", answers=given)

    def _asks_the_same(self, live: Playbook[Any]) -> bool:
        asked = self._app.classifier_of
        return live.shadow is not None and asked(live.shadow.of(live)) is asked(live)

    def _shadow_budget(self, work: Steps | Guard, decisions: Sequence[Decision]) -> float | None:
        """How long the playbook's shadow has; None where there is none, or nothing for it to judge anew."""
        live = work.step.playbook if isinstance(work, Steps) else None
        if live is None or live.shadow is None:
            return None
        if self._asks_the_same(live) and all(each.answers is None for each in decisions):
            return None
        return live.shadow.budget.total_seconds()


async def _run(work: Steps | Guard, recorder: Recorder, progress: Progress) -> list[Decision]:
    if isinstance(work, Steps):
        return await work.run(recorder, progress)
    return await work.run_once(recorder, progress)


def _routes(work: Steps | Guard) -> list[str]:
    playbook = work.step.playbook if isinstance(work, Steps) else None
    return [] if playbook is None else list(playbook.routes)


def _review(work: Steps | Guard) -> list[dict[str, Any]]:
    """What its playbook does with those who wait for a person too long."""
    playbook = work.step.playbook if isinstance(work, Steps) else None
    rules = None if playbook is None else playbook.review
    return [] if rules is None else [dict(step) for step in rules.steps()]


def _decided_at(request: DecideRequest) -> datetime:
    given = request.decided_at
    return activity.info().scheduled_time if given is None else datetime.fromisoformat(given)


def _other_times(request: DecideRequest) -> list[datetime]:
    given = request.maybe_decided_at
    return [] if given is None else [datetime.fromisoformat(given)]


def _count(decisions: Sequence[Decision]) -> None:
    count_decisions(decisions, activity.metric_meter())


def _ids(request: DecideRequest) -> Ids:
    trace, span = current_span() or (None, None)
    return Ids(
        request.thread, request.resource, request.message, request.trace or trace, request.span or span
    )


def _object(message: object) -> Mapping[str, Any]:
    if not isinstance(message, dict):
        raise ConfigurationError("processors take messages as objects with role and content")
    return cast("dict[str, Any]", message)


def _check_time(info: activity.Info) -> None:
    """The SDK forgets the end of a local activity's time if it falls between two attempts."""
    if info.is_local and info.attempt > 1 and info.schedule_to_close_timeout:
        spent = datetime.now(UTC) - info.scheduled_time
        if spent >= info.schedule_to_close_timeout:
            raise ApplicationError("all attempts together took too long", type=TIMEOUT, non_retryable=True)


def _is_stopped() -> bool:
    details = activity.cancellation_details()
    return details is not None and details.cancel_requested
