"""An app that triages tickets to an outbox and a webhook, its worker, and events for it."""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from collections.abc import AsyncGenerator, Callable, Mapping
from pathlib import Path
from typing import Any

import httpx
from temporalio.client import Client, WorkflowHandle
from temporalio.worker import Worker

from activities.dead_letters import DeadLetterActivities
from activities.deliver import DeliveryActivities
from activities.reviews import ReviewActivities
from classifier.answers import Answer, ChoiceAnswer, Refusal
from classifier.app import App
from classifier.audit.store import AuditStore, DecisionStore
from classifier.classifier import Classifier
from classifier.models.protocol import DecisionModel
from classifier.models.scripted import ScriptedModel
from classifier.playbook import Outbox, Playbook, Review, Webhook
from classifier.questions import Choice, Questions
from classifier.review_rules import ReviewRules
from classifier.temporal.leaving import Leaving
from classifier.temporal.plugin import ClassifierPlugin, with_passthrough
from worker import WORKFLOW_MODULES
from workflows.dead_letters import DeadLetterOrder
from workflows.messages import (
    CLAIM,
    RELEASE,
    REVIEW,
    ReviewChoice,
    ReviewClaim,
    ReviewRelease,
    TriageRequest,
    TriageStatus,
    triage_workflow_id,
)
from workflows.triage import TriageWorkflow

TOKEN = "sk-test-123"
ENVIRON = {"HOOK_TOKEN": TOKEN}
NO_HOOK = "http://127.0.0.1:9/"

Handle = WorkflowHandle[TriageWorkflow, TriageStatus]


class Ticket(Questions):
    """What is asked about a ticket."""

    department = Choice({"billing": None, "technical": None})


def says(department: str, probability: float = 0.9) -> Mapping[str, Answer]:
    """An answer of the model."""
    other = "technical" if department == "billing" else "billing"
    found = ChoiceAnswer(department, {department: probability, other: 1 - probability})
    return {"department": found}


REFUSED: Mapping[str, Answer] = {"department": Refusal("policy")}


def always(reply: Mapping[str, Answer] | Exception) -> ScriptedModel:
    """A model that has one answer."""
    return ScriptedModel(lambda request: reply)


def by_department(answers: Ticket) -> str | Review:
    """Where the answer leads."""
    return answers.department.choice_or(Review("refused"))


def app(
    model: DecisionModel,
    *,
    hook: str = NO_HOOK,
    gate: float = 0.8,
    route: Callable[[Ticket], Any] = by_department,
    rules: ReviewRules | None = None,
) -> App:
    """Billing goes to an outbox, technical to a webhook."""
    tickets = Playbook(
        id="tickets",
        classifier=Classifier("tickets", model, Ticket),
        routes=("billing", "technical"),
        route=route,
        gates={"department": gate},
        destinations={
            "billing": Outbox("outbox.jsonl"),
            "technical": Webhook(hook, token_variable="HOOK_TOKEN"),
        },
        review=rules,
    )
    return App(playbooks=[tickets])


@contextlib.asynccontextmanager
async def triaging(
    client: Client,
    declared: App,
    store: AuditStore,
    queue: str,
    home: Path,
    *,
    decisions: DecisionStore | None = None,
    environ: Mapping[str, str] = ENVIRON,
    **options: Any,
) -> AsyncGenerator[None]:
    """A worker as `worker.py` makes it, over any store."""
    resolved = declared.resolve(environ)
    async with httpx.AsyncClient() as http:
        delivery = DeliveryActivities(resolved, store, home=home, client=http, environ=environ)
        dead_letters = DeadLetterActivities(store)
        leaving = Leaving()
        async with Worker(
            client,
            task_queue=queue,
            workflows=[TriageWorkflow],
            activities=[
                delivery.deliver,
                delivery.request_review,
                delivery.record_review,
                dead_letters.keep,
                dead_letters.answer,
                ReviewActivities(store).note,
            ],
            plugins=[ClassifierPlugin(resolved, decisions or store)],
            workflow_runner=with_passthrough(WORKFLOW_MODULES)(None),
            interceptors=[leaving],
            **options,
        ):
            try:
                yield
            finally:
                leaving.leave()


def event(number: str, text: Any = "my card does not work") -> dict[str, Any]:
    """A CloudEvent."""
    return {
        "specversion": "1.0",
        "id": number,
        "source": "/tests",
        "type": "ticket",
        "data": {"text": text},
    }


async def start(client: Client, queue: str, given: dict[str, Any]) -> Handle:
    """Starts the run of an event."""
    request = TriageRequest(given, "tickets", "acme", {"tenant_id": "acme"})
    workflow_id = triage_workflow_id("acme", queue, given["id"])
    return await client.start_workflow(TriageWorkflow.run, request, id=workflow_id, task_queue=queue)


async def dead(handle: Handle) -> TriageStatus:
    """Returns when the event has become a dead letter."""
    ends = time.monotonic() + 30
    while (status := await handle.query(TriageWorkflow.status)).state != "dead_letter":
        assert time.monotonic() < ends, status
        await asyncio.sleep(0.05)
    return status


async def answer(handle: Handle, update: str, by: str = "robin", reason: str | None = None) -> TriageStatus:
    """What somebody makes of a dead letter: `REPLAY` or `DROP`."""
    order = DeadLetterOrder(by, reason)
    status: TriageStatus = await handle.execute_update(  # pyright: ignore[reportUnknownMemberType] - an overload of the SDK is untyped
        update, order, result_type=TriageStatus
    )
    return status


async def review(handle: Handle, route: str, by: str = "kim", reason: str | None = None) -> TriageStatus:
    """A person's choice."""
    choice = ReviewChoice(route, by, reason)
    status: TriageStatus = await handle.execute_update(  # pyright: ignore[reportUnknownMemberType] - an overload of the SDK is untyped
        REVIEW, choice, result_type=TriageStatus
    )
    return status


async def claim(handle: Handle, by: str, seconds: float = 60) -> TriageStatus:
    """Somebody takes a review on."""
    status: TriageStatus = await handle.execute_update(  # pyright: ignore[reportUnknownMemberType] - an overload of the SDK is untyped
        CLAIM, ReviewClaim(by, seconds), result_type=TriageStatus
    )
    return status


async def release(handle: Handle, by: str) -> TriageStatus:
    """Whoever took it on gives it back."""
    status: TriageStatus = await handle.execute_update(  # pyright: ignore[reportUnknownMemberType] - an overload of the SDK is untyped
        RELEASE, ReviewRelease(by), result_type=TriageStatus
    )
    return status


def outbox(home: Path) -> list[dict[str, Any]]:
    """What was delivered to the file."""
    path = home / "outbox.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
