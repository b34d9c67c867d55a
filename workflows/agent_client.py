"""Talks to a thread from outside: made with its first message, found again by its name. Client side."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncGenerator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from temporalio.client import (
    Client,
    WithStartWorkflowOperation,
    WorkflowHandle,
    WorkflowUpdateFailedError,
    WorkflowUpdateRPCTimeoutOrCancelledError,
)
from temporalio.common import WorkflowIDConflictPolicy
from temporalio.exceptions import ApplicationError
from temporalio.service import RPCError

from classifier.context import tenant_of
from classifier.errors import ConfigurationError
from workflows.agent_messages import (
    AGENT,
    APPROVE,
    BUSY,
    DENY,
    SEND,
    STATE,
    STOP,
    TRANSCRIPT,
    Approval,
    Send,
    Stop,
    ThreadRequest,
    ThreadState,
    Turn,
    thread_workflow_id,
)
from workflows.readers import Readers, Seen

_PAUSE = 0.5


@dataclass
class Thread:
    """A conversation with an agent.

    Attributes:
        client: A client of the namespace.
        task_queue: Where the agent's worker polls.
        agent: Key or id of the agent.
        name: The conversation's own name.
        context: The request context; `tenant_id` says whose it is.
        resource: The person or thing it is about.
        readers: Follows events; shared where many threads are read.
    """

    client: Client
    task_queue: str
    agent: str
    name: str
    context: Mapping[str, Any] = field(default_factory=dict[str, Any])
    resource: str | None = None
    readers: Readers | None = None

    @property
    def workflow_id(self) -> str:
        """The thread's workflow."""
        return thread_workflow_id(tenant_of(self.context), self.name)

    @property
    def handle(self) -> WorkflowHandle[Any, Any]:
        """Its handle."""
        return self.client.get_workflow_handle(self.workflow_id)

    async def open(self) -> None:
        """Makes the thread where there is none yet, so that it can be read before the first message."""
        await self.client.start_workflow(
            AGENT,
            self._request(),
            id=self.workflow_id,
            task_queue=self.task_queue,
            id_conflict_policy=WorkflowIDConflictPolicy.USE_EXISTING,
        )

    async def send(
        self,
        text: str,
        *,
        message: str | None = None,
        on_disconnect: Literal["continue", "stop"] = "continue",
    ) -> Turn:
        """A message in, the finished turn out; the thread is made where there is none.

        Args:
            text: What is said.
            message: The caller's id of the message; with the same one it is answered once.
            on_disconnect: What becomes of the reply when the one who waits for it is cancelled.

        Raises:
            ConfigurationError: The message cannot be answered.
        """
        given = Send(message or str(uuid.uuid4()), text)
        try:
            return await self._sent_when_free(given)
        except asyncio.CancelledError:
            if on_disconnect == "stop":
                await self.handle.signal(STOP, Stop(given.id))
            raise

    async def _sent_when_free(self, given: Send) -> Turn:
        while True:
            try:
                return await self._sent(given)
            except WorkflowUpdateFailedError as error:
                cause = error.cause
                if not isinstance(cause, ApplicationError) or cause.type != BUSY:
                    said = cause.message if isinstance(cause, ApplicationError) else str(error)
                    raise ConfigurationError(said) from error
            except WorkflowUpdateRPCTimeoutOrCancelledError as error:
                if isinstance(error.__cause__, asyncio.CancelledError):
                    raise asyncio.CancelledError from error
            await asyncio.sleep(_PAUSE)

    async def stop(self, *, by: str | None = None, reason: str | None = None) -> Turn | None:
        """Ends the reply that is being written, and gives back its turn."""
        turn: Turn | None = await self._updated(STOP, Stop(None, by, reason), Turn)
        return turn

    async def approve(self, call: str, *, by: str, reason: str | None = None) -> None:
        """Lets a tool call run."""
        await self._updated(APPROVE, Approval(call, by, reason), None)

    async def deny(self, call: str, *, by: str, reason: str | None = None) -> None:
        """Keeps a tool call from running."""
        await self._updated(DENY, Approval(call, by, reason), None)

    async def transcript(self) -> list[Turn]:
        """Every turn that is over."""
        turns: list[Turn] = await self.handle.query(TRANSCRIPT, result_type=list[Turn])
        return turns

    async def state(self) -> ThreadState:
        """What the thread is doing."""
        state: ThreadState = await self.handle.query(STATE, result_type=ThreadState)
        return state

    def events(self, *, after: int = 0) -> AsyncGenerator[Seen]:
        """Its events from an offset on; see `Readers.events`."""
        if self.readers is None:
            self.readers = Readers(self.client)
        return self.readers.events(self.workflow_id, after=after)

    async def _sent(self, given: Send) -> Turn:
        operation: WithStartWorkflowOperation[Any, Any] = WithStartWorkflowOperation(
            AGENT,
            self._request(),
            id=self.workflow_id,
            task_queue=self.task_queue,
            id_conflict_policy=WorkflowIDConflictPolicy.USE_EXISTING,
        )
        try:
            turn: Turn = await self.client.execute_update_with_start_workflow(  # pyright: ignore[reportUnknownMemberType] - an overload of the SDK is untyped
                SEND, given, start_workflow_operation=operation, id=given.id, result_type=Turn
            )
        except (RPCError, WorkflowUpdateRPCTimeoutOrCancelledError):
            # The operation holds the same error, and asyncio logs one that nobody looks at.
            await asyncio.gather(operation.workflow_handle(), return_exceptions=True)
            raise
        return turn

    async def _updated(self, name: str, given: Any, result: type[Any] | None) -> Any:
        return await self.handle.execute_update(name, given, result_type=result)  # pyright: ignore[reportUnknownMemberType] - an overload of the SDK is untyped

    def _request(self) -> ThreadRequest:
        return ThreadRequest(self.agent, dict(self.context), self.name, self.resource)
