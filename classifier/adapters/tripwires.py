"""The worker's half of the guardrails for the OpenAI Agents SDK: a tripwire closes its run."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Any, TypeVar

from temporalio.plugin import SimplePlugin
from temporalio.worker import (
    ExecuteWorkflowInput,
    HandleSignalInput,
    HandleUpdateInput,
    Interceptor,
    WorkflowInboundInterceptor,
    WorkflowInterceptorClassInput,
)

from classifier.adapters.openai_agents import TRIPWIRES, stop_in
from classifier.temporal.plugin import with_passthrough

T = TypeVar("T")

WORKFLOW_SIDE = (
    "classifier.adapters.judge",
    "classifier.adapters.openai_agents",
    "classifier.adapters.text",
)


class TripwirePlugin(SimplePlugin):
    """Lets a tripwire that nobody catches fail the workflow for good, or the update it was raised in.

    Without it Temporal takes the SDK's exception for a fault of the code and tries the workflow task again,
    for ever. The failure is that of a `TripwireError`, which `tripwire_of` reads. For workers, next to
    `OpenAIAgentsPlugin` and `ClassifierPlugin`.
    """

    def __init__(self) -> None:
        super().__init__(  # pyright: ignore[reportUnknownMemberType] - the SDK leaves a callable untyped
            "temporal-classifier.TripwirePlugin",
            interceptors=[_Tripwires()],
            workflow_runner=with_passthrough(WORKFLOW_SIDE),
            workflow_failure_exception_types=list(TRIPWIRES),
        )


class _Tripwires(Interceptor):
    def workflow_interceptor_class(
        self,
        input: WorkflowInterceptorClassInput,  # noqa: A002 - the SDK's name
    ) -> type[WorkflowInboundInterceptor]:
        del input
        return _TripwiresFail


class _TripwiresFail(WorkflowInboundInterceptor):
    async def execute_workflow(self, input: ExecuteWorkflowInput) -> Any:  # noqa: A002 - the SDK's name
        return await _failing(super().execute_workflow(input))

    async def handle_signal(self, input: HandleSignalInput) -> None:  # noqa: A002 - the SDK's name
        await _failing(super().handle_signal(input))

    async def handle_update_handler(self, input: HandleUpdateInput) -> Any:  # noqa: A002 - the SDK's name
        return await _failing(super().handle_update_handler(input))


async def _failing(work: Awaitable[T]) -> T:
    try:
        return await work
    except TRIPWIRES as error:
        stop = stop_in(error)
        if stop is None:
            raise
        raise stop.failure() from error
