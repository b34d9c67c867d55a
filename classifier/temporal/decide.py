"""The activities `classifier.decide` and `classifier.record`: evaluate, apply policy, record, answer.

Temporal alone retries. The attempt budget counts failed model calls and travels in heartbeat details, so
that a deploy or a crash costs none of it. From the second attempt on the store is asked first: the first
decision that was recorded is the one acted on.
"""

from __future__ import annotations

import asyncio
import logging
import traceback
from collections.abc import Awaitable, Mapping
from datetime import datetime
from typing import Any, TypeVar

from temporalio import activity

from classifier.answers import answers_to_json
from classifier.app import ResolvedApp
from classifier.audit.store import DecisionStore
from classifier.context import checked_context, tenant_of
from classifier.decision import Coordinates, Decision, DecisionFailure, Ids
from classifier.decision_json import branch_to_json, decision_from_json, decision_to_json
from classifier.errors import ClassifierError, ConfigurationError, ModelError, PolicyError, StoreUnavailable
from classifier.step import Step
from classifier.temporal.failures import as_application_error, as_failure
from classifier.temporal.heartbeat import Progress, earlier_progress, heartbeating
from classifier.temporal.messages import DECIDE, RECORD, Decided, DecideRequest, DecideResult, RecordRequest
from classifier.values import State

T = TypeVar("T")

log = logging.getLogger(__name__)


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

    @activity.defn(name=DECIDE)
    async def decide(self, request: DecideRequest) -> DecideResult:
        """Decides on every state of the request, each exactly once however often this is attempted."""
        try:
            step = self._step(request, activity.info().activity_id)
            progress = earlier_progress()
            async with heartbeating(progress):
                stored = await self._stored(step, len(request.states))
                return await self._decided(step, request, stored, progress)
        except ClassifierError as error:
            raise as_application_error(error) from None

    @activity.defn(name=RECORD)
    async def record(self, request: RecordRequest) -> DecideResult:
        """Stores decisions that could not be stored where they were made; gives back what is stored."""
        try:
            decisions = [decision_from_json(body) for body in request.pending]
            routes: list[str] = []
            if request.lost is not None:
                step = self._step(request.lost, request.activity_id)
                decisions += _lost(step, request.lost, request.code)
                routes = _routes(step)
            stored = await self._store.record(decisions)
        except ClassifierError as error:
            raise as_application_error(error) from None
        return DecideResult([_decided(decision, recorded=True) for decision in stored], routes)

    async def _decided(
        self,
        step: Step,
        request: DecideRequest,
        stored: Mapping[int, Decision],
        progress: Progress,
    ) -> DecideResult:
        states: dict[int, State] = {
            ordinal: state for ordinal, state in enumerate(request.states) if ordinal not in stored
        }
        asked = await self._ask_all(step, states, progress)
        errors = {ordinal: error for ordinal, error in asked.items() if isinstance(error, ModelError)}
        made = {ordinal: made for ordinal, made in asked.items() if isinstance(made, Decision)}
        again = next((error for error in errors.values() if error.retryable), None)
        spent = progress.attempt >= request.failures_allowed
        for ordinal, error in errors.items():
            if spent or not error.retryable:
                made[ordinal] = _failed(step, ordinal, states[ordinal], as_failure(error), progress)
        recorded, durable = await self._recorded(made)
        for outcome in asked.values():
            if not isinstance(outcome, Decision | ModelError):
                raise outcome
        if again is not None and not spent:
            progress.failures += 1
            progress.beat()
            raise again
        decisions = [stored.get(ordinal) or recorded[ordinal] for ordinal in range(len(request.states))]
        return DecideResult(
            decisions=[
                _decided(decision, recorded=durable or decision.ordinal in stored) for decision in decisions
            ],
            routes=_routes(step),
            pending=[] if durable else [decision_to_json(decision) for decision in recorded.values()],
        )

    async def _ask_all(
        self, step: Step, states: Mapping[int, State], progress: Progress
    ) -> dict[int, Decision | ClassifierError]:
        slots = asyncio.Semaphore(self._concurrency)

        async def ask(ordinal: int, state: State) -> Decision | ClassifierError:
            async with slots:
                return await _ask(step, ordinal, state, progress)

        async with asyncio.TaskGroup() as group:
            tasks = {ordinal: group.create_task(ask(ordinal, state)) for ordinal, state in states.items()}
        return {ordinal: task.result() for ordinal, task in tasks.items()}

    async def _stored(self, step: Step, count: int) -> dict[int, Decision]:
        info = activity.info()
        if info.attempt == 1 and not info.is_local:
            return {}
        ordinals = {step.coordinates.decision_id(ordinal): ordinal for ordinal in range(count)}
        try:
            found = await self._store.find(step.coordinates.tenant, step.decided_at, list(ordinals))
        except StoreUnavailable:
            log.warning("store away during look-up", extra={"activity_id": info.activity_id})
            return {}
        return {ordinals[decision_id]: decision for decision_id, decision in found.items()}

    async def _recorded(self, made: Mapping[int, Decision]) -> tuple[dict[int, Decision], bool]:
        if not made:
            return {}, True
        try:
            stored = await _to_its_end(self._store.record(list(made.values())))
        except StoreUnavailable:
            log.warning("store away, decisions travel to the workflow", extra={"decisions": len(made)})
            return dict(made), False
        return {decision.ordinal: decision for decision in stored}, True

    def _step(self, request: DecideRequest, activity_id: str) -> Step:
        info = activity.info()
        if (request.classifier is None) == (request.playbook is None):
            raise ConfigurationError("a decide request names either a classifier or a playbook")
        playbook = None if request.playbook is None else self._app.playbooks[request.playbook]
        name = request.classifier
        classifier = self._app.classifier_of(playbook) if playbook else self._app.classifiers[name or ""]
        context = checked_context(request.context)
        coordinates = Coordinates(
            tenant=tenant_of(context),
            namespace=info.namespace,
            workflow_id=info.workflow_id or "",
            run_id=info.workflow_run_id or "",
            activity_id=activity_id,
        )
        given = request.decided_at
        decided_at = info.scheduled_time if given is None else datetime.fromisoformat(given)
        ids = Ids(thread=request.thread, resource=request.resource, message=request.message)
        return Step(classifier, playbook, coordinates, decided_at, context, ids)


async def _ask(step: Step, ordinal: int, data: State, progress: Progress) -> Decision | ClassifierError:
    try:
        state, result = await step.evaluate(data)
        return await step.answered(
            ordinal, state, result, duration_ms=progress.milliseconds, attempts=progress.attempt
        )
    except ClassifierError as error:
        return error
    except Exception as error:  # noqa: BLE001 - a model or transform of the application's; its text may hold the state
        kind = type(error).__name__
        log.error("asking raised", extra={"error": kind, "where": _where(error)})  # noqa: TRY400 - no text
        return PolicyError(f"asking classifier {step.classifier.id!r} raised {kind}")


def _where(error: Exception) -> str:
    last = traceback.extract_tb(error.__traceback__)[-1]
    return f"{last.filename}:{last.lineno}"


def _failed(step: Step, ordinal: int, state: State, failure: DecisionFailure, progress: Progress) -> Decision:
    return step.failed(
        ordinal,
        step.state_of(state),
        failure,
        duration_ms=progress.milliseconds,
        attempts=progress.attempt,
    )


def _lost(step: Step, request: DecideRequest, code: str) -> list[Decision]:
    failure = DecisionFailure(code, "the activity ended without a result")
    return [
        step.failed(ordinal, _state_or_blank(step, state), failure, duration_ms=0.0, attempts=0)
        for ordinal, state in enumerate(request.states)
    ]


def _routes(step: Step) -> list[str]:
    return [] if step.playbook is None else list(step.playbook.routes)


def _state_or_blank(step: Step, data: State) -> State:
    try:
        return step.state_of(data)
    except PolicyError:
        return ""


def _decided(decision: Decision, *, recorded: bool) -> Decided:
    failure = decision.failure
    body: dict[str, Any] | None = None if decision.answers is None else answers_to_json(decision.answers)
    return Decided(
        decision_id=str(decision.decision_id),
        outcome=decision.outcome,
        answers=body,
        branch=None if decision.branch is None else branch_to_json(decision.branch),
        failure=None if failure is None else {"code": failure.code, "message": failure.message},
        recorded=recorded,
    )


async def _to_its_end(write: Awaitable[T]) -> T:
    """Lets a write end although a cancel arrives meanwhile; then the cancel goes on.

    A write that fails is raised in place of the cancel: the decision then travels to the workflow, which
    records it and knows of the cancel itself.
    """
    writing = asyncio.ensure_future(write)
    try:
        return await asyncio.shield(writing)
    except asyncio.CancelledError:
        await writing
        raise
