"""Processors while the store is away: no outcome changes, nothing is lost, nothing is there twice."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncGenerator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import product
from typing import Any

import pytest
from temporalio.client import Client, WorkflowFailureError, WorkflowHandle

from classifier.answers import BooleanAnswer, ChoiceAnswer
from classifier.app import App
from classifier.audit.history import History
from classifier.audit.memory import MemoryStore
from classifier.audit.postgres import PostgresStore
from classifier.audit.query import DecisionQuery
from classifier.decision import Decision
from classifier.errors import ModelUnavailable
from classifier.models.protocol import DecisionRequest
from classifier.models.scripted import Reply, ScriptedModel
from classifier.temporal.workflow import tripwire_of
from tests.classifier.temporal.chats import both, given, guarded, guarding, processor, scripted, tone
from tests.classifier.temporal.gate import Gate, State
from tests.classifier.temporal.letters import Interrupted, activities, always, app, asked, start, until
from tests.classifier.temporal.project.worker import worker
from tests.classifier.temporal.project.workflows import Decide, GuardMessages, Passed

KEY = b"a key for tests, thirty-two bytes"
TEXTS = {"allowed": "hello", "filtered": "a dull day", "aborted": "bad"}


@dataclass(frozen=True)
class Database:
    """A store behind a gate, and a way around the gate."""

    gate: Gate
    store: PostgresStore
    url: str


@pytest.fixture
async def database(database_url: str) -> AsyncGenerator[Database]:
    async with Gate(database_url) as gate:
        store = PostgresStore(gate.url, hash_key=KEY, timeout=1)
        yield Database(gate, store, database_url)
        await store.aclose()


async def rows(database_url: str) -> Sequence[Decision]:
    async with History(database_url) as history:
        return (await history.page(DecisionQuery(tenant="default"), 500)).decisions


async def recording(handle: WorkflowHandle[Any, Any]) -> bool:
    return "classifier.record" in await activities(handle)


async def moved_on(handle: WorkflowHandle[Any, Any]) -> bool:
    return bool(await handle.query(GuardMessages.moved_on))


async def outcome_of(handle: WorkflowHandle[Any, Any]) -> str:
    try:
        passed: Passed = await handle.result()
    except WorkflowFailureError as error:
        if tripwire_of(error) is None:
            raise
        return "aborted"
    return passed.outcome


@pytest.mark.slow
@pytest.mark.parametrize(
    ("required", "state", "outcome"), list(product([False, True], ["refused", "hanging"], TEXTS))
)
async def test_an_outage_changes_no_outcome_and_its_records_come_in(
    client: Client, database: Database, required: bool, state: State, outcome: str
) -> None:
    """AUD-O07: required moves nothing before the row is durable, deferred does not close before it is."""
    queue = f"{outcome}-{state}-{required}-{database.url}"
    database.gate.become(state)
    async with worker(client, guarded(scripted()), database.store, queue):
        handle = await guarding(client, queue, given(TEXTS[outcome], required=required))
        await until(lambda: recording(handle), 20)
        assert await moved_on(handle) is not required
        assert not await rows(database.url)
        database.gate.become("open")
        assert await outcome_of(handle) == outcome
    (row,) = await rows(database.url)
    assert (row.outcome, row.processor_id, row.failure) == (outcome, "letters", None)


@pytest.mark.slow
@pytest.mark.parametrize("local", [False, True])
async def test_a_backlog_of_many_runs_drains(
    client: Client, queue: str, database: Database, local: bool
) -> None:
    database.gate.become("refused")
    async with worker(client, both(scripted()), database.store, queue):
        wanted = given("hello", "bye", processors=("letters", "tone"), local=local)
        handles = [await guarding(client, queue, wanted) for _ in range(10)]
        for handle in handles:
            await until(lambda handle=handle: recording(handle), 20)  # type: ignore[misc]
        database.gate.become("open")
        passed = await asyncio.gather(*(handle.result() for handle in handles))
    kept = {str(each.decision_id) for each in await rows(database.url)}
    assert kept == {each for one in passed for each in one.decision_ids}
    assert len(kept) == 40


class Deaf(Interrupted):
    """A store whose look-ups and writes are cut off on their own.

    Attributes:
        forgetful: Whether it cannot be asked what it holds.
    """

    forgetful = False

    async def find(
        self, tenant: str, decided_at: datetime, decision_ids: Sequence[uuid.UUID]
    ) -> Mapping[uuid.UUID, Decision]:
        if self.forgetful:
            self.away = True  # until the test says otherwise
        return await super().find(tenant, decided_at, decision_ids)


class Changing(ScriptedModel):
    """Judges the same text otherwise when it is asked again; the call after the first answer fails once."""

    def __init__(self, *spam: float) -> None:
        self._spam = iter(spam)
        self._failed = False
        super().__init__(self.answer)

    def answer(self, request: DecisionRequest) -> Reply:
        if "rude" in request.questions:
            if not self._failed:
                self._failed = True
                return ModelUnavailable("down, this once")
            return {"rude": BooleanAnswer(0.95)}
        return {
            "spam": BooleanAnswer(next(self._spam)),
            "kind": ChoiceAnswer("bug", {"bug": 0.9, "praise": 0.1}),
        }


async def unsure(client: Client, queue: str, model: Changing) -> tuple[MemoryStore, str]:
    """The second attempt cannot look up what the first one recorded, and judges otherwise."""
    memory = MemoryStore()
    store = Deaf(memory)
    store.forgetful = True
    project = App(processors=[processor(model), tone(ScriptedModel(model.answer))])
    async with worker(client, project, store, queue):
        handle = await guarding(client, queue, given("hello", processors=("letters", "tone")))
        await until(lambda: recording(handle), 20)
        store.forgetful = store.away = False
        return memory, await outcome_of(handle)


async def test_what_an_attempt_recorded_before_is_acted_on_though_it_could_not_be_looked_up(
    client: Client, queue: str
) -> None:
    """The first attempt allowed, so the next processor has the word, although the second one aborted."""
    memory, outcome = await unsure(client, queue, Changing(0.1, 0.95))
    assert outcome == "aborted"
    assert [(each.processor_id, each.outcome) for each in memory.decisions.values()] == [
        ("letters", "allowed"),
        ("tone", "aborted"),
    ]


async def test_an_abort_that_was_recorded_stays_one_though_it_could_not_be_looked_up(
    client: Client, queue: str
) -> None:
    memory = MemoryStore()
    store = Deaf(memory)
    model = ScriptedModel(
        [
            {"spam": BooleanAnswer(p), "kind": ChoiceAnswer("bug", {"bug": 0.9, "praise": 0.1})}
            for p in (0.95, 0.1)
        ]
    )
    told, over = asyncio.Event(), asyncio.Event()

    async def stuck(decision: Decision) -> None:
        if not told.is_set():
            told.set()
            store.forgetful = True
            await over.wait()

    async with worker(client, guarded(model, on_decision=stuck), store, queue):
        handle = await guarding(client, queue, given("hello", attempt_seconds=1))
        await until(lambda: recording(handle), 20)
        store.forgetful = store.away = False
        assert await outcome_of(handle) == "aborted"
        over.set()
    assert [each.outcome for each in memory.decisions.values()] == ["aborted"]


async def test_two_megabytes_of_texts_go_through_an_outage_in_one_go(client: Client, queue: str) -> None:
    """1.8 MB of states: what the workflow holds already does not travel again."""
    memory = MemoryStore()
    store = Interrupted(memory)
    store.away = True
    texts = [f"{number:04d}".ljust(9000, ".") for number in range(200)]
    async with worker(client, app(always()), store, queue):
        handle = await start(client, queue, Decide.run, asked(*texts))
        await until(lambda: recording(handle), 40)
        store.away = False
        result = await handle.result()
    assert len(memory.decisions) == len({each.decision_id for each in result.decisions}) == 200
    assert [each.state for each in sorted(memory.decisions.values(), key=lambda each: each.ordinal)] == texts


async def test_two_megabytes_of_messages_go_through_an_outage_in_one_go(client: Client, queue: str) -> None:
    memory = MemoryStore()
    store = Interrupted(memory)
    store.away = True
    texts = [f"{number:04d}".ljust(8000, ".") for number in range(200)]
    async with worker(client, guarded(scripted()), store, queue):
        handle = await guarding(client, queue, given(*texts))
        await until(lambda: recording(handle), 40)
        store.away = False
        assert (await handle.result()).texts == texts
    kept = sorted(memory.decisions.values(), key=lambda each: each.ordinal)
    assert [each.state for each in kept] == texts
