"""Reviews that people take on, and deadlines: who may decide when, and what happens where nobody does."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from temporalio.api.enums.v1 import EventType
from temporalio.client import Client, WorkflowFailureError, WorkflowUpdateFailedError
from temporalio.exceptions import ApplicationError

from classifier.audit.memory import MemoryStore
from classifier.audit.records import HistoryEvent
from classifier.decision import Decision
from classifier.review_rules import Escalate, ReviewRules, TakeRoute
from tests.classifier.temporal.letters import until
from tests.servers import Answer, Server
from tests.workflows.test_triage import waiting
from tests.workflows.tickets import (
    Handle,
    always,
    app,
    claim,
    event,
    outbox,
    release,
    review,
    says,
    start,
    triaging,
)
from workflows.messages import TriageStatus
from workflows.review_client import Reviewer

UNSURE = always(says("technical", 0.6))
SOON = timedelta(milliseconds=300)
LATER = timedelta(hours=1)


async def refusal(what: Awaitable[TriageStatus]) -> tuple[str | None, str]:
    with pytest.raises(WorkflowUpdateFailedError) as refused:
        await what
    cause = refused.value.cause
    assert isinstance(cause, ApplicationError)
    return cause.type, cause.message


def facts(store: MemoryStore) -> list[tuple[str, str | None]]:
    return [(each.kind, each.actor) for each in store.history.values()]


def of_kind(store: MemoryStore, kind: str) -> HistoryEvent:
    (found,) = [each for each in store.history.values() if each.kind == kind]
    return found


async def test_while_a_claim_lasts_nobody_else_claims_decides_or_releases(
    client: Client, queue: str, tmp_path: Path
) -> None:
    store = MemoryStore()
    async with triaging(client, app(UNSURE), store, queue, tmp_path):
        handle = await start(client, queue, event("1"))
        await waiting(handle)
        taken = await claim(handle, "kim")
        assert (taken.state, taken.claimed_by) == ("review", "kim")
        for attempt in (claim(handle, "robin"), review(handle, "billing", "robin"), release(handle, "robin")):
            code, message = await refusal(attempt)
            assert code == "REVIEW_HELD"
            assert "kim" not in message
        again = await claim(handle, "kim", 120)
        assert again.claimed_until is not None
        assert taken.claimed_until is not None
        assert again.claimed_until > taken.claimed_until
        assert (await review(handle, "billing", "kim")).claimed_by is None
        await handle.result()
    assert facts(store) == [
        ("review_claimed", "kim"),
        ("review_claimed", "kim"),
        ("review", "kim"),
        ("delivery", "kim"),
    ]
    first, second, *_ = store.history.values()
    assert first.body == {"until": taken.claimed_until, "number": 1}
    assert second.body == {"until": again.claimed_until, "number": 2}


async def test_who_releases_a_review_leaves_it_to_anybody(client: Client, queue: str, tmp_path: Path) -> None:
    store = MemoryStore()
    async with triaging(client, app(UNSURE), store, queue, tmp_path):
        handle = await start(client, queue, event("1"))
        await waiting(handle)
        assert (await refusal(release(handle, "kim")))[0] == "NOT_CLAIMED"
        await claim(handle, "kim")
        assert (await release(handle, "kim")).claimed_by is None
        assert (await claim(handle, "robin")).claimed_by == "robin"
        await review(handle, "billing", "robin")
        await handle.result()
    assert [kind for kind, _ in facts(store)][:3] == ["review_claimed", "review_released", "review_claimed"]
    assert outbox(tmp_path)[0]["decided_by"] == "robin"


async def test_a_claim_that_ran_out_is_nobodys(client: Client, queue: str, tmp_path: Path) -> None:
    async with triaging(client, app(UNSURE), MemoryStore(), queue, tmp_path):
        handle = await start(client, queue, event("1"))
        await waiting(handle)
        await claim(handle, "kim", 0.2)

        async def decided() -> bool:
            try:
                await review(handle, "billing", "robin")
            except WorkflowUpdateFailedError:
                return False
            return True

        await until(decided)
        assert (await handle.result()).decided_by == "robin"


async def test_of_many_who_claim_at_the_same_time_one_gets_it(
    client: Client, queue: str, tmp_path: Path
) -> None:
    store = MemoryStore()
    async with triaging(client, app(UNSURE), store, queue, tmp_path):
        handle = await start(client, queue, event("1"))
        await waiting(handle)
        tried = [claim(handle, f"person {n}") for n in range(8)]
        results = await asyncio.gather(*tried, return_exceptions=True)
        (won,) = [each for each in results if isinstance(each, TriageStatus)]
        assert won.claimed_by == of_kind(store, "review_claimed").actor
        await handle.terminate()


@pytest.mark.parametrize("seconds", [0, -1, 24 * 3600 + 1, float("inf"), float("nan")])
async def test_a_claim_lasts_more_than_nothing_and_a_day_at_most(
    client: Client, queue: str, tmp_path: Path, seconds: float
) -> None:
    async with triaging(client, app(UNSURE), MemoryStore(), queue, tmp_path):
        handle = await start(client, queue, event("1"))
        await waiting(handle)
        assert (await refusal(claim(handle, "kim", seconds)))[0] == "BAD_LEASE"
        await handle.terminate()


@pytest.mark.parametrize("by", ["", " ", "classifier", "deadline"])
async def test_nobody_acts_in_the_name_of_nobody_or_of_the_machine(
    client: Client, queue: str, tmp_path: Path, by: str
) -> None:
    async with triaging(client, app(UNSURE), MemoryStore(), queue, tmp_path):
        handle = await start(client, queue, event("1"))
        await waiting(handle)
        assert (await refusal(claim(handle, by)))[0] == "NO_REVIEWER"
        assert (await refusal(review(handle, "billing", by)))[0] == "NO_REVIEWER"
        await handle.terminate()


async def test_at_its_deadline_an_event_takes_the_default_and_a_choice_hears_of_it(
    client: Client, queue: str, tmp_path: Path
) -> None:
    store = MemoryStore()
    rules = ReviewRules(deadline=SOON, then=TakeRoute("technical"))
    async with Server([Answer(status=500), Answer()]) as hook:
        declared = app(UNSURE, rules=rules, hook=hook.url)
        async with triaging(client, declared, store, queue, tmp_path):
            handle = await start(client, queue, event("1"))
            await hook.asked.wait()
            code, message = await refusal(review(handle, "billing"))
            assert code == "NOT_IN_REVIEW"
            assert "its deadline has chosen 'technical'" in message
            status = await handle.result()
    assert (status.state, status.route, status.decided_by) == ("delivered", "technical", "deadline")
    assert facts(store) == [("review_defaulted", "deadline"), ("delivery", "deadline")]
    assert of_kind(store, "review_defaulted").body == {"route": "technical", "suggested": "technical"}


async def test_a_deadline_may_ask_others_first_and_choose_when_they_are_silent_too(
    client: Client, queue: str, tmp_path: Path
) -> None:
    store = MemoryStore()
    then = Escalate(queue="leads", deadline=SOON, then=TakeRoute("billing"))
    rules = ReviewRules(deadline=SOON, then=then)
    async with triaging(client, app(UNSURE, rules=rules), store, queue, tmp_path):
        handle = await start(client, queue, event("1"))
        status = await handle.result()
    assert (status.decided_by, status.queue) == ("deadline", "leads")
    assert [kind for kind, _ in facts(store)] == ["review_escalated", "review_defaulted", "delivery"]
    escalated, defaulted, _ = store.history.values()
    assert escalated.body == {"queue": "leads", "number": 1}
    assert defaulted.at - escalated.at >= SOON
    assert outbox(tmp_path)[0]["decided_by"] == "deadline"


async def test_an_event_that_escalated_waits_for_a_person_for_as_long_as_it_takes(
    client: Client, queue: str, tmp_path: Path
) -> None:
    rules = ReviewRules(deadline=SOON, then=Escalate(queue="leads"))
    async with triaging(client, app(UNSURE, rules=rules), MemoryStore(), queue, tmp_path):
        handle = await start(client, queue, event("1"))
        assert (await waiting(handle)).due is not None

        async def escalated() -> bool:
            return (await waiting(handle)).queue == "leads"

        await until(escalated)
        assert (await waiting(handle)).due is None
        assert (await review(handle, "billing", "lee")).decided_by == "lee"
        await handle.result()


async def test_a_deadline_waits_for_somebody_who_is_at_work_and_passes_when_they_give_up(
    client: Client, queue: str, tmp_path: Path
) -> None:
    store = MemoryStore()
    rules = ReviewRules(deadline=timedelta(seconds=1), then=TakeRoute("billing"))
    async with triaging(client, app(UNSURE, rules=rules), store, queue, tmp_path):
        handle = await start(client, queue, event("1"))
        await waiting(handle)
        await claim(handle, "kim", 3600)
        await until(lambda: fired(handle))
        assert (await waiting(handle)).claimed_by == "kim"
        await release(handle, "kim")
        assert (await handle.result()).decided_by == "deadline"
    assert [kind for kind, _ in facts(store)][:3] == [
        "review_claimed",
        "review_released",
        "review_defaulted",
    ]


async def fired(handle: Handle) -> bool:
    kinds = [event.event_type for event in (await handle.fetch_history()).events]
    return EventType.EVENT_TYPE_TIMER_FIRED in kinds


async def chooses(handle: Handle) -> TriageStatus:
    return await review(handle, "billing")


async def claims(handle: Handle) -> TriageStatus:
    return await claim(handle, "kim")


@pytest.mark.parametrize(
    ("act", "chosen_by"),
    [(chooses, "kim"), (claims, None)],
)
async def test_who_acts_in_the_moment_of_the_deadline_wins(
    client: Client,
    queue: str,
    tmp_path: Path,
    act: Callable[[Handle], Coroutine[Any, Any, TriageStatus]],
    chosen_by: str | None,
) -> None:
    """While nobody works the time passes and a person acts; whoever works next sees both at once."""
    store = MemoryStore()
    rules = ReviewRules(deadline=timedelta(seconds=1), then=TakeRoute("billing"))
    declared = app(UNSURE, rules=rules)
    async with triaging(client, declared, store, queue, tmp_path):
        handle = await start(client, queue, event("1"))
        await waiting(handle)
    acting = asyncio.create_task(act(handle))
    await until(lambda: fired(handle))
    async with triaging(client, declared, store, queue, tmp_path):
        assert (await acting).decided_by == chosen_by
        if chosen_by is None:
            assert (await waiting(handle)).claimed_by == "kim"
            await review(handle, "billing")
        assert (await handle.result()).decided_by == "kim"
    assert "review_defaulted" not in [kind for kind, _ in facts(store)]


async def test_a_waiting_run_keeps_its_deadline_through_a_restart_and_other_rules(
    client: Client, queue: str, tmp_path: Path
) -> None:
    rules = ReviewRules(deadline=timedelta(seconds=2), then=TakeRoute("billing"))
    other = ReviewRules(deadline=LATER, then=Escalate(queue="nobody"))
    async with triaging(client, app(UNSURE, rules=rules), MemoryStore(), queue, tmp_path):
        handle = await start(client, queue, event("1"))
        due = (await waiting(handle)).due
    async with triaging(client, app(UNSURE, rules=other), MemoryStore(), queue, tmp_path):
        status = await handle.result()
    assert due is not None
    assert status.decided_by == "deadline"
    assert datetime.fromisoformat(due).timestamp() <= time.time()


async def test_claims_and_deadlines_hold_where_every_task_replays_the_run(
    client: Client, queue: str, tmp_path: Path
) -> None:
    store = MemoryStore()
    then = Escalate(queue="leads", deadline=LATER, then=TakeRoute("billing"))
    declared = app(UNSURE, rules=ReviewRules(deadline=SOON, then=then))
    async with triaging(client, declared, store, queue, tmp_path, max_cached_workflows=0):
        handle = await start(client, queue, event("1"))
        await waiting(handle)
        await claim(handle, "kim", 1)
        await release(handle, "kim")

        async def escalated() -> bool:
            return (await waiting(handle)).queue == "leads"

        await until(escalated)
        await claim(handle, "robin")
        assert (await review(handle, "billing", "robin")).state == "delivered"
        await handle.result()
    assert [kind for kind, _ in facts(store)] == [
        "review_claimed",
        "review_released",
        "review_escalated",
        "review_claimed",
        "review",
        "delivery",
    ]


async def test_a_stop_is_on_record_before_the_run_closes_and_who_acts_then_hears_of_it(
    client: Client, queue: str, tmp_path: Path
) -> None:
    store = MemoryStore()
    async with triaging(client, app(UNSURE), store, queue, tmp_path):
        handle = await start(client, queue, event("1"))
        status = await waiting(handle)
        await handle.cancel()
        with pytest.raises(WorkflowFailureError):
            await handle.result()
    stop = of_kind(store, "stop")
    assert (stop.actor, stop.body, stop.workflow_id) == (None, {"state": "review"}, handle.id)
    assert str(stop.decision_id) == status.decision_id


async def test_a_choice_whose_delivery_takes_its_time_is_taken_all_the_same(
    client: Client, queue: str, tmp_path: Path
) -> None:
    store = MemoryStore()
    async with (
        Server([Answer(status=500), Answer()]) as hook,
        triaging(client, app(UNSURE, hook=hook.url), store, queue, tmp_path),
    ):
        handle = await start(client, queue, event("1"))
        await waiting(handle)
        (decision,) = store.decisions.values()
        assert await Reviewer(client, "kim", within=0).decide(decision, "technical") is None
        assert (await handle.result()).decided_by == "kim"


class HeldUp(MemoryStore):
    """Stores decisions, and does not say so until it is let."""

    def __init__(self) -> None:
        super().__init__()
        self.stored = asyncio.Event()
        self.let = asyncio.Event()

    async def record(self, decisions: Sequence[Decision]) -> Sequence[Decision]:
        found = await super().record(decisions)
        self.stored.set()
        await self.let.wait()
        return found


async def test_who_is_quicker_than_the_run_is_heard_when_it_knows_that_it_waits(
    client: Client, queue: str, tmp_path: Path
) -> None:
    store = HeldUp()
    async with triaging(client, app(UNSURE), store, queue, tmp_path):
        handle = await start(client, queue, event("1"))
        await store.stored.wait()
        (decision,) = store.decisions.values()
        choosing = asyncio.create_task(Reviewer(client, "kim").decide(decision, "billing"))

        async def waits_for_the_decision() -> bool:
            history = await handle.fetch_history()
            return any(
                each.event_type == EventType.EVENT_TYPE_WORKFLOW_EXECUTION_UPDATE_ACCEPTED
                for each in history.events
            )

        await until(waits_for_the_decision)
        store.let.set()
        status = await choosing
    assert status is not None
    assert (status.state, status.decided_by) == ("delivered", "kim")
