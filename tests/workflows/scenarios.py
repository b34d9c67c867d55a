"""Runs worth keeping: what every later version has to be able to go on with."""

from __future__ import annotations

import asyncio
import contextlib
import uuid
from collections.abc import AsyncGenerator
from pathlib import Path

from temporalio.client import Client, WorkflowFailureError

from classifier.app import App
from classifier.audit.memory import MemoryStore
from classifier.audit.store import DecisionStore
from classifier.errors import ModelUnavailable
from tests.classifier.temporal.letters import Interrupted, activities, until
from tests.servers import Answer, Server
from tests.workflows.tickets import REFUSED, Handle, always, app, event, review, says, start, triaging
from workflows.triage import TriageWorkflow


class Runs:
    """Each method is a run of its own, on a worker of its own."""

    def __init__(self, client: Client, home: Path) -> None:
        self._client = client
        self._home = home

    async def routed(self) -> Handle:
        """Delivered without anybody's help."""
        async with self._run(app(always(says("billing")))) as handle:
            await handle.result()
        return handle

    async def reviewed(self) -> Handle:
        """Not sure enough; a person chose."""
        async with self._run(app(always(says("technical", 0.6)))) as handle:
            await _choose(handle)
        return handle

    async def waiting(self) -> Handle:
        """Still waits for a person."""
        async with self._run(app(always(says("technical", 0.6)))) as handle:
            await _waits(handle)
        return handle

    async def refused(self) -> Handle:
        """The model refused to answer; a person chose."""
        async with self._run(app(always(REFUSED))) as handle:
            await _choose(handle)
        return handle

    async def failed_model(self) -> Handle:
        """The model stayed down; a person chose."""
        async with self._run(app(always(ModelUnavailable("down")))) as handle:
            await _choose(handle)
        return handle

    async def cancelled(self) -> Handle:
        """Stopped while it waited for a person."""
        async with self._run(app(always(REFUSED))) as handle:
            await _waits(handle)
            await handle.cancel()
            with contextlib.suppress(WorkflowFailureError):
                await handle.result()
        return handle

    async def cancelled_while_deciding(self) -> Handle:
        """Stopped while the answer was being written."""
        store = Interrupted(MemoryStore())
        store.open.clear()
        async with self._run(app(always(says("billing"))), store) as handle:
            await store.tried.wait()
            await handle.cancel()
            await asyncio.sleep(1)  # until a heartbeat told the activity
            store.open.set()
            with contextlib.suppress(WorkflowFailureError):
                await handle.result()
        return handle

    async def store_outage(self) -> Handle:
        """Delivered while the decision could not be stored yet."""
        store = Interrupted(MemoryStore())
        store.away = True
        async with self._run(app(always(says("billing"))), store) as handle:

            async def delivered() -> bool:
                return {"classifier.record", "triage.deliver"} <= set(await activities(handle))

            await until(delivered)
            store.away = False
            await handle.result()
        return handle

    async def policy_error(self) -> Handle:
        """The route function raised; a person chose."""

        def raising(answers: object) -> str:
            raise ValueError("not thought of")

        async with self._run(app(always(says("billing")), route=raising)) as handle:
            await _choose(handle)
        return handle

    async def refused_delivery(self) -> Handle:
        """The receiver refused for good, and again after a person chose it; the next choice was taken."""
        async with self._refusing(404, 410) as handle:
            await _waits(handle)
            await review(handle, "technical")
            await _choose(handle)
        return handle

    async def waiting_for_a_delivery(self) -> Handle:
        """The receiver refused for good; still waits for a person."""
        async with self._refusing(404) as handle:
            await _waits(handle)
        return handle

    @contextlib.asynccontextmanager
    async def _refusing(self, *statuses: int) -> AsyncGenerator[Handle]:
        async with Server([Answer(status=status) for status in statuses]) as hook:
            declared = app(always(says("technical")), hook=hook.url)
            async with self._run(declared) as handle:
                yield handle

    @contextlib.asynccontextmanager
    async def _run(self, declared: App, decisions: DecisionStore | None = None) -> AsyncGenerator[Handle]:
        queue = f"queue-{uuid.uuid4()}"
        store = MemoryStore()
        async with triaging(
            self._client, declared, store, queue, self._home, decisions=decisions, identity="saved"
        ):
            yield await start(self._client, queue, event("1"))


SCENARIOS = (
    Runs.routed,
    Runs.reviewed,
    Runs.waiting,
    Runs.refused,
    Runs.failed_model,
    Runs.cancelled,
    Runs.cancelled_while_deciding,
    Runs.store_outage,
    Runs.policy_error,
    Runs.refused_delivery,
    Runs.waiting_for_a_delivery,
)


async def _waits(handle: Handle) -> None:
    async def in_review() -> bool:
        return (await handle.query(TriageWorkflow.status)).state == "review"

    await until(in_review, 20)


async def _choose(handle: Handle) -> None:
    await _waits(handle)
    await review(handle, "billing", reason="seen it")
    await handle.result()
