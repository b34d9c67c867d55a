"""A workflow with one activity that does nothing: what Temporal itself costs."""

from __future__ import annotations

from datetime import timedelta

from temporalio import activity, workflow

NOTHING = "bench.nothing"


@activity.defn(name=NOTHING)
async def nothing() -> None:
    """Does nothing."""


@workflow.defn
class NoopWorkflow:
    """Runs the activity once."""

    @workflow.run
    async def run(self) -> None:
        """Ends with the activity."""
        await workflow.execute_activity(NOTHING, start_to_close_timeout=timedelta(seconds=60))
