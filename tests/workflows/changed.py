"""Workflows with an activity more and no patch: what must never be released."""

from __future__ import annotations

from datetime import timedelta

from temporalio import workflow

from workflows.messages import TRIAGE, TriageRequest, TriageStatus
from workflows.subject_messages import SUBJECT, SubjectRequest
from workflows.subjects import SubjectWorkflow
from workflows.triage import TriageWorkflow


@workflow.defn(name=TRIAGE)
class ChangedTriageWorkflow(TriageWorkflow):
    """Asks somebody first."""

    @workflow.init
    def __init__(self, request: TriageRequest) -> None:
        super().__init__(request)

    @workflow.run
    async def run(self, request: TriageRequest) -> TriageStatus:
        """One step more than before."""
        await workflow.execute_activity("extra", start_to_close_timeout=timedelta(seconds=1))
        return await super().run(request)


@workflow.defn(name=SUBJECT)
class ChangedSubjectWorkflow(SubjectWorkflow):
    """Asks somebody first."""

    @workflow.init
    def __init__(self, request: SubjectRequest) -> None:
        super().__init__(request)

    @workflow.run
    async def run(self, request: SubjectRequest) -> None:
        """One step more than before."""
        await workflow.execute_activity("extra", start_to_close_timeout=timedelta(seconds=1))
        await super().run(request)
