"""Waits for a decision on behalf of a sender that would like to have it with the answer."""

from __future__ import annotations

import asyncio
from dataclasses import asdict

from temporalio.client import (
    Client,
    WorkflowFailureError,
    WorkflowHandle,
    WorkflowUpdateFailedError,
    WorkflowUpdateRPCTimeoutOrCancelledError,
)
from temporalio.service import RPCError, RPCStatusCode

from classifier.values import JSON
from workflows.messages import DECIDED, TriageStatus
from workflows.triage import TriageWorkflow

_UNKNOWN = (
    TimeoutError,
    RPCError,
    WorkflowFailureError,
    WorkflowUpdateFailedError,
    WorkflowUpdateRPCTimeoutOrCancelledError,
)


class Waiting:
    """Asks runs for their decisions.

    Args:
        client: Where the runs are.
    """

    def __init__(self, client: Client) -> None:
        self._client = client

    async def decision(self, workflow_id: str, run_id: str, seconds: float) -> dict[str, JSON] | None:
        """Where the event goes; None where that is not known in time, or not any more."""
        handle = self._client.get_workflow_handle_for(TriageWorkflow.run, workflow_id, run_id=run_id)
        try:
            async with asyncio.timeout(seconds):
                return asdict(await _decided(handle))
        except _UNKNOWN:
            return None


async def _decided(handle: WorkflowHandle[TriageWorkflow, TriageStatus]) -> TriageStatus:
    try:
        status: TriageStatus = await handle.execute_update(DECIDED, result_type=TriageStatus)  # pyright: ignore[reportUnknownMemberType] - an overload of the SDK is untyped
    except RPCError as error:
        if error.status != RPCStatusCode.NOT_FOUND:
            raise
        return await handle.result()  # it is over, and says how it ended
    return status
