"""AUD-O07: whatever is wrong with PostgreSQL, the audit mode says who waits, and no outcome is another.

The real store behind a gate that a test can close, and a server that says its disk is full.
"""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import AsyncGenerator
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, TypeAlias

import pytest
import sqlalchemy as sa
from temporalio.client import Client, WorkflowExecutionStatus, WorkflowHandle

from classifier.audit.engine import create_engine
from classifier.audit.history import History
from classifier.audit.postgres import PostgresStore
from classifier.audit.query import DecisionQuery
from classifier.playbook import Review
from classifier.temporal.messages import DecideResult
from tests.classifier.audit.examples import KEY, NOW
from tests.classifier.temporal.gate import Gate
from tests.classifier.temporal.letters import activities, always, app, asked, start, until
from tests.classifier.temporal.project.worker import worker
from tests.classifier.temporal.project.workflows import Decide, Letter

Fault: TypeAlias = Literal["refused", "hanging", "disk full"]
Audit: TypeAlias = Literal["required", "deferred"]
pytestmark = pytest.mark.slow


@dataclass
class Database:
    """A database behind a gate."""

    url: str
    gate: Gate

    async def fail(self, fault: Fault) -> None:
        """From now on."""
        if fault != "disk full":
            self.gate.become(fault)
            return
        await self._as_owner(
            "CREATE FUNCTION classifier.full() RETURNS trigger LANGUAGE plpgsql AS "
            "$$ BEGIN RAISE EXCEPTION USING ERRCODE = 'disk_full'; END $$",
            "CREATE TRIGGER full_disk BEFORE INSERT ON classifier.decisions "
            "FOR EACH ROW EXECUTE FUNCTION classifier.full()",
            "GRANT EXECUTE ON FUNCTION classifier.full() TO classifier_writer",
        )

    async def recover(self, fault: Fault) -> None:
        """All is well again."""
        if fault == "disk full":
            await self._as_owner("DROP FUNCTION classifier.full() CASCADE")
        else:
            self.gate.become("open")

    async def _as_owner(self, *statements: str) -> None:
        engine = create_engine(self.url, role="classifier_owner", timeout=30)
        async with engine.begin() as connection:
            for statement in statements:
                await connection.execute(sa.text(statement))
        await engine.dispose()


@pytest.fixture
async def database(database_url: str) -> AsyncGenerator[Database]:
    async with Gate(database_url) as gate:
        yield Database(database_url, gate)


@contextlib.asynccontextmanager
async def stored(database: Database) -> AsyncGenerator[PostgresStore]:
    store = PostgresStore(database.gate.url, hash_key=KEY, timeout=1)
    yield store
    await store.aclose()


def route(answers: Letter) -> Any:
    return answers.kind.choice_or("refused")


def to_a_person(answers: Letter) -> Any:
    return Review("unsure", "bug")


POLICIES = {"route": route, "review": to_a_person}


@dataclass(frozen=True)
class Seen:
    """What a run did.

    Attributes:
        moved_on: Whether content moved while the database was not there.
        open: Whether the run was still open then.
        action: What became of the letter in the end.
        recorded: What the run knew about its row when it went on.
        rows: How many rows there are in the end, and what they say became of it.
    """

    moved_on: bool
    open: bool
    action: str
    recorded: bool
    rows: tuple[str, ...]


EXPECTED: dict[tuple[Audit, str], Seen] = {
    ("required", "route"): Seen(False, True, "route", True, ("route",)),
    ("required", "review"): Seen(False, True, "review", True, ("review",)),
    ("deferred", "route"): Seen(True, True, "route", False, ("route",)),
    ("deferred", "review"): Seen(True, True, "review", False, ("review",)),
}


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("fault", ["refused", "hanging", "disk full"])
async def test_aud_o07_the_mode_says_who_waits_and_nothing_is_lost_or_changed(
    client: Client, queue: str, database: Database, fault: Fault, policy: str
) -> None:
    handles: dict[Audit, WorkflowHandle[Any, DecideResult]] = {}
    away: dict[Audit, tuple[bool, bool]] = {}
    async with stored(database) as store, worker(client, app(always(), POLICIES[policy]), store, queue):
        await store.find("default", NOW, [uuid.uuid4()])  # so that a connection is open when it fails
        await database.fail(fault)
        for mode in ("required", "deferred"):
            given = asked("it crashes", playbook=True, required=mode == "required")
            handles[mode] = await start(client, queue, Decide.run, given)
        for mode, handle in handles.items():
            await until(partial(is_recording, handle), 20)
            away[mode] = (await handle.query(Decide.moved_on), await is_open(handle))
        await database.recover(fault)
        results = {mode: await handle.result() for mode, handle in handles.items()}
    for mode, handle in handles.items():
        [decided] = results[mode].decisions
        assert decided.branch
        seen = Seen(*away[mode], decided.branch["action"], decided.recorded, await rows(database, handle.id))
        assert seen == EXPECTED[mode, policy]


async def rows(database: Database, workflow_id: str) -> tuple[str, ...]:
    async with History(database.url) as history:
        page = await history.page(DecisionQuery(tenant="default", workflow=workflow_id))
    return tuple(row.branch.action if row.branch else "" for row in page.decisions)


async def is_recording(handle: WorkflowHandle[Any, Any]) -> bool:
    return "classifier.record" in await activities(handle)


async def is_open(handle: WorkflowHandle[Any, Any]) -> bool:
    return (await handle.describe()).status is WorkflowExecutionStatus.RUNNING
