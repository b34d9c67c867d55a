"""The project's workflow with an activity more and no patch: what must never be released."""

from __future__ import annotations

from datetime import timedelta

from temporalio import workflow

from tests.classifier.temporal.project.workflows import Guarded, GuardMessages, Passed


@workflow.defn(name="GuardMessages")
class ChangedGuardMessages(GuardMessages):
    """Asks somebody first."""

    @workflow.run
    async def run(self, given: Guarded) -> Passed:
        """One step more than before."""
        await workflow.execute_activity("extra", start_to_close_timeout=timedelta(seconds=1))
        return await super().run(given)
