"""Delivers by starting a workflow: its id is the idempotency key, so Temporal itself refuses a second one."""

from __future__ import annotations

from collections.abc import Mapping

from temporalio.client import Client
from temporalio.common import WorkflowIDReusePolicy
from temporalio.exceptions import WorkflowAlreadyStartedError
from temporalio.service import RPCError, RPCStatusCode

from activities.handing import rejected, unavailable
from classifier.playbook import StartWorkflow
from classifier.values import JSON

_FOR_GOOD = {
    RPCStatusCode.INVALID_ARGUMENT,
    RPCStatusCode.NOT_FOUND,
    RPCStatusCode.PERMISSION_DENIED,
    RPCStatusCode.UNAUTHENTICATED,
    RPCStatusCode.UNIMPLEMENTED,
}


async def start_once(client: Client, destination: StartWorkflow, key: str, body: Mapping[str, JSON]) -> None:
    """Starts it with `body` as its one argument, unless an earlier attempt has, however that run ended.

    Raises:
        ApplicationError: Temporal did not take it.
    """
    try:
        await client.start_workflow(
            destination.type,
            dict(body),
            id=f"{destination.prefix}{key}",
            task_queue=destination.task_queue,
            id_reuse_policy=WorkflowIDReusePolicy.REJECT_DUPLICATE,
        )
    except WorkflowAlreadyStartedError:
        return
    except RPCError as error:
        message = f"Temporal did not start the workflow ({error.status.name})"
        raise (rejected if error.status in _FOR_GOOD else unavailable)(message) from None
