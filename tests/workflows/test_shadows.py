"""Shadows in real triage runs: on record beside the live decision, and nothing else follows from them."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from temporalio.client import Client, WorkflowFailureError

from classifier.answers import Answer
from classifier.app import App
from classifier.audit.memory import MemoryStore
from classifier.audit.query import DecisionQuery
from classifier.classifier import Classifier
from classifier.decision import Decision
from classifier.errors import ModelUnavailable, RequestRejected
from classifier.models.protocol import DecisionModel, DecisionRequest
from classifier.models.scripted import ScriptedModel
from classifier.result import DecisionResponse
from classifier.shadow import Shadow
from classifier.temporal.messages import DECIDE
from tests.classifier.temporal.letters import activities, until
from tests.workflows.tickets import Ticket, always, app, event, outbox, review, says, start, triaging
from workflows.messages import TriageStatus
from workflows.triage import TriageWorkflow

STRICTER = Shadow[Ticket](policy_version="stricter", gates={"department": 0.95})


class Held(ScriptedModel):
    """A model that answers when it is `open`."""

    def __init__(self, reply: Mapping[str, Answer]) -> None:
        super().__init__(lambda request: reply)
        self.asked, self.open, self.stopped = asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def decide(self, request: DecisionRequest) -> DecisionResponse:
        self.asked.set()
        try:
            await self.open.wait()
        except asyncio.CancelledError:
            self.stopped.set()
            raise
        return await super().decide(request)


def other(model: DecisionModel, **options: Any) -> Shadow[Ticket]:
    """Another classifier decides beside the live one."""
    return Shadow(policy_version="other", classifier=Classifier("other", model, Ticket), **options)


def shadowed(model: DecisionModel, shadow: Shadow[Any], **options: Any) -> App:
    """The tickets with a shadow."""
    ((_, tickets),) = app(model, **options).playbooks
    return App(playbooks=[replace(tickets, policy_version="live", shadow=shadow)])


def both(store: MemoryStore) -> tuple[Decision, Decision]:
    """The live decision and its shadow."""
    (live,) = store.matching(DecisionQuery(tenant="acme"))
    (shadow,) = store.matching(DecisionQuery(tenant="acme", mode="shadow"))
    return live, shadow


async def ended(client: Client, declared: App, queue: str, home: Path) -> tuple[TriageStatus, MemoryStore]:
    """A run from its start to its end."""
    store = MemoryStore()
    async with triaging(client, declared, store, queue, home):
        status = await (await start(client, queue, event("1"))).result()
    return status, store


async def test_another_policy_judges_the_same_answers_anew_and_no_model_is_asked_twice(
    client: Client, queue: str, tmp_path: Path
) -> None:
    model = always(says("billing"))
    status, store = await ended(client, shadowed(model, STRICTER), queue, tmp_path)
    live, shadow = both(store)
    assert (status.state, status.route, status.decision_id) == ("delivered", "billing", str(live.decision_id))
    assert len(model.requests) == 1
    assert len(outbox(tmp_path)) == 1
    assert live.branch is not None
    assert shadow.branch is not None
    assert (live.branch.action, live.policy_version) == ("route", "live")
    assert (shadow.branch.action, shadow.policy_version) == ("review", "stricter")
    assert shadow.gates == {"department": 0.95}
    assert shadow.answers == live.answers
    assert shadow.attempts == 0


async def test_a_shadow_belongs_to_the_decision_it_stands_beside(
    client: Client, queue: str, tmp_path: Path
) -> None:
    plain, alone = await ended(client, app(always(says("billing"))), f"{queue}-alone", tmp_path)
    del plain
    _, store = await ended(client, shadowed(always(says("billing")), STRICTER), queue, tmp_path)
    live, shadow = both(store)
    (without,) = alone.decisions.values()
    assert live.coordinates.activity_id == without.coordinates.activity_id == f"{DECIDE}-1"
    assert shadow.shadow_of == live.decision_id
    assert live.shadow_of is None
    assert (shadow.ids.message, shadow.playbook_id, shadow.state) == ("1", "tickets", live.state)
    assert shadow.coordinates.run_id == live.coordinates.run_id
    assert shadow.decided_at == live.decided_at


async def test_another_classifier_is_asked_for_itself(client: Client, queue: str, tmp_path: Path) -> None:
    beside = always(says("technical"))
    status, store = await ended(client, shadowed(always(says("billing")), other(beside)), queue, tmp_path)
    live, shadow = both(store)
    assert (status.route, len(beside.requests)) == ("billing", 1)
    assert (live.classifier_id, shadow.classifier_id) == ("tickets", "other")
    assert shadow.branch is not None
    assert shadow.branch.route == "technical"


async def test_delivery_does_not_wait_for_a_shadow_and_the_run_does(
    client: Client, queue: str, tmp_path: Path
) -> None:
    beside, store = Held(says("technical")), MemoryStore()
    async with triaging(client, shadowed(always(says("billing")), other(beside)), store, queue, tmp_path):
        handle = await start(client, queue, event("1"))
        await beside.asked.wait()

        async def delivered() -> bool:
            return (await handle.query(TriageWorkflow.status)).state == "delivered"

        await until(delivered)
        described = await handle.describe()
        assert described.close_time is None
        beside.open.set()
        assert (await handle.result()).route == "billing"
    assert both(store)[1].failure is None


@pytest.mark.parametrize("fault", [ModelUnavailable("down"), RequestRejected("no"), ValueError("a bug")])
async def test_a_shadow_that_fails_is_on_record_and_changes_nothing(
    client: Client, queue: str, tmp_path: Path, fault: Exception
) -> None:
    status, store = await ended(
        client, shadowed(always(says("billing")), other(always(fault))), queue, tmp_path
    )
    live, shadow = both(store)
    assert (status.state, status.route) == ("delivered", "billing")
    assert live.failure is None
    assert shadow.failure is not None
    assert shadow.failure.code == getattr(fault, "code", "POLICY_ERROR")


async def test_a_route_function_that_raises_in_a_shadow_is_on_record(
    client: Client, queue: str, tmp_path: Path
) -> None:
    def raising(answers: Ticket) -> str:
        raise ValueError("not thought of")

    shadow = Shadow(policy_version="new", route=raising)
    status, store = await ended(client, shadowed(always(says("billing")), shadow), queue, tmp_path)
    assert status.state == "delivered"
    failure = both(store)[1].failure
    assert failure is not None
    assert failure.code == "POLICY_ERROR"


async def test_a_run_ends_when_the_budget_of_its_shadow_is_spent(
    client: Client, queue: str, tmp_path: Path
) -> None:
    beside = Held(says("technical"))
    declared = shadowed(always(says("billing")), other(beside, budget=timedelta(seconds=1)))
    status, store = await ended(client, declared, queue, tmp_path)
    failure = both(store)[1].failure
    assert status.state == "delivered"
    assert failure is not None
    assert failure.code == "TIMEOUT"


async def test_a_run_that_is_stopped_stops_its_shadow(client: Client, queue: str, tmp_path: Path) -> None:
    beside, store = Held(says("technical")), MemoryStore()
    declared = shadowed(always(says("billing", 0.6)), other(beside))
    async with triaging(client, declared, store, queue, tmp_path):
        handle = await start(client, queue, event("1"))
        await beside.asked.wait()
        await handle.cancel()
        with pytest.raises(WorkflowFailureError):
            await handle.result()
        await beside.stopped.wait()
    assert store.matching(DecisionQuery(tenant="acme", mode="shadow")) == []


async def test_a_person_decides_by_the_live_branch_alone(client: Client, queue: str, tmp_path: Path) -> None:
    store = MemoryStore()
    lenient = Shadow[Ticket](policy_version="lenient", gates={"department": 0.1})
    async with triaging(client, shadowed(always(says("technical", 0.6)), lenient), store, queue, tmp_path):
        handle = await start(client, queue, event("1"))

        async def waits() -> bool:
            return (await handle.query(TriageWorkflow.status)).state == "review"

        await until(waits)
        status = await review(handle, "billing")
        await handle.result()
    assert (status.route, status.decided_by) == ("billing", "kim")
    branch = both(store)[1].branch
    assert branch is not None
    assert (branch.action, branch.route) == ("route", "technical")


async def test_there_is_nothing_to_judge_anew_where_the_live_model_failed(
    client: Client, queue: str, tmp_path: Path
) -> None:
    store = MemoryStore()
    async with triaging(client, shadowed(always(ModelUnavailable("down")), STRICTER), store, queue, tmp_path):
        handle = await start(client, queue, event("1"))

        async def waits() -> bool:
            return (await handle.query(TriageWorkflow.status)).state == "review"

        await until(waits, 20)
        await review(handle, "billing")
        await handle.result()
        assert (await activities(handle)).count(DECIDE) == 1
    (live,) = store.decisions.values()
    assert live.mode == "enforce"


async def test_a_shadow_that_is_gone_by_then_leaves_no_row_and_a_line_in_the_log(
    client: Client, queue: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    beside, store = Held(says("technical")), MemoryStore()
    live = always(says("billing"))
    caplog.set_level(logging.WARNING)
    async with triaging(client, shadowed(live, other(beside)), store, queue, tmp_path):
        handle = await start(client, queue, event("1"))
        await beside.asked.wait()
    async with triaging(client, app(live), store, queue, tmp_path):
        assert (await handle.result()).route == "billing"
    assert [each.mode for each in store.decisions.values()] == ["enforce"]
    assert "a shadow decision is not on record" in caplog.text
