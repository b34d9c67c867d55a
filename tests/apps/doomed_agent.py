"""A worker for agents that kills itself: `python -m tests.apps.doomed_agent QUEUE POINT COUNT`.

The COUNT-th time that a turn comes to POINT, the process gets SIGKILL from itself. A point is an activity
that starts or is about to report ("chat starts", "input ends"), or a write of decisions ("stream insert",
"output commit").
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Sequence
from typing import Any

from temporalio import activity
from temporalio.client import Client
from temporalio.worker import ActivityInboundInterceptor, ExecuteActivityInput, Interceptor

from classifier.audit.postgres import PostgresStore
from classifier.decision import Decision
from tests.agents.charging import charging
from tests.agents.support import worker_of

NAMES = {"agent.chat": "chat", "tool.charge": "tool", "agent.describe": "describe", "agent.note": "note"}


class Cliff:
    """Where the process ends."""

    def __init__(self, point: str, count: int) -> None:
        self._point = point
        self._missing = count

    def reached(self, point: str) -> None:
        if point != self._point:
            return
        self._missing -= 1
        if not self._missing:
            os.kill(os.getpid(), signal.SIGKILL)


class CliffStore(PostgresStore):
    """A cliff before and behind the writes of decisions."""

    cliff: Cliff

    async def record(self, decisions: Sequence[Decision]) -> Sequence[Decision]:
        phase = decisions[0].phase
        self.cliff.reached(f"{phase} insert")
        stored = await super().record(decisions)
        self.cliff.reached(f"{phase} commit")
        return stored


class CliffInterceptor(Interceptor):
    """A cliff around activities."""

    def __init__(self, cliff: Cliff) -> None:
        self._cliff = cliff

    def intercept_activity(self, next: ActivityInboundInterceptor) -> ActivityInboundInterceptor:  # noqa: A002 - the SDK's name
        return _Around(next, self._cliff)


class _Around(ActivityInboundInterceptor):
    def __init__(self, following: ActivityInboundInterceptor, cliff: Cliff) -> None:
        super().__init__(following)
        self._cliff = cliff

    async def execute_activity(self, input: ExecuteActivityInput) -> Any:  # noqa: A002 - the SDK's name
        kind = activity.info().activity_type
        name = NAMES[kind] if kind in NAMES else input.args[0].phase
        self._cliff.reached(f"{name} starts")
        result = await super().execute_activity(input)
        self._cliff.reached(f"{name} ends")
        return result


async def main(queue: str, point: str, count: int) -> None:
    client = await Client.connect(os.environ["TEMPORAL_ADDRESS"])
    cliff = Cliff(point, count)
    store = CliffStore(os.environ["DATABASE_URL"], hash_key=b"only-for-tests")
    store.cliff = cliff
    app = charging(os.environ["LLM_URL"], os.environ["DESK_URL"])
    async with worker_of(client, queue, app, store, interceptors=[CliffInterceptor(cliff)]):
        print("doomed", file=sys.stderr, flush=True)
        await asyncio.get_running_loop().create_future()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2], int(sys.argv[3])))
