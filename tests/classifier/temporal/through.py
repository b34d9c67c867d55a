"""Runs conformance cases through `classifier.decide` in a workflow: one worker for all of them."""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import AsyncGenerator
from typing import Any, TypeAlias

from temporalio import activity
from temporalio.client import Client, WorkflowFailureError
from temporalio.exceptions import ApplicationError
from temporalio.worker import Worker

from classifier.app import App
from classifier.audit.memory import MemoryStore
from classifier.decision import Tripwire
from classifier.errors import ConfigurationError
from classifier.messages import message_to_json
from classifier.temporal.decide import ClassifierActivities
from classifier.temporal.messages import DECIDE, RECORD, DecideRequest, RecordRequest
from classifier.temporal.plugin import PURE_MODULES, RecordsBeforeClose, with_passthrough
from classifier.temporal.workflow import tripwire_of
from tests.classifier.conformance import Form, Observed, Setup
from tests.classifier.plain import logged
from tests.classifier.temporal.project.worker import ONCE
from tests.classifier.temporal.project.workflows import Guarded, GuardMessages, Passed

Came: TypeAlias = tuple[str, tuple[object, ...], Tripwire | None]


class Through:
    """A runner of conformance cases; a run's activities are those of its case."""

    def __init__(self, client: Client, queue: str) -> None:
        self._client = client
        self._queue = queue
        self._cases: dict[str, ClassifierActivities] = {}

    async def __call__(self, setup: Setup, form: Form) -> Observed:
        name, store = f"case-{uuid.uuid4()}", MemoryStore()
        with logged() as written:
            try:
                app = App(processors=setup.processors).resolve({})
                self._cases[name] = ClassifierActivities(app, store)
                outcome, passed, tripwire = await self._run(name, setup, form)
            except ConfigurationError as error:
                outcome, passed, tripwire = error.code, (), None
        return Observed(outcome, passed, tripwire, tuple(store.decisions.values()), written.getvalue())

    async def _run(self, name: str, setup: Setup, form: Form) -> Came:
        assert form != "stream"
        given = Guarded(
            processors=[processor.id for processor in setup.processors],
            messages=[message_to_json(message) for message in setup.messages],
            phase=form,
            context=dict(setup.context),
            ids=setup.ids,
            failures_allowed=1,
        )
        try:
            passed: Passed = await self._client.execute_workflow(
                GuardMessages.run, given, id=name, task_queue=self._queue
            )
        except WorkflowFailureError as error:
            tripwire = tripwire_of(error)
            return ("aborted" if tripwire else _final_code(error)), (), tripwire
        setup.seen.extend(("out", text) for text in passed.texts)
        return "allowed", tuple(passed.texts), None

    @activity.defn(name=DECIDE)
    async def decide(self, request: DecideRequest) -> dict[str, Any]:
        return await self._case().decide(request)

    @activity.defn(name=RECORD)
    async def record(self, request: RecordRequest) -> dict[str, Any]:
        return await self._case().record(request)

    def _case(self) -> ClassifierActivities:
        return self._cases[activity.info().workflow_id or ""]


def _final_code(error: WorkflowFailureError) -> str:
    cause = error.cause
    assert isinstance(cause, ApplicationError)
    assert cause.non_retryable
    return str(cause.type)


@contextlib.asynccontextmanager
async def through_workflows(client: Client) -> AsyncGenerator[Through]:
    """A runner and its worker."""
    queue = f"queue-{uuid.uuid4()}"
    runner = Through(client, queue)
    async with Worker(
        client,
        task_queue=queue,
        workflows=[GuardMessages],
        activities=[runner.decide, runner.record],
        interceptors=[RecordsBeforeClose()],
        workflow_runner=with_passthrough((*PURE_MODULES, *ONCE))(None),
    ):
        yield runner
