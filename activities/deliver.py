"""The activities that hand events over and keep what people decided. Thin: unpack, call, record."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import NoReturn

import httpx
from temporalio import activity
from temporalio.exceptions import ApplicationError

from activities.messages import DELIVER, RECORD_REVIEW, Delivered, Delivery, ReviewRecord
from activities.outbox import append_once
from classifier.app import ResolvedApp
from classifier.audit.records import AcceptedEvent, HistoryEvent, SourceEvent, event_id_of
from classifier.audit.store import EventStore
from classifier.errors import ClassifierError, ConfigurationError
from classifier.models.http_errors import retry_after
from classifier.playbook import Destination, Outbox, Webhook
from classifier.temporal.failures import as_application_error
from classifier.values import JSON, canonical_json

DELIVERY_REJECTED = "DELIVERY_REJECTED"
DELIVERY_UNAVAILABLE = "DELIVERY_UNAVAILABLE"
_TRY_AGAIN = {408, 409, 425, 429}


class DeliveryActivities:
    """Delivers events and records deliveries and reviews.

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
        key = self._key(delivery)
        try:
            destination = self._app.playbooks[delivery.playbook].destination(delivery.route)
            if destination is None:
                raise ConfigurationError(
                    f"playbook {delivery.playbook!r} has no destination for route {delivery.route!r}"
                )
            await self._hand_over(destination, delivery, str(key))
            await self._record(delivery, key, _name_of(destination))
        except ClassifierError as error:
            raise as_application_error(error) from None
        return Delivered(_name_of(destination), str(key))

    @activity.defn(name=RECORD_REVIEW)
    async def record_review(self, review: ReviewRecord) -> None:
        """Keeps who decided what and when."""
        info = activity.info()
        workflow_id, run_id = info.workflow_id or "", info.workflow_run_id or ""
        event = HistoryEvent(
            event_id=event_id_of(review.tenant, "review", workflow_id, run_id, info.activity_id),
            at=datetime.fromisoformat(review.at),
            tenant=review.tenant,
            kind="review",
            workflow_id=workflow_id,
            run_id=run_id,
            decision_id=uuid.UUID(review.decision_id),
            actor=review.by,
            body={"route": review.route, "suggested": review.suggested, "reason": review.reason},
        )
        try:
            await self._store.record_events([event])
        except ClassifierError as error:
            raise as_application_error(error) from None

    def _key(self, delivery: Delivery) -> uuid.UUID:
        info = activity.info()
        coordinates = (info.workflow_id or "", info.workflow_run_id or "", info.activity_id)
        return event_id_of(delivery.tenant, "delivery", *coordinates)

    async def _hand_over(self, destination: Destination, delivery: Delivery, key: str) -> None:
        body: dict[str, JSON] = {
            "route": delivery.route,
            "decided_by": delivery.decided_by,
            "decision_id": delivery.decision_id,
            "event": delivery.event,
        }
        match destination:
            case Outbox(path=path):
                again = activity.info().attempt > 1
                await asyncio.to_thread(append_once, self._home / path, key, body, look_first=again)
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

    async def _record(self, delivery: Delivery, key: uuid.UUID, destination: str) -> None:
        info = activity.info()
        workflow_id, run_id = info.workflow_id or "", info.workflow_run_id or ""
        event = HistoryEvent(
            event_id=key,
            at=datetime.fromisoformat(delivery.at),
            tenant=delivery.tenant,
            kind="delivery",
            workflow_id=workflow_id,
            run_id=run_id,
            decision_id=uuid.UUID(delivery.decision_id),
            actor=delivery.decided_by,
            body={"route": delivery.route, "destination": destination},
        )
        source = SourceEvent(delivery.tenant, delivery.event["source"], delivery.event["id"])
        await self._store.record_events([event])
        await self._store.accept([AcceptedEvent(source, workflow_id, run_id, datetime.now(UTC))])


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
