"""PostgreSQL is killed in the middle of 500 decisions: none is lost, none is twice, none becomes another.

The embedded stack's own database, killed with all its processes and started again over the same files, under
a worker that goes on. The model never gives the same text the same answer twice, so a decision that is made
anew after it was recorded would show.
"""

from __future__ import annotations

import asyncio
import contextlib
import uuid
from collections import Counter
from collections.abc import AsyncGenerator, Mapping
from functools import partial
from pathlib import Path
from typing import Any, Literal

import psutil
import pytest
import sqlalchemy as sa
from temporalio.client import Client, WorkflowHandle

from classifier.answers import Answer, BooleanAnswer, ChoiceAnswer, answers_to_json
from classifier.audit.history import History
from classifier.audit.postgres import PostgresStore
from classifier.audit.query import DecisionQuery
from classifier.audit.schema import upgrade
from classifier.decision import Decision
from classifier.models.protocol import DecisionRequest
from classifier.models.scripted import ScriptedModel
from classifier.temporal.messages import DecideResult
from embedded.stack import Stack
from tests.classifier.audit.examples import KEY
from tests.classifier.temporal.letters import app, asked
from tests.classifier.temporal.project.worker import worker
from tests.classifier.temporal.project.workflows import Decide
from tests.processes import state_folder, until

RUNS, EACH = 50, 10
KILL_AT = (100, 300)
"""After how many questions the database is killed."""

pytestmark = pytest.mark.slow


class Fickle(ScriptedModel):
    """Answers each text with the other kind each time; says how much it was asked."""

    def __init__(self) -> None:
        super().__init__(self._answer, latency=0.05)
        self.asked = Counter[str]()

    def has_been_asked(self, count: int) -> bool:
        """Whether it was asked so often."""
        return self.asked.total() >= count

    def _answer(self, request: DecisionRequest) -> Mapping[str, Answer]:
        text = str(request.state)
        self.asked[text] += 1
        odd = (self.asked[text] + len(text)) % 2
        kind = "bug" if odd else "praise"
        shares = {"bug": 0.9 if odd else 0.1, "praise": 0.1 if odd else 0.9}
        return {"spam": BooleanAnswer(0.1), "kind": ChoiceAnswer(kind, shares)}


class Database:
    """The database of a state folder, which can be killed and started again."""

    def __init__(self, home: Path) -> None:
        self._home = home
        self._stack = Stack(home, temporal=False)

    @property
    def url(self) -> str:
        assert self._stack.addresses.database_url
        return self._stack.addresses.database_url

    async def start(self) -> None:
        await self._stack.__aenter__()

    async def stop(self) -> None:
        await self._stack.__aexit__(None, None, None)

    async def kill(self) -> None:
        """SIGKILL for every process of the server, as when the power goes."""
        port = str(sa.make_url(self.url).port)
        children = (
            psutil.Process().children()
        )  # a backend that was just forked has its postmaster's command line
        [postmaster] = [each for each in children if each.name() == "postgres" and port in each.cmdline()]
        servers = [postmaster, *postmaster.children(recursive=True)]
        for server in servers:
            with contextlib.suppress(psutil.NoSuchProcess):
                server.kill()
        with contextlib.suppress(Exception):
            await self._stack.watch()
        url = self.url
        await self.stop()
        self._stack = Stack(self._home, temporal=False)
        await self.start()
        assert self.url == url


@pytest.fixture
async def database() -> AsyncGenerator[Database]:
    with state_folder() as home:
        database = Database(home)
        await database.start()
        try:
            await upgrade(database.url)
            yield database
        finally:
            await database.stop()


@pytest.mark.parametrize("mode", ["required", "deferred"])
async def test_a_killed_database_loses_doubles_and_changes_no_decision(
    temporal_address: str, database: Database, mode: Literal["required", "deferred"]
) -> None:
    client, queue = await Client.connect(temporal_address), f"queue-{uuid.uuid4()}"
    model = Fickle()
    store = PostgresStore(database.url, hash_key=KEY, timeout=2)
    async with worker(client, app(model), store, queue, max_concurrent_activities=10):
        handles = await asyncio.gather(*(begin(client, queue, number, mode) for number in range(RUNS)))
        for count in KILL_AT:
            await until(partial(model.has_been_asked, count))
            await database.kill()
        results = await asyncio.gather(*(handle.result() for handle in handles))
    await store.aclose()
    rows = await every_row(database.url)
    assert len(rows) == RUNS * EACH
    assert Counter(row.coordinates.workflow_id for row in rows) == {handle.id: EACH for handle in handles}
    by_id = {str(row.decision_id): row for row in rows}
    acted_on = [decided for result in results for decided in result.decisions]
    assert {decided.decision_id for decided in acted_on} == set(by_id)
    for decided in acted_on:
        row = by_id[decided.decision_id]
        assert decided.answers == answers_to_json(row.answers or {})
        assert row.branch
        assert decided.branch == {"action": "route", "route": row.branch.route, "reasons": []}
    travelled = [decided for decided in acted_on if not decided.recorded]
    assert bool(travelled) == (mode == "deferred")


async def begin(
    client: Client, queue: str, number: int, mode: Literal["required", "deferred"]
) -> WorkflowHandle[Any, DecideResult]:
    texts = [f"letter {number} {each}" for each in range(EACH)]
    return await client.start_workflow(
        Decide.run,
        asked(*texts, playbook=True, required=mode == "required"),
        id=f"crash-{uuid.uuid4()}",
        task_queue=queue,
    )


async def every_row(url: str) -> list[Decision]:
    async with History(url) as history:
        return list((await history.page(DecisionQuery(tenant="default"), 1000)).decisions)
