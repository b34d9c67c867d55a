# mypy: ignore-errors
# pyright: basic, reportMissingImports=false, reportAttributeAccessIssue=false
"""The peer's worker, in an environment of its own: `python _peer.py ADDRESS MODEL_URL DATABASE_URL`.

The public plugin `temporalio-typesafe` as its README shows it, and an insert activity as people write one.
"""

from __future__ import annotations

import asyncio
import json
import sys

import asyncpg
from _peer_workflows import Peer, PeerMany, PeerRecorded
from temporalio import activity
from temporalio.client import Client
from temporalio.typesafe import TypeSafePlugin
from temporalio.worker import Worker
from typesafe_sdk import AsyncTypeSafeClient, RetryPolicy

TABLE = """
create table if not exists peer_decisions (
  id text primary key, workflow_id text, at timestamptz default now(), state text, answers jsonb, model text
)"""
INSERT = """
insert into peer_decisions (id, workflow_id, state, answers, model) values ($1, $2, $3, $4, $5)
on conflict do nothing"""


async def main(address: str, model_url: str, database_url: str) -> None:
    """Polls until it is killed."""
    typesafe = AsyncTypeSafeClient(
        api_key="none", base_url=model_url, model="jev-1.13.0", retry=RetryPolicy(max_retries=0)
    )
    dsn = database_url.replace("+asyncpg", "")
    pool = await asyncpg.create_pool(dsn, min_size=1, max_size=5)
    await pool.execute(TABLE)

    @activity.defn(name="peer.insert")
    async def insert(state: str, answers: dict, model: str) -> None:
        info = activity.info()
        key = f"{info.workflow_id}/{info.workflow_run_id}"
        await pool.execute(INSERT, key, info.workflow_id, state, json.dumps(answers), model)

    client = await Client.connect(address, plugins=[TypeSafePlugin(typesafe)])
    async with Worker(
        client, task_queue="peer", workflows=[Peer, PeerMany, PeerRecorded], activities=[insert]
    ):
        print("polls", flush=True)
        await asyncio.get_running_loop().create_future()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
