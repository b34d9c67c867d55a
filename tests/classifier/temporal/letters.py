"""An app that sorts letters, and what its models and stores do in tests."""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import datetime
from typing import Any

from temporalio.client import Client, WorkflowHandle

from classifier.answers import Answer as ModelAnswer
from classifier.answers import BooleanAnswer, ChoiceAnswer
from classifier.app import App
from classifier.audit.store import DecisionStore
from classifier.classifier import Classifier
from classifier.decision import Decision
from classifier.errors import StoreUnavailable
from classifier.models.protocol import DecisionModel
from classifier.models.scripted import ScriptedModel
from classifier.models.systemone import SystemOne
from classifier.playbook import Outbox, Playbook
from classifier.temporal.messages import DecideRequest
from tests.classifier.temporal.project.workflows import Asked, Letter
from tests.servers import Answer, Server

BUG: Mapping[str, ModelAnswer] = {
    "spam": BooleanAnswer(0.1),
    "kind": ChoiceAnswer("bug", {"bug": 0.9, "praise": 0.1}),
}
PRAISE: Mapping[str, ModelAnswer] = {
    "spam": BooleanAnswer(0.1),
    "kind": ChoiceAnswer("praise", {"bug": 0.1, "praise": 0.9}),
}


def answer(kind: str = "bug") -> Answer:
    """What a server answers."""
    other = "praise" if kind == "bug" else "bug"
    answers = {
        "spam": {"type": "noul", "noul": 0.1},
        "kind": {
            "type": "choice",
            "choice": kind,
            "confidence": 0.9,
            "probabilities": {kind: 0.9, other: 0.1},
        },
    }
    return Answer({"model": "m-1", "answers": answers})


def failed(status: int, **headers: str) -> Answer:
    """What a server answers that will not."""
    return Answer(
        {"error": {"code": "nothing"}},
        status,
        {name.replace("_", "-"): text for name, text in headers.items()},
    )


def always(reply: Mapping[str, ModelAnswer] = BUG, latency: float = 0.0) -> ScriptedModel:
    """A model that has one answer."""
    return ScriptedModel(lambda request: reply, latency=latency)


def app(model: DecisionModel, route: Callable[[Letter], Any] | None = None) -> App:
    """The classifier `letters`, and the playbook `letters` that routes by kind."""
    letters = Classifier("letters", model, Letter)
    playbook = Playbook(
        id="letters",
        classifier=letters,
        routes=("bug", "praise"),
        route=route or (lambda answers: answers.kind.choice_or("refused")),
        gates={},
        destinations={"*": Outbox("outbox.jsonl")},
    )
    return App(classifiers=[letters], playbooks=[playbook])


def over_http(server: Server) -> App:
    """The same over HTTP."""
    return app(SystemOne("m", base_url=server.url))


async def start(client: Client, queue: str, workflow: Any, given: Any) -> WorkflowHandle[Any, Any]:
    """Starts a workflow under an id of its own."""
    return await client.start_workflow(workflow, given, id=f"test-{uuid.uuid4()}", task_queue=queue)


def asked(*states: Any, playbook: bool = False, failures_allowed: int = 3, **options: Any) -> Asked:
    """A request about states."""
    classifier, named = (None, "letters") if playbook else ("letters", None)
    request = DecideRequest(
        list(states), classifier=classifier, playbook=named, failures_allowed=failures_allowed
    )
    return Asked(request, **options)


async def activities(handle: WorkflowHandle[Any, Any]) -> list[str]:
    """Names of the activities a run scheduled, in order."""
    history = await handle.fetch_history()
    return [
        event.activity_task_scheduled_event_attributes.activity_type.name
        for event in history.events
        if event.HasField("activity_task_scheduled_event_attributes")
    ]


async def until(true: Callable[[], Awaitable[bool]], seconds: float = 10.0) -> None:
    """Waits for something that only Temporal can be asked about."""
    ends = time.monotonic() + seconds
    while not await true():
        assert time.monotonic() < ends, "it never came to pass"
        await asyncio.sleep(0.05)


class Interrupted:
    """A real store that is away while `away`, and whose writes wait until it is `open`.

    `tried` is set by every attempt to write.
    """

    def __init__(self, store: DecisionStore) -> None:
        self._store = store
        self.away = False
        self.open = asyncio.Event()
        self.open.set()
        self.tried = asyncio.Event()

    async def find(
        self, tenant: str, decided_at: datetime, decision_ids: Sequence[uuid.UUID]
    ) -> Mapping[uuid.UUID, Decision]:
        self._answer()
        return await self._store.find(tenant, decided_at, decision_ids)

    async def record(self, decisions: Sequence[Decision]) -> Sequence[Decision]:
        self.tried.set()
        await self.open.wait()
        self._answer()
        return await self._store.record(decisions)

    def _answer(self) -> None:
        if self.away:
            raise StoreUnavailable("the store is away, for this test")
