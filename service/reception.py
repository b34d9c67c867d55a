"""What happens to events between the wire and Temporal: checked, capped, recognised, started, each once."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, TypeAlias

from temporalio.client import Client
from temporalio.service import RPCError

from classifier.audit.batching import Batcher
from classifier.audit.records import HistoryEvent, SourceEvent, event_id_of
from classifier.audit.store import EventStore
from classifier.errors import PolicyError, StoreError
from classifier.playbook import Playbook
from classifier.values import JSON
from service.problems import Problem, malformed, too_large, too_many, unavailable, undecidable
from service.rates import InFlight, Rate
from service.settings import Caps
from workflows.events import (
    MAX_TRAVEL_BYTES,
    Incoming,
    TooLargeError,
    UndecidableError,
    by_type,
    check_event,
    check_state,
)
from workflows.intake import Gathering, Intake, Started

ACTOR = "actor"
CAUSED_BY = "causedby"
"""Extension attributes: who caused an event, and the delivery of ours that did."""

LONGEST_NAME = 1024
AT_ONCE = 10.0
"""Seconds of a rate that may come together."""
WITHIN = 15.0
_TOGETHER = 200
_WRITERS = 4

PlaybookOf: TypeAlias = Mapping[str, Playbook[Any]]


@dataclass(frozen=True, slots=True)
class Taken:
    """What the sender of an event is told; the same, however often it is sent.

    Attributes:
        event_id: The event's own id.
        workflow_id: What works on it.
        run_id: Its first run.
        ignored: Why nothing works on it: "own_action" or "ping".
    """

    event_id: str | None
    workflow_id: str | None = None
    run_id: str | None = None
    ignored: str | None = None

    def to_json(self) -> dict[str, JSON]:
        """The answer."""
        answer: dict[str, JSON] = {
            "event_id": self.event_id,
            "workflow_id": self.workflow_id,
            "run_id": self.run_id,
        }
        return answer if self.ignored is None else answer | {"ignored": self.ignored}


Outcome: TypeAlias = Taken | Problem


@dataclass(frozen=True, slots=True)
class _Checked:
    incoming: Incoming
    key: str
    playbook: Playbook[Any]

    @property
    def actor(self) -> str | None:
        actor = self.incoming.event.get(ACTOR)
        return actor if isinstance(actor, str) else None

    @property
    def is_own_action(self) -> bool:
        return self.actor in self.playbook.own_actors or bool(self.incoming.event.get(CAUSED_BY))


class Reception:
    """Takes events of all playbooks of an app.

    Args:
        playbooks: By key.
        client: Where runs are started.
        store: Where accepted events are remembered.
        task_queue: The queue the workers poll.
        caps: How much is taken.
        clock: Seconds that only grow.
    """

    def __init__(
        self,
        playbooks: PlaybookOf,
        client: Client,
        store: EventStore,
        *,
        task_queue: str,
        caps: Caps,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._playbook_for = by_type(playbooks.items())
        self._store = store
        self._in_flight = InFlight(caps.in_flight)
        self._tenants = Rate(caps.tenant_rate, int(caps.tenant_rate * AT_ONCE), clock)
        self._actors = Rate(caps.actor_rate, int(caps.actor_rate * AT_ONCE), clock)
        self._subjects = Rate(caps.subject_rate / 60, caps.subject_rate, clock)
        self._intakes = {
            key: Batcher(
                Intake(
                    client,
                    store,
                    task_queue=task_queue,
                    playbook=key,
                    gathering=_gathering(playbook, caps.subject_rate),
                ).attempt,
                limit=_TOGETHER,
                concurrency=_WRITERS,
            )
            for key, playbook in playbooks.items()
        }

    async def take(self, tenant: str, events: Sequence[dict[str, Any] | Problem]) -> list[Outcome]:
        """What became of each event, in their order; what was taken is durable when this returns.

        Raises:
            Problem: 429 where too many are under way, 503 where nothing could be taken.
        """
        with self._in_flight.of(tenant, len(events)):
            try:
                async with asyncio.timeout(WITHIN):
                    return list(await asyncio.gather(*(self._one(tenant, event) for event in events)))
            except StoreError:
                raise unavailable("STORE_UNAVAILABLE", "the database does not answer") from None
            except TimeoutError:
                raise unavailable("UNAVAILABLE", "accepting took too long; sending again is safe") from None

    async def _one(self, tenant: str, event: dict[str, Any] | Problem) -> Outcome:
        try:
            if isinstance(event, Problem):
                return event
            checked = self._checked(tenant, event)
            self._check_rates(checked)
            if checked.is_own_action:
                await self._note(checked, "own_action", checked.incoming.source.id)
                return Taken(checked.incoming.source.id, ignored="own_action")
            await self._check_for_loop(checked)
        except Problem as problem:
            return problem
        (started,) = await self._intakes[checked.key].submit([checked.incoming])
        return _answer(started)

    def _checked(self, tenant: str, event: dict[str, Any]) -> _Checked:
        try:
            check_event(event)
            for name in ("id", "source", "type", "subject"):
                if len(event.get(name) or "") > LONGEST_NAME:
                    raise malformed(f"not a CloudEvent we take: {name} is over {LONGEST_NAME} characters")
            key, playbook = self._playbook_for(event["type"])
            check_state(playbook.state_of(event.get("data")))
        except TooLargeError:
            raise too_large(MAX_TRAVEL_BYTES) from None
        except (UndecidableError, PolicyError) as error:
            raise undecidable(str(error)) from None
        except ValueError as error:
            raise malformed(str(error)) from None
        source = SourceEvent(tenant, event["source"], event["id"])
        return _Checked(Incoming(1, event, source), key, playbook)

    def _check_rates(self, checked: _Checked) -> None:
        """The actor's first, so that one who sends too much does not use up what is left to the tenant."""
        tenant = checked.incoming.source.tenant
        if checked.actor is not None:
            _within(self._actors.take((tenant, checked.actor)), "ACTOR_RATE", "this actor's events")
        _within(self._tenants.take(tenant), "TENANT_RATE", "this tenant's events")

    async def _check_for_loop(self, checked: _Checked) -> None:
        """Where events are gathered, the subject's own workflow does this, and keeps what is too much."""
        source, subject = checked.incoming.source, checked.incoming.event.get("subject")
        if not subject or _gathering(checked.playbook, 1) is not None:
            return
        wait = self._subjects.take((source.tenant, source.source, subject))
        if wait:
            minute = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M")
            await self._note(checked, "subject_rate", subject, minute)
        _within(wait, "SUBJECT_RATE", "events about one subject, which looks like a loop")

    async def _note(self, checked: _Checked, reason: str, *coordinates: str) -> None:
        """A loop, for the history: who of us caused an event, or which subject has too many."""
        source = checked.incoming.source
        await self._store.record_events(
            [
                HistoryEvent(
                    event_id=event_id_of(source.tenant, "loop", source.source, reason, *coordinates),
                    at=datetime.now(UTC),
                    tenant=source.tenant,
                    kind="loop",
                    workflow_id="",
                    run_id="",
                    actor=checked.actor,
                    body={
                        "reason": reason,
                        "source": source.source,
                        "subject": checked.incoming.event.get("subject"),
                        "events": [source.id],
                    },
                )
            ]
        )


def _gathering(playbook: Playbook[Any], runs_a_minute: int) -> Gathering | None:
    together = playbook.coalescing
    if together is not None:
        return Gathering(together.quiet, together.longest, runs_a_minute)
    return Gathering(timedelta(0), timedelta(0), runs_a_minute) if playbook.ordered else None


def _answer(started: Started | RPCError) -> Outcome:
    if isinstance(started, RPCError):
        return unavailable("TEMPORAL_UNAVAILABLE", f"Temporal does not take it ({started.status.name})")
    return Taken(started.source.id, started.workflow_id, started.run_id)


def _within(wait: float, code: str, what: str) -> None:
    if wait:
        raise too_many(code, f"too many of {what}", wait)
