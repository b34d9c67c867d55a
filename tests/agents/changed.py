"""The thread's workflow with an activity more and no patch: what must never be released."""

from __future__ import annotations

from datetime import timedelta

from temporalio import workflow

from workflows.agent import AgentWorkflow
from workflows.agent_messages import AGENT, ThreadRequest


@workflow.defn(name=AGENT)
class ChangedAgentWorkflow(AgentWorkflow):
    """Asks somebody first."""

    @workflow.run
    async def run(self, request: ThreadRequest) -> None:
        """One step more than before."""
        await workflow.execute_activity("extra", start_to_close_timeout=timedelta(seconds=1))
        await super().run(request)
