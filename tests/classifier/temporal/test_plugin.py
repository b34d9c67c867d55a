"""The plugin's interceptor, where no worker can show it."""

from __future__ import annotations

import asyncio
from typing import Any, cast

from temporalio.worker import ExecuteWorkflowInput, WorkflowInboundInterceptor

from classifier.temporal.plugin import RecordsBeforeClose


class Waiting(WorkflowInboundInterceptor):
    """A run that waits for a person."""

    def __init__(self) -> None:
        pass

    async def execute_workflow(self, input: ExecuteWorkflowInput) -> Any:  # noqa: A002 - the name of the SDK
        return await asyncio.get_running_loop().create_future()


async def test_a_run_that_went_with_its_worker_asks_for_no_records() -> None:
    """Its coroutine is closed wherever garbage is collected, outside of any workflow."""
    nothing = cast("Any", None)
    around = RecordsBeforeClose().workflow_interceptor_class(nothing)
    assert around is not None
    run = around(Waiting()).execute_workflow(nothing)
    run.send(None)
    run.close()
