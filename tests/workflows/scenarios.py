"""Runs worth keeping: what every later version has to be able to go on with."""

from __future__ import annotations

import asyncio
import contextlib
import uuid
from collections.abc import AsyncGenerator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

from temporalio.client import Client, WorkflowFailureError

from classifier.app import App
from classifier.audit.memory import MemoryStore
from classifier.audit.store import DecisionStore
from classifier.classifier import Classifier
from classifier.errors import ModelUnavailable
from classifier.playbook import Review
from classifier.review_rules import Escalate, ReviewRules, TakeRoute
from classifier.shadow import Shadow
from tests.classifier.temporal.letters import Interrupted, activities, until
from tests.servers import Answer, Server
from tests.workflows.tickets import (
    REFUSED,
    Handle,
    Ticket,
    always,
    answer,
    app,
    by_department,
    claim,
    dead,
    event,
    release,
    review,
    says,
    start,
    triaging,
)
from workflows.dead_letters import DROP, REPLAY
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

    async def shadowed(self) -> Handle:
        """Delivered, with another model and policy beside it that would not have been sure enough."""
        ((_, tickets),) = app(always(says("billing"))).playbooks
        beside = Classifier("other", always(says("technical", 0.6)), Ticket)
        shadow = Shadow[Ticket](policy_version="other", classifier=beside)
        async with self._run(App(playbooks=[replace(tickets, shadow=shadow)])) as handle:
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

    async def claimed(self) -> Handle:
        """Somebody claimed it, went on with that, gave it back; somebody else claimed it and chose."""
        async with self._run(app(always(says("technical", 0.6)))) as handle:
            await _waits(handle)
            await claim(handle, "kim")
            await claim(handle, "kim", 1800)
            await release(handle, "kim")
            await claim(handle, "robin")
            await review(handle, "billing", "robin")
            await handle.result()
        return handle

    async def defaulted(self) -> Handle:
        """A deadline waited for somebody who had claimed it, then asked others; the next one took a route."""
        soon = timedelta(seconds=1)
        then = Escalate(queue="leads", deadline=soon, then=TakeRoute("billing"))
        rules = ReviewRules(deadline=soon, then=then)
        async with self._run(app(always(says("technical", 0.6)), rules=rules)) as handle:
            await _waits(handle)
            await claim(handle, "kim", 2)
            await handle.result()
        return handle

    async def escalated(self) -> Handle:
        """A deadline asked others, who chose."""
        rules = ReviewRules(deadline=timedelta(seconds=0.5), then=Escalate(queue="leads"))
        async with self._run(app(always(says("technical", 0.6)), rules=rules)) as handle:

            async def asked() -> bool:
                return (await handle.query(TriageWorkflow.status)).queue == "leads"

            await until(asked)
            await _choose(handle)
        return handle

    async def stopped(self) -> Handle:
        """Cancelled while somebody had claimed it, with that on record before the run closed."""
        async with self._run(app(always(REFUSED))) as handle:
            await _waits(handle)
            await claim(handle, "kim")
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

    async def replayed_decision(self) -> Handle:
        """The route function raised, and again when somebody replayed it; the next replay was delivered."""
        left = [ValueError("not thought of"), ValueError("nor mended")]

        def raising(answers: Ticket) -> str | Review:
            if left:
                raise left.pop()
            return by_department(answers)

        async with self._run(app(always(says("billing")), route=raising)) as handle:
            await dead(handle)
            await answer(handle, REPLAY)
            await answer(handle, REPLAY, reason="mended")
            await handle.result()
        return handle

    async def replayed_delivery(self) -> Handle:
        """The receiver refused for good, and again when somebody replayed it; the next replay was taken."""
        async with self._refusing(404, 410, 200) as handle:
            await dead(handle)
            await answer(handle, REPLAY)
            await answer(handle, REPLAY, reason="mended")
            await handle.result()
        return handle

    async def dropped_delivery(self) -> Handle:
        """The receiver refused for good what a person had chosen; somebody gave it up."""
        async with self._refusing(404, probability=0.6) as handle:
            await _waits(handle)
            await review(handle, "technical")
            await answer(handle, DROP, reason="seen it")
            await handle.result()
        return handle

    async def dead_letter(self) -> Handle:
        """The receiver refused for good; still waits for somebody to replay or drop it."""
        async with self._refusing(404) as handle:
            await dead(handle)
        return handle

    @contextlib.asynccontextmanager
    async def _refusing(self, *statuses: int, probability: float = 0.9) -> AsyncGenerator[Handle]:
        async with Server([Answer(status=status) for status in statuses]) as hook:
            declared = app(always(says("technical", probability)), hook=hook.url)
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
    Runs.shadowed,
    Runs.reviewed,
    Runs.waiting,
    Runs.refused,
    Runs.failed_model,
    Runs.cancelled,
    Runs.cancelled_while_deciding,
    Runs.claimed,
    Runs.defaulted,
    Runs.escalated,
    Runs.stopped,
    Runs.store_outage,
    Runs.replayed_decision,
    Runs.replayed_delivery,
    Runs.dropped_delivery,
    Runs.dead_letter,
)


async def _waits(handle: Handle) -> None:
    async def in_review() -> bool:
        return (await handle.query(TriageWorkflow.status)).state == "review"

    await until(in_review, 20)


async def _choose(handle: Handle) -> None:
    await _waits(handle)
    await review(handle, "billing", reason="seen it")
    await handle.result()
