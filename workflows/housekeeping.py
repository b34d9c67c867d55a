"""Housekeeping of the history: one chore after the other, each tried again, none held up by another."""

from __future__ import annotations

from datetime import timedelta

from temporalio import workflow
from temporalio.common import RetryPolicy
from temporalio.exceptions import ActivityError, ApplicationError, is_cancelled_exception

from activities.chores import CHORES, DO_CHORE, HOUSEKEEPING, Chore, ChoreDone

_ATTEMPT = timedelta(hours=1)
"""One statement over a large history may take its time."""
_OVERALL = timedelta(hours=4)
_SILENCE = timedelta(minutes=1)
"""A worker that is silent for so long is taken for dead."""
_RETRY = RetryPolicy(
    initial_interval=timedelta(seconds=10), backoff_coefficient=3, maximum_interval=timedelta(minutes=10)
)


@workflow.defn(name=HOUSEKEEPING)
class HousekeepingWorkflow:
    """What has to be done daily; a Temporal schedule starts it."""

    @workflow.run
    async def run(self) -> list[ChoreDone]:
        """Ends when all is done.

        Raises:
            ApplicationError: Type HOUSEKEEPING; names the chores that were not done, when the others are.
        """
        done: list[ChoreDone] = []
        failed: list[str] = []
        for name in CHORES:
            try:
                done.append(
                    await workflow.execute_activity(
                        DO_CHORE,
                        Chore(name),
                        result_type=ChoreDone,
                        start_to_close_timeout=_ATTEMPT,
                        schedule_to_close_timeout=_OVERALL,
                        heartbeat_timeout=_SILENCE,
                        retry_policy=_RETRY,
                    )
                )
            except ActivityError as error:
                if is_cancelled_exception(error):
                    raise
                failed.append(f"{name}: {error.cause}")
        if failed:
            raise ApplicationError(f"not done: {'; '.join(failed)}", type="HOUSEKEEPING", non_retryable=True)
        return done
