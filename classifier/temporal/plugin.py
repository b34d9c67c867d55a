"""`ClassifierPlugin` for workers that decide, and `CallerPlugin` for those that have another decide."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncGenerator, Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any

from temporalio.plugin import SimplePlugin
from temporalio.worker import (
    ExecuteWorkflowInput,
    Interceptor,
    WorkerConfig,
    WorkflowInboundInterceptor,
    WorkflowInterceptorClassInput,
    WorkflowRunner,
)
from temporalio.worker.workflow_sandbox import SandboxedWorkflowRunner

from classifier.app import ResolvedApp
from classifier.audit.store import DecisionStore
from classifier.temporal.decide import ClassifierActivities
from classifier.temporal.pending import records_are_in
from classifier.temporal.shadows import shadows_end, stop_shadows

PURE_MODULES = (
    "classifier.answers",
    "classifier.context",
    "classifier.decision",
    "classifier.errors",
    "classifier.messages",
    "classifier.questions",
    "classifier.result",
    "classifier.temporal.clock",
    "classifier.temporal.messages",
    "classifier.temporal.pending",
    "classifier.temporal.requests",
    "classifier.temporal.shadows",
    "classifier.temporal.travel",
    "classifier.temporal.verdicts",
    "classifier.temporal.workflow",
    "classifier.values",
    "classifier.verdict",
)
"""Loaded once, outside the sandbox. Modules by name, never a package: whatever else workflow code imports
stays under the sandbox's watch."""


HEARTBEAT_THROTTLE = timedelta(milliseconds=200)


class CallerPlugin(SimplePlugin):
    """For workers of workflows whose decisions another worker makes (`DecideOptions.task_queue`).

    Holds a run open until its records are in.
    """

    def __init__(self) -> None:
        super().__init__(  # pyright: ignore[reportUnknownMemberType] - the SDK leaves a callable untyped
            "temporal-classifier.CallerPlugin",
            interceptors=[RecordsBeforeClose()],
            workflow_runner=with_passthrough(PURE_MODULES),
        )


class ClassifierPlugin(SimplePlugin):
    """Registers the activities, holds a run open until its records are in, closes models with the worker.

    Args:
        app: A resolved app.
        store: Where decisions are kept; the caller closes it.
    """

    def __init__(self, app: ResolvedApp, store: DecisionStore) -> None:
        activities = ClassifierActivities(app, store)

        @contextlib.asynccontextmanager
        async def open_models() -> AsyncGenerator[None]:
            try:
                yield
            finally:
                await app.aclose()

        super().__init__(  # pyright: ignore[reportUnknownMemberType] - the SDK leaves a callable untyped
            "temporal-classifier.ClassifierPlugin",
            activities=[activities.decide, activities.record],
            interceptors=[RecordsBeforeClose()],
            workflow_runner=with_passthrough(PURE_MODULES),
            run_context=open_models,
        )

    def configure_worker(self, config: WorkerConfig) -> WorkerConfig:
        """Lets heartbeats through as they come, so that a cancel reaches a call within half a second."""
        config = super().configure_worker(config)
        throttle = config.get("max_heartbeat_throttle_interval", HEARTBEAT_THROTTLE)  # pyright: ignore[reportUnknownMemberType] - the SDK leaves a callable untyped
        config["max_heartbeat_throttle_interval"] = min(throttle, HEARTBEAT_THROTTLE)
        return config


class RecordsBeforeClose(Interceptor):
    """A run does not close before what it decided is in the history, and its shadows have ended."""

    def workflow_interceptor_class(
        self,
        input: WorkflowInterceptorClassInput,  # noqa: A002 - the SDK's name
    ) -> type[WorkflowInboundInterceptor] | None:
        """Every workflow of the worker."""
        del input
        return _RecordsBeforeClose


class _RecordsBeforeClose(WorkflowInboundInterceptor):
    async def execute_workflow(self, input: ExecuteWorkflowInput) -> Any:  # noqa: A002 - the SDK's name
        try:
            result = await super().execute_workflow(input)
            await shadows_end()
        except GeneratorExit:  # the worker ended without it; nothing can be awaited any more
            raise
        except BaseException:
            await stop_shadows()
            await records_are_in()
            raise
        await records_are_in()
        return result


def with_passthrough(modules: tuple[str, ...]) -> Callable[[WorkflowRunner | None], WorkflowRunner]:
    """Adds modules to what the sandbox passes through; another runner of the user's stays as it is."""

    def extended(runner: WorkflowRunner | None) -> WorkflowRunner:
        if runner is None:
            runner = SandboxedWorkflowRunner()
        if not isinstance(runner, SandboxedWorkflowRunner):
            return runner
        restrictions = runner.restrictions.with_passthrough_modules(*modules)
        return replace(runner, restrictions=restrictions)

    return extended
