"""Workflows of a project that has nothing of ours installed: names and JSON only."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from temporalio import workflow
from temporalio.common import RetryPolicy


@workflow.defn
class CallByName:
    """Calls an activity of the service with a request as the documents show it."""

    @workflow.run
    async def run(self, queue: str, name: str, request: dict[str, Any]) -> dict[str, Any]:
        """What came back."""
        given = dict(request)
        if name == "classifier.decide":
            given["decided_at"] = workflow.now().isoformat()
        answer: dict[str, Any] = await workflow.execute_activity(
            name,
            given,
            task_queue=queue,
            start_to_close_timeout=timedelta(minutes=1),
            schedule_to_close_timeout=timedelta(minutes=10),
            heartbeat_timeout=timedelta(seconds=5),
            retry_policy=RetryPolicy(initial_interval=timedelta(milliseconds=500)),
            cancellation_type=workflow.ActivityCancellationType.WAIT_CANCELLATION_COMPLETED,
        )
        return answer
