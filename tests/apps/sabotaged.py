"""A worker that is broken on purpose: `python -m tests.apps.sabotaged SWITCH`.

It is the ordinary worker but for one thing, which a check of what it leaves behind has to find.
"""

from __future__ import annotations

import asyncio
import os
import sys
import uuid
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Literal, TypeAlias, cast

import httpx
from temporalio import activity
from temporalio.client import Client, Interceptor
from temporalio.worker import ActivityInboundInterceptor, ExecuteActivityInput
from temporalio.worker import Interceptor as WorkerInterceptor

from activities.messages import DELIVER, Delivered, Delivery
from classifier.audit.records import HistoryEvent
from classifier.audit.store import AuditStore
from classifier.decision import Decision
from tests.apps.through import Through
from tests.apps.under_fire import SHELVES, app
from worker import Settings, opened, working

Switch: TypeAlias = Literal[
    "forgets a decision",
    "records under random ids",
    "forgets a delivery",
    "logs text",
    "delivers without a key",
    "delivers nothing",
    "delivers elsewhere",
]


class BrokenStore(Through):
    """The store of the worker, broken in one way."""

    def __init__(self, store: AuditStore, switch: Switch) -> None:
        super().__init__(store)
        self._switch: Switch = switch

    async def record(self, decisions: Sequence[Decision]) -> Sequence[Decision]:
        if self._switch == "forgets a decision":
            return decisions
        if self._switch == "records under random ids":
            copies = [replace(decision, decision_id=uuid.uuid4()) for decision in decisions]
            await self._store.record(copies)
        return await self._store.record(decisions)

    async def record_events(self, events: Sequence[HistoryEvent]) -> None:
        if self._switch != "forgets a delivery":
            await self._store.record_events(events)


class BrokenDelivery(Interceptor, WorkerInterceptor):
    """Around the delivery, broken in one way."""

    def __init__(self, switch: Switch) -> None:
        self._switch: Switch = switch

    def intercept_activity(self, next: ActivityInboundInterceptor) -> ActivityInboundInterceptor:  # noqa: A002 - the SDK's name
        return _Around(next, self._switch)


class _Around(ActivityInboundInterceptor):
    def __init__(self, following: ActivityInboundInterceptor, switch: Switch) -> None:
        super().__init__(following)
        self._switch: Switch = switch

    async def execute_activity(self, input: ExecuteActivityInput) -> Any:  # noqa: A002 - the SDK's name
        if activity.info().activity_type != DELIVER:
            return await super().execute_activity(input)
        delivery: Delivery = input.args[0]
        match self._switch:
            case "logs text":
                print(f"delivering {delivery.event}", file=sys.stderr, flush=True)
            case "delivers nothing":
                return Delivered("nowhere", "")
            case "delivers elsewhere":
                other = next(shelf for shelf in SHELVES if shelf != delivery.route)
                input.args = [replace(delivery, route=other)]
            case "delivers without a key":
                await _post_without_key(delivery)
            case _:
                pass
        return await super().execute_activity(input)


async def _post_without_key(delivery: Delivery) -> None:
    body = {"route": delivery.route, "decision_id": delivery.decision_id, "event": delivery.event}
    async with httpx.AsyncClient() as client:
        await client.post(os.environ["CHAOS_HOOK_URL"], json=body)


async def main(switch: Switch) -> None:
    async with opened(Settings.from_environ(os.environ)) as service:
        address = service.client.service_client.config.target_host
        client = await Client.connect(address, interceptors=[BrokenDelivery(switch)])
        broken = replace(service, store=BrokenStore(service.store, switch), temporal=client)
        async with working(broken, app):
            print("worker polls", file=sys.stderr, flush=True)
            await asyncio.get_running_loop().create_future()


if __name__ == "__main__":
    asyncio.run(main(cast("Switch", sys.argv[1])))
