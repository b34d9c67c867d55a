"""A worker that kills itself: `python -m tests.apps.doomed POINT COUNT`.

It is the ordinary worker over the ordinary store. Decisions that come to POINT wait there until COUNT of them
have come, all in flight at the same time; then the process gets SIGKILL from itself.
"""

from __future__ import annotations

import asyncio
import os
import sys
from dataclasses import replace
from typing import cast

from temporalio.client import Client

from tests.apps import remote
from tests.apps.cliff import Cliff, CliffInterceptor, CliffStore, Point
from worker import Settings, opened, working


async def main(point: Point, count: int) -> None:
    cliff = Cliff(point, count)
    async with opened(Settings.from_environ(os.environ)) as service:
        client = await Client.connect(
            service.client.service_client.config.target_host, interceptors=[CliffInterceptor(cliff)]
        )
        doomed = replace(service, store=CliffStore(service.store, cliff), temporal=client)
        async with working(doomed, remote.app):
            print("doomed", file=sys.stderr, flush=True)
            await asyncio.get_running_loop().create_future()


if __name__ == "__main__":
    asyncio.run(main(cast("Point", sys.argv[1]), int(sys.argv[2])))
