"""A foreign project's worker that may kill itself: `python -m tests.apps.guarded QUEUE [POINT COUNT]`.

It guards messages by asking the server at COUNTED_MODEL_URL. Without a point it is an ordinary worker. With
one, decisions that come to it wait there until COUNT different ones have come, all in flight at the same
time; then the process gets SIGKILL from itself.
"""

from __future__ import annotations

import asyncio
import os
import sys
from typing import cast

from temporalio.client import Client

from classifier.app import App
from classifier.audit.postgres import PostgresStore
from classifier.models.systemone import SystemOne
from tests.apps.cliff import Cliff, CliffInterceptor, CliffStore, Point
from tests.classifier.temporal.chats import processor
from tests.classifier.temporal.project.worker import worker


async def main(queue: str, point: Point | None = None, count: int = 0) -> None:
    store = PostgresStore(
        os.environ["DATABASE_URL"], hash_key=os.environ["CLASSIFIER_HASH_KEY"].encode(), pool_size=10
    )
    client = await Client.connect(os.environ["TEMPORAL_ADDRESS"])
    cliff = Cliff(point, count)
    app = App(processors=[processor(SystemOne("m", base_url=os.environ["COUNTED_MODEL_URL"]))])
    async with worker(client, app, CliffStore(store, cliff), queue, interceptors=[CliffInterceptor(cliff)]):
        print("guarding", file=sys.stderr, flush=True)
        await asyncio.get_running_loop().create_future()


if __name__ == "__main__":
    given = sys.argv[1:]
    asyncio.run(main(given[0], cast("Point", given[1]), int(given[2])) if given[1:] else main(given[0]))
