"""The activities that hand events over, ask for people, and keep what they decided. Thin."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import NoReturn

import httpx
from temporalio import activity
from temporalio.exceptions import ApplicationError

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
from activities.outbox import append_once, size_of
from classifier.app import ResolvedApp
from classifier.audit.records import AcceptedEvent, EventKind, HistoryEvent, SourceEvent
from classifier.audit.store import EventStore
from classifier.errors import ClassifierError, ConfigurationError
from classifier.models.http_errors import retry_after
from classifier.playbook import Destination, Outbox, Webhook
from classifier.temporal.failures import as_application_error
from classifier.values import JSON, canonical_json

DELIVERY_REJECTED = "DELIVERY_REJECTED"
DELIVERY_UNAVAILABLE = "DELIVERY_UNAVAILABLE"
_TRY_AGAIN = {408, 409, 425, 429}
_PROMPT = timedelta(seconds=5)
"""Far below an attempt's time limit, so that the next attempt cannot have begun."""


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
            facts: dict[str, JSON] = {"route": delivery.route, "destination": name}
            event = _after("delivery", delivery, delivery.decided_by, facts)
            await self._hand_over(destination, delivery, str(event.event_id))
            await self._record(delivery, event)
        except ClassifierError as error:
            raise as_application_error(error) from None
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
                seen = size_of(file) if _is_first_and_prompt() else 0
                await asyncio.to_thread(append_once, file, key, body, seen=seen)
            case Webhook():
                await self._post(destination, key, body)

    async def _post(self, webhook: Webhook, key: str, body: dict[str, JSON]) -> None:
        headers = {"Idempotency-Key": key, "Content-Type": "application/json", **self._authorization(webhook)}
        try:
            response = await self._client.post(
                webhook.url, content=canonical_json(body), headers=headers, timeout=webhook.timeout
            )
        except httpx.TransportError as error:
            message = f"the webhook did not answer ({type(error).__name__})"
            raise ApplicationError(message, type=DELIVERY_UNAVAILABLE) from None
        if not response.is_success:
            _refused(response)

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


def _is_first_and_prompt() -> bool:
    """Whether no other attempt can have come before: a process that stood still may be overtaken."""
    info = activity.info()
    return info.attempt == 1 and datetime.now(UTC) - info.started_time < _PROMPT


def _name_of(destination: Destination) -> str:
    match destination:
        case Outbox(path=path):
            return f"outbox {path}"
        case Webhook(url=url):
            return f"webhook {httpx.URL(url).host}"


def _refused(response: httpx.Response) -> NoReturn:
    status = response.status_code
    if status in _TRY_AGAIN or status >= httpx.codes.INTERNAL_SERVER_ERROR:
        wait = retry_after(response.headers, datetime.now(UTC))
        delay = None if wait is None else timedelta(seconds=min(wait, 300.0))
        raise ApplicationError(
            f"the webhook answered {status}", type=DELIVERY_UNAVAILABLE, next_retry_delay=delay
        )
    raise ApplicationError(f"the webhook answered {status}", type=DELIVERY_REJECTED, non_retryable=True)
