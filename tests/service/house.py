"""The service as it runs: a real port, a real Temporal, a real PostgreSQL, a worker, and people who send."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import hmac
import json
import time
from collections.abc import AsyncGenerator, Callable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx
from standardwebhooks import Webhook
from temporalio.client import Client

from classifier.audit.history import History
from classifier.audit.postgres import PostgresStore
from classifier.audit.records import HistoryEvent
from embedded.stack import Addresses
from service.app import application
from service.health import Health
from service.reception import Reception
from service.reviews import Reviews
from service.server import serving
from service.settings import Caps, ServiceSettings
from service.waiting import Waiting
from tests.apps.desk import app
from worker import Service, Settings, working

KEY = b"a key for tests, thirty-two bytes"
TOKEN = "acme-token-0123456789"
OTHER_TOKEN = "other-token-0123456789"
KIM, ROBIN, STRANGER = "kim-reviews-0123456789", "robin-reviews-0123456789", "lee-reviews-0123456789"
SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
OLD_SECRET = "whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD"
GITHUB_SECRET = "github-secret-0123456789"
ENVIRON = {
    "CLASSIFIER_TOKENS": f"acme:{TOKEN} other:{OTHER_TOKEN}",
    "CLASSIFIER_WEBHOOKS": "tracker=standard:acme:TRACKER_SECRET, github=github:acme:GITHUB_SECRET",
    "CLASSIFIER_REVIEWERS": f"acme:Kim%20Doe:{KIM} acme:robin:{ROBIN},other:lee:{STRANGER}",
    "TRACKER_SECRET": f"{SECRET} {OLD_SECRET}",
    "GITHUB_SECRET": GITHUB_SECRET,
}
STRUCTURED = "application/cloudevents+json"
PATIENCE = 60.0


@dataclass
class House:
    """A running service.

    Attributes:
        source: Unique to the test.
    """

    url: str
    source: str
    home: Path
    client: Client
    http: httpx.AsyncClient
    history: History

    def event(self, number: str, text: Any = "my card", **more: Any) -> dict[str, Any]:
        """A CloudEvent; None takes an attribute away."""
        whole = {
            "specversion": "1.0",
            "id": number,
            "source": self.source,
            "type": "ticket",
            "data": {"text": text},
            **more,
        }
        return {name: value for name, value in whole.items() if value is not None}

    async def post(self, event: object, token: str = TOKEN, **headers: str) -> httpx.Response:
        """Posts it in structured mode."""
        return await self.send("/events", json.dumps(event).encode(), bearer(token) | headers)

    async def send(self, path: str, body: bytes, headers: Mapping[str, str]) -> httpx.Response:
        """Posts bytes."""
        given = {"content-type": STRUCTURED, **{k.replace("_", "-"): v for k, v in headers.items()}}
        return await self.http.post(self.url + path, content=body, headers=given)

    def delivered(self) -> list[dict[str, Any]]:
        """What went out."""
        path = self.home / "outbox.jsonl"
        return [json.loads(line)["event"] for line in path.read_text().splitlines()] if path.exists() else []

    async def until_delivered(self, count: int) -> list[dict[str, Any]]:
        """Returns when so many went out."""
        await until(lambda: len(self.delivered()) >= count)
        return self.delivered()

    async def loops(self) -> tuple[HistoryEvent, ...]:
        """The alerts."""
        return tuple(each for each in await self.history.events("acme", "") if each.kind == "loop")


@contextlib.asynccontextmanager
async def house(
    client: Client, queue: str, home: Path, database_url: str, *, caps: Caps | None = None, works: bool = True
) -> AsyncGenerator[House]:
    """A service with a worker; both stop with the block."""
    environ = {**ENVIRON, "HOOK_TOKEN": "sk-test-123"}
    settings = Settings(home=home, task_queue=queue, environ=environ)
    senders = ServiceSettings.from_environ(environ)
    senders = replace(senders, caps=caps or Caps())
    store = PostgresStore(database_url, hash_key=KEY, timeout=5)
    service = Service(settings, Addresses(), True, database_url, store, client, None)
    health = Health(client, store, task_queue=queue, backlog=senders.caps.backlog)
    reception = Reception(dict(app.playbooks), client, store, task_queue=queue, caps=senders.caps)
    async with contextlib.AsyncExitStack() as exits:
        exits.push_async_callback(store.aclose)
        if works:
            await exits.enter_async_context(working(service, app))
        http = await exits.enter_async_context(httpx.AsyncClient(timeout=PATIENCE))
        history = await exits.enter_async_context(History(database_url))
        reviews = Reviews(senders.reviewers, dict(app.playbooks), client, history)
        asgi = application(senders, reception, health, Waiting(client), reviews)
        url = await exits.enter_async_context(serving(asgi, host="127.0.0.1", port=0))
        yield House(url, queue, home, client, http, history)


def bearer(token: str = TOKEN) -> dict[str, str]:
    """Who sends."""
    return {"authorization": f"Bearer {token}"}


def standard(body: bytes, number: str = "msg_1", *, ago: float = 0, secret: str = SECRET) -> dict[str, str]:
    """The headers of a Standard Webhooks delivery."""
    moment = int(time.time() - ago)
    signature = Webhook(secret).sign(number, datetime.fromtimestamp(moment, UTC), body.decode())
    return {
        "content-type": "application/json",
        "webhook-id": number,
        "webhook-timestamp": str(moment),
        "webhook-signature": signature,
    }


def github(body: bytes, delivery: str, event: str = "issues", secret: str = GITHUB_SECRET) -> dict[str, str]:
    """The headers of a GitHub delivery."""
    signature = hmac.new(secret.encode(), body, hashlib.sha256).hexdigest()
    return {
        "content-type": "application/json",
        "user-agent": "GitHub-Hookshot/044aadd",
        "x-github-delivery": delivery,
        "x-github-event": event,
        "x-github-hook-id": "292430182",
        "x-hub-signature-256": f"sha256={signature}",
    }


async def until(true: Callable[[], bool]) -> None:
    """Returns as soon as it is so."""
    async with asyncio.timeout(PATIENCE):
        while not true():
            await asyncio.sleep(0.02)
