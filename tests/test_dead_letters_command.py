"""`classifier deadletters` over many at once, and over runs that are no more."""

from __future__ import annotations

import asyncio
import contextlib
import io
import json
from collections.abc import AsyncGenerator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console
from temporalio.client import Client
from temporalio.envconfig import ClientConnectConfig

from activities.dead_letter_messages import Answer
from classifier.audit.dead_letters import DeadLetter, DeadLetterQuery, DeadLetters
from classifier.audit.postgres import PostgresStore
from commands import dead_letters
from tests.workflows.tickets import (
    Ticket,
    always,
    app,
    by_department,
    dead,
    event,
    outbox,
    says,
    start,
    triaging,
)
from worker import Settings
from workflows.dead_letters import DeadLetterOrder

KEY = b"a key for tests, thirty-two bytes"
EVERYTHING = DeadLetterQuery(tenant="acme")
ADA = DeadLetterOrder("Ada", "mended")
MANY = 12


@dataclass
class Desk:
    """A worker whose policy can be broken and mended, and the settings that lead to its servers."""

    settings: Settings
    client: Client
    queue: str
    home: Path
    letters: DeadLetters
    broken: bool = True

    def route(self, answers: Ticket) -> Any:
        if self.broken:
            raise ValueError("not mended yet")
        return by_department(answers)

    async def lying(self) -> list[DeadLetter]:
        return list(await self.letters.page(EVERYTHING, 1000))

    async def answer(self, answer: Answer, wanted: dead_letters.Wanted) -> tuple[bool, str]:
        """Whether all is well, and what was said on the way."""
        said = io.StringIO()
        well = await dead_letters.answer_letters(
            self.settings, answer, wanted, ADA, dry_run=False, as_json=True, console=Console(file=said)
        )
        return well, said.getvalue()


@pytest.fixture
async def desk(
    client: Client, queue: str, tmp_path: Path, database_url: str, temporal_address: str
) -> AsyncGenerator[Desk]:
    settings = Settings(
        home=tmp_path,
        task_queue=queue,
        temporal=ClientConnectConfig(target_host=temporal_address),
        database_url=database_url,
        hash_key=KEY,
    )
    store = PostgresStore(database_url, hash_key=KEY)
    async with contextlib.AsyncExitStack() as exits:
        exits.push_async_callback(store.aclose)
        letters = await exits.enter_async_context(DeadLetters(database_url))
        desk = Desk(settings, client, queue, tmp_path, letters)
        declared = app(always(says("billing")), route=desk.route)
        await exits.enter_async_context(triaging(client, declared, store, queue, tmp_path))
        yield desk


@pytest.mark.slow
async def test_many_are_replayed_at_once_each_is_delivered_once_and_the_progress_is_shown(
    desk: Desk, capsys: pytest.CaptureFixture[str]
) -> None:
    handles = [await start(desk.client, desk.queue, event(f"e{n}")) for n in range(MANY)]
    await asyncio.gather(*map(dead, handles))
    well, _ = await desk.answer("replay", dead_letters.Wanted(EVERYTHING))
    still = json.loads(capsys.readouterr().out)["outcomes"]
    assert (well, {one["state"] for one in still}) == (False, {"dead_letter"})
    assert len(await desk.lying()) == MANY
    desk.broken = False
    well, said = await desk.answer("replay", dead_letters.Wanted(EVERYTHING))
    done = json.loads(capsys.readouterr().out)["outcomes"]
    assert (well, {one["state"] for one in done}) == (True, {"delivered"})
    assert {one["run"] for one in done} == {handle.id for handle in handles}
    assert f"{MANY} of {MANY} dead letters done" in said
    assert sorted(line["event"]["id"] for line in outbox(desk.home)) == sorted(f"e{n}" for n in range(MANY))
    assert await desk.lying() == []


async def test_what_is_named_is_dropped_and_what_is_not_lies_on(
    desk: Desk, capsys: pytest.CaptureFixture[str]
) -> None:
    handles = [await start(desk.client, desk.queue, event(f"e{n}")) for n in range(2)]
    await asyncio.gather(*map(dead, handles))
    well, _ = await desk.answer("drop", dead_letters.Wanted(EVERYTHING, [handles[0].id]))
    assert (well, json.loads(capsys.readouterr().out)["outcomes"][0]["state"]) == (True, "dropped")
    assert [one.workflow_id for one in await desk.lying()] == [handles[1].id]
    await handles[1].terminate()


async def test_a_run_that_was_terminated_cannot_be_replayed_and_is_off_the_list_once_dropped(
    desk: Desk, capsys: pytest.CaptureFixture[str]
) -> None:
    handle = await start(desk.client, desk.queue, event("e1"))
    await dead(handle)
    await handle.terminate()
    well, _ = await desk.answer("replay", dead_letters.Wanted(EVERYTHING))
    (outcome,) = json.loads(capsys.readouterr().out)["outcomes"]
    assert (well, outcome["state"]) == (False, "failed")
    assert "its run has ended" in outcome["detail"]
    assert len(await desk.lying()) == 1
    for _ in range(2):
        well, _ = await desk.answer("drop", dead_letters.Wanted(EVERYTHING))
        assert well
    assert await desk.lying() == []
