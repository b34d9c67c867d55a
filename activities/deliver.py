"""The activities that hand events over, ask for people, and keep what they decided. Thin."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Coroutine, Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import httpx
from temporalio import activity
from temporalio.exceptions import ApplicationError

from activities.handing import counted, rejected, unavailable
from activities.happened import happened, keep
from activities.messages import (
    DELIVER,
    RECORD_REVIEW,
    REQUEST_REVIEW,
    Delivered,
    Delivery,
    ReviewRecord,
    ReviewRequest,
)
from activities.outbox import append_once, seen_by_first
from activities.starting import start_once
from classifier.app import ResolvedApp
from classifier.audit.records import AcceptedEvent, EventKind, HistoryEvent, SourceEvent, event_id_of
from classifier.audit.store import EventStore
from classifier.errors import ClassifierError, ConfigurationError
from classifier.models.http_errors import retry_after
from classifier.playbook import Destination, Outbox, StartWorkflow, Webhook
from classifier.temporal.failures import as_application_error
from classifier.temporal.heartbeat import earlier_progress, heartbeating
from classifier.values import JSON, canonical_json
from classifier.webhook_signing import secrets_in, signatures

CAUSED_BY = "causedby"
"""What a receiver puts on events that a delivery causes, so that we know our own; see `service.reception`."""

_TRY_AGAIN = {408, 409, 425, 429}
"""409 is what a receiver says that is still at work on an earlier attempt with this key."""
_PROMPT = timedelta(seconds=5)
"""Below the silence that is taken for death, so that the next attempt cannot have begun."""
_FOR_THE_BODY = 1.0
"""Seconds."""
_SHORT_BODY = 65_536
"""Bytes."""


class DeliveryActivities:
    """Delivers events, and records deliveries, requests for reviews, and reviews.

    Args:
        app: Where playbooks and their destinations are.
        store: Where deliveries and reviews are recorded.
        home: The folder that relative outbox paths are under.
        client: Posts to webhooks; the caller closes it.
        environ: Where webhook tokens are.
    """

    def __init__(
        self,
        app: ResolvedApp,
        store: EventStore,
        *,
        home: Path,
        client: httpx.AsyncClient,
        environ: Mapping[str, str],
    ) -> None:
        self._app = app
        self._store = store
        self._home = home
        self._client = client
        self._environ = environ

    @activity.defn(name=DELIVER)
    async def deliver(self, delivery: Delivery) -> Delivered:
        """Hands the event over, then records that it was; the receiver sees the same key on every attempt."""
        try:
            destination = self._app.playbooks[delivery.playbook].destination(delivery.route)
            if destination is None:
                raise ConfigurationError(
                    f"playbook {delivery.playbook!r} has no destination for route {delivery.route!r}"
                )
            name = _name_of(destination)
            event = _event_of(delivery, name)
            async with heartbeating(earlier_progress()):
                await _unstopped(self._delivered(destination, delivery, event))
        except ClassifierError as error:
            raise counted(as_application_error(error)) from None
        return Delivered(name, str(event.event_id))

    @activity.defn(name=REQUEST_REVIEW)
    async def request_review(self, request: ReviewRequest) -> None:
        """Keeps that an event waits for a person, and why, where its decision does not say so."""
        facts: dict[str, JSON] = {"route": request.route, "reasons": list(request.reasons)}
        await keep(self._store, _after("review_requested", request, None, facts))

    @activity.defn(name=RECORD_REVIEW)
    async def record_review(self, review: ReviewRecord) -> None:
        """Keeps who decided what and when."""
        facts: dict[str, JSON] = {
            "route": review.route,
            "suggested": review.suggested,
            "reason": review.reason,
        }
        await keep(self._store, _after("review", review, review.by, facts))

    async def _delivered(self, destination: Destination, delivery: Delivery, event: HistoryEvent) -> None:
        await self._hand_over(destination, delivery, str(event.event_id))
        await self._record(delivery, event)

    async def _hand_over(self, destination: Destination, delivery: Delivery, key: str) -> None:
        body: dict[str, JSON] = {
            "route": delivery.route,
            "decided_by": delivery.decided_by,
            "decision_id": delivery.decision_id,
            "event": delivery.event,
        }
        match destination:
            case Outbox(path=path):
                file = self._home / path
                seen = seen_by_first(file, lambda: _is_first_and_prompt(delivery))
                await _appended(file, key, body, seen)
            case Webhook():
                await self._post(destination, key, {**body, CAUSED_BY: key})
            case StartWorkflow():
                await start_once(activity.client(), destination, key, {**body, CAUSED_BY: key})

    async def _post(self, webhook: Webhook, key: str, body: dict[str, JSON]) -> None:
        content = canonical_json(body)
        headers = {
            "Idempotency-Key": key,
            "Content-Type": "application/json",
            **self._authorization(webhook),
            **self._signature(webhook, key, content),
        }
        request = self._client.build_request(
            "POST", webhook.url, content=content, headers=headers, timeout=webhook.timeout
        )
        try:
            async with asyncio.timeout(webhook.timeout):
                response = await self._client.send(request, stream=True)
        except (httpx.TransportError, TimeoutError) as error:
            raise unavailable(f"the webhook did not answer ({type(error).__name__})") from None
        async with contextlib.aclosing(response):
            await _emptied(response)
        if not response.is_success:
            raise _refused(response)

    def _signature(self, webhook: Webhook, key: str, content: bytes) -> dict[str, str]:
        if webhook.secret_variable is None:
            return {}
        secrets = secrets_in(webhook.secret_variable, self._environ.get(webhook.secret_variable))
        return signatures(secrets, key, int(datetime.now(UTC).timestamp()), content)

    def _authorization(self, webhook: Webhook) -> dict[str, str]:
        if webhook.token_variable is None:
            return {}
        token = self._environ.get(webhook.token_variable)
        if not token:
            raise ConfigurationError(f"{webhook.token_variable} is not set; a webhook needs it as its token")
        return {"Authorization": f"Bearer {token}"}

    async def _record(self, delivery: Delivery, event: HistoryEvent) -> None:
        source = SourceEvent(delivery.tenant, delivery.event["source"], delivery.event["id"])
        await self._store.record_events([event])
        await self._store.accept([AcceptedEvent(source, event.workflow_id, event.run_id, datetime.now(UTC))])


def _after(
    kind: EventKind,
    about: Delivery | ReviewRequest | ReviewRecord,
    actor: str | None,
    facts: Mapping[str, JSON],
) -> HistoryEvent:
    """What came after a decision."""
    return happened(kind, facts, tenant=about.tenant, at=about.at, actor=actor, decision_id=about.decision_id)


def _event_of(delivery: Delivery, destination: str) -> HistoryEvent:
    """What is on record once it went out; its id is the key, the same when the delivery is replayed."""
    facts: dict[str, JSON] = {"route": delivery.route, "destination": destination}
    event = _after("delivery", delivery, delivery.decided_by, facts)
    if delivery.number is None:
        return event
    place = (event.workflow_id, event.run_id, f"delivery-{delivery.number}")
    return replace(event, event_id=event_id_of(delivery.tenant, "delivery", *place))


async def _unstopped(work: Coroutine[None, None, None]) -> None:
    """Goes on although the run is stopped, so that what the receiver has is on record.

    Only a worker that leaves, or an attempt that another one follows, cuts it off.
    """
    task = asyncio.ensure_future(work)
    while True:
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            details = activity.cancellation_details()
            if task.done() or details is None or not (details.cancel_requested or details.not_found):
                task.cancel()
                raise


async def _emptied(response: httpx.Response) -> None:
    """Reads a short body, so that its connection serves again; the status alone says what became of it."""
    length = 0
    with contextlib.suppress(httpx.TransportError, TimeoutError):
        async with asyncio.timeout(_FOR_THE_BODY):
            async for chunk in response.aiter_raw():
                length += len(chunk)
                if length > _SHORT_BODY:
                    return


async def _appended(file: Path, key: str, body: dict[str, JSON], seen: int) -> None:
    try:
        await asyncio.to_thread(append_once, file, key, body, seen=seen)
    except OSError as error:
        raise unavailable(f"the outbox cannot be written ({type(error).__name__})") from None


def _is_first_and_prompt(delivery: Delivery) -> bool:
    """Whether no other attempt can have come before: a process that stood still may be overtaken."""
    info = activity.info()
    return not delivery.replayed and info.attempt == 1 and datetime.now(UTC) - info.started_time < _PROMPT


def _name_of(destination: Destination) -> str:
    match destination:
        case Outbox(path=path):
            return f"outbox {path}"
        case Webhook(url=url):
            return f"webhook {httpx.URL(url).host}"
        case StartWorkflow(type=name, task_queue=queue):
            return f"workflow {name} on {queue}"


def _refused(response: httpx.Response) -> ApplicationError:
    status = response.status_code
    message = f"the webhook answered {status}"
    if status in _TRY_AGAIN or status >= httpx.codes.INTERNAL_SERVER_ERROR:
        return unavailable(message, status=status, wait=retry_after(response.headers, datetime.now(UTC)))
    return rejected(message, status=status)
