"""Runs a tool as the activity it is: by name, with checked arguments. Deterministic, sandbox-safe."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from temporalio import exceptions as temporal_errors
from temporalio import workflow
from temporalio.common import RetryPolicy
from temporalio.exceptions import ActivityError, ApplicationError, is_cancelled_exception

from activities.chat_messages import ToolCall
from classifier.values import as_text

MAX_RESULT_CHARACTERS = 50_000
"""Of one call; what is over is cut, and the model is told."""
_FOR_GOOD = ["ConfigurationError", "PolicyError", "QuestionError", "StoreError", "Tripped"]


class ToolFailed(Exception):
    """A tool did not do what it was to do; `code` is the type of its error."""

    def __init__(self, code: str) -> None:
        super().__init__(f"the tool failed ({code})")
        self.code = code


async def run_tool(call: ToolCall, activity_id: str) -> str:
    """The tool's result as text.

    Raises:
        ToolFailed: It failed for good.
        asyncio.CancelledError: The reply was stopped; a tool that heartbeats has ended.
    """
    patient = workflow.ActivityCancellationType.WAIT_CANCELLATION_COMPLETED
    try:
        result: Any = await workflow.execute_activity(
            call.activity,
            call.values,
            activity_id=activity_id,
            task_queue=call.task_queue,
            start_to_close_timeout=timedelta(seconds=call.seconds),
            heartbeat_timeout=None if call.heartbeat is None else timedelta(seconds=call.heartbeat),
            retry_policy=RetryPolicy(
                initial_interval=timedelta(milliseconds=500),
                maximum_interval=timedelta(seconds=30),
                maximum_attempts=call.attempts,
                non_retryable_error_types=_FOR_GOOD,
            ),
            cancellation_type=workflow.ActivityCancellationType.TRY_CANCEL
            if call.heartbeat is None
            else patient,
        )
    except ActivityError as error:
        if is_cancelled_exception(error):
            raise
        raise ToolFailed(code_of(error)) from error
    text = as_text(result)
    return text if len(text) <= MAX_RESULT_CHARACTERS else f"{text[:MAX_RESULT_CHARACTERS]} (cut)"


def code_of(error: ActivityError) -> str:
    """Why an activity failed, as a stable code."""
    match error.cause:
        case ApplicationError(type=str() as code):
            return code
        case temporal_errors.TimeoutError():
            return "TIMEOUT"
        case _:
            return "ACTIVITY_FAILED"
