"""While the store is away: content moves on or waits, as asked; the outcome is the same; nothing is lost."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence

import pytest
from temporalio.client import Client, WorkflowExecutionStatus, WorkflowFailureError, WorkflowHandle
from temporalio.exceptions import CancelledError

from classifier.answers import answers_to_json
from classifier.audit.history import History
from classifier.audit.memory import MemoryStore
from classifier.audit.postgres import PostgresStore
from classifier.audit.query import DecisionQuery
from classifier.decision import Decision
from classifier.models.protocol import DecisionRequest
from classifier.models.scripted import Script, ScriptedModel
from classifier.result import DecisionResponse
from classifier.temporal.messages import DecideResult
from tests.classifier.temporal.letters import (
    BUG,
    PRAISE,
    Interrupted,
    activities,
    always,
    app,
    asked,
    start,
    until,
)
from tests.classifier.temporal.project.worker import worker
from tests.classifier.temporal.project.workflows import Decide, SortLong

KEY = b"a key for tests, thirty-two bytes"


@pytest.fixture
async def postgres(database_url: str) -> AsyncGenerator[PostgresStore]:
    store = PostgresStore(database_url, hash_key=KEY)
    yield store
    await store.aclose()


@pytest.fixture
def store(postgres: PostgresStore) -> Interrupted:
    return Interrupted(postgres)


class SlowAtFirst(ScriptedModel):
    """Its first answer does not come; says when the asking was given up."""

    def __init__(self, script: Script) -> None:
        super().__init__(script)
        self._first = True
        self.aborted = asyncio.Event()

    async def decide(self, request: DecisionRequest) -> DecisionResponse:
        if not self._first:
            return await super().decide(request)
        self._first = False
        try:
            await asyncio.sleep(60)
        finally:
            self.aborted.set()
        raise AssertionError("nobody waits that long")


async def rows(database_url: str) -> Sequence[Decision]:
    async with History(database_url) as history:
        return (await history.page(DecisionQuery(tenant="default"))).decisions


async def moved_on(handle: WorkflowHandle[Decide, DecideResult]) -> bool:
    return bool(await handle.query(Decide.moved_on))


async def is_recording(handle: WorkflowHandle[Decide, DecideResult]) -> bool:
    return "classifier.record" in await activities(handle)


async def is_open(handle: WorkflowHandle[Decide, DecideResult]) -> bool:
    return (await handle.describe()).status is WorkflowExecutionStatus.RUNNING


async def test_deferred_moves_on_and_does_not_close_before_the_row_is_in(
    client: Client, queue: str, store: Interrupted, database_url: str
) -> None:
    store.away = True
    model = always()
    async with worker(client, app(model), store, queue):
        handle = await start(client, queue, Decide.run, asked("it crashes", playbook=True))
        await until(lambda: moved_on(handle))
        assert await is_open(handle)
        assert not await rows(database_url)
        store.away = False
        result: DecideResult = await handle.result()
    (row,) = await rows(database_url)
    assert (row.outcome, row.state, row.attempts) == ("allowed", "it crashes", 1)
    assert result.decisions[0].decision_id == str(row.decision_id)
    assert result.decisions[0].branch == {"action": "route", "route": "bug", "reasons": []}
    assert result.decisions[0].recorded is False
    assert len(model.requests) == 1


async def test_required_moves_nothing_before_the_row_is_in(
    client: Client, queue: str, store: Interrupted, database_url: str
) -> None:
    store.away = True
    async with worker(client, app(always()), store, queue):
        given = asked("it crashes", playbook=True, required=True)
        handle = await start(client, queue, Decide.run, given)
        await until(lambda: is_recording(handle))
        assert not await moved_on(handle)
        store.away = False
        result: DecideResult = await handle.result()
    assert result.decisions[0].recorded is True
    assert result.decisions[0].branch == {"action": "route", "route": "bug", "reasons": []}
    assert len(await rows(database_url)) == 1


@pytest.mark.parametrize("required", [False, True])
async def test_a_stop_during_the_outage_ends_the_run_cancelled_and_the_row_is_in(
    client: Client, queue: str, store: Interrupted, database_url: str, required: bool
) -> None:
    store.away = True
    async with worker(client, app(always()), store, queue):
        handle = await start(client, queue, Decide.run, asked("it crashes", required=required))
        await until(lambda: is_recording(handle))
        await handle.cancel()
        await handle.query(Decide.moved_on)  # the workflow has seen the stop
        assert await is_open(handle)
        store.away = False
        with pytest.raises(WorkflowFailureError) as ended:
            await handle.result()
    assert isinstance(ended.value.cause, CancelledError)
    assert len(await rows(database_url)) == 1


async def test_a_run_with_open_records_survives_leaving_the_cache(
    client: Client, queue: str, store: Interrupted, database_url: str
) -> None:
    store.away = True
    async with worker(client, app(always()), store, queue, max_cached_workflows=0):
        handle = await start(client, queue, Decide.run, asked("it crashes"))
        await until(lambda: is_recording(handle))
        store.away = False
        await handle.result()
    assert len(await rows(database_url)) == 1


async def test_a_decision_of_an_earlier_attempt_is_the_one_acted_on(client: Client, queue: str) -> None:
    store = MemoryStore()
    model = ScriptedModel([BUG, PRAISE])
    slow = Interrupted(store)
    slow.open.clear()
    given = asked("it crashes", playbook=True, attempt_seconds=1)
    async with worker(client, app(model), slow, queue):
        handle = await start(client, queue, Decide.run, given)
        await slow.tried.wait()
        # Two attempts are writing now, the first of them timed out.
        while len(model.requests) < 2:
            await asyncio.sleep(0.05)
        slow.open.set()
        result: DecideResult = await handle.result()
    (decision,) = store.decisions.values()
    assert result.decisions[0].answers == answers_to_json(decision.answers or {})
    assert decision.branch is not None
    assert result.decisions[0].branch == {"action": "route", "route": decision.branch.route, "reasons": []}


async def test_a_late_answer_does_not_overwrite(client: Client, queue: str) -> None:
    """CAN-O05: the first attempt times out while asking; the second one decides."""
    store = MemoryStore()
    model = SlowAtFirst([PRAISE])
    given = asked("it crashes", playbook=True, attempt_seconds=1)
    async with worker(client, app(model), store, queue):
        result: DecideResult = await (await start(client, queue, Decide.run, given)).result()
        await asyncio.wait_for(model.aborted.wait(), 5)
    (decision,) = store.decisions.values()
    assert decision.branch is not None
    assert decision.branch.route == "praise"
    assert result.decisions[0].branch == {"action": "route", "route": "praise", "reasons": []}


async def test_1_9_mb_goes_through_an_outage(client: Client, queue: str) -> None:
    store = MemoryStore()
    flaky = Interrupted(store)
    flaky.away = True
    async with worker(client, app(always()), flaky, queue):
        handle = await start(client, queue, SortLong.run, 1_900_000)
        await until(lambda: is_recording(handle))
        flaky.away = False
        await handle.result()
    (decision,) = store.decisions.values()
    assert decision.failure is None


async def test_a_failure_after_the_attempts_ran_out_waits_for_the_store(
    client: Client, queue: str, store: Interrupted, database_url: str
) -> None:
    store.away = True
    given = asked("it crashes", playbook=True, attempt_seconds=1, overall_seconds=1)
    async with worker(client, app(always(latency=20)), store, queue):
        handle = await start(client, queue, Decide.run, given)
        await until(lambda: is_recording(handle))
        store.away = False
        result: DecideResult = await handle.result()
    (row,) = await rows(database_url)
    assert row.failure is not None
    assert row.failure.code == "TIMEOUT"
    assert result.decisions[0].recorded is True
