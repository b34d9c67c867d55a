"""The ways in for events: over HTTP to the service, or straight to the intake, for runs without a service."""

from __future__ import annotations

from typing import Any, Protocol

import httpx

from classifier.audit.postgres import PostgresStore
from classifier.audit.records import SourceEvent
from workflows.events import Incoming
from workflows.intake import Intake

TOKEN = "chaos-token-0123456789abcdef"
_TAKEN = 202
_TOO_MANY = 429
_FAULT = 500


class Door(Protocol):
    """Takes events."""

    async def take(self, event: dict[str, Any]) -> str | None:
        """The event's workflow; None where it has to be sent again."""
        ...

    async def aclose(self) -> None:
        """Nothing more comes."""
        ...


class HttpDoor:
    """`classifier serve`.

    Args:
        url: Its address.
    """

    def __init__(self, url: str) -> None:
        headers = {"authorization": f"Bearer {TOKEN}", "content-type": "application/cloudevents+json"}
        self._http = httpx.AsyncClient(base_url=url, headers=headers, timeout=20)

    async def take(self, event: dict[str, Any]) -> str | None:
        """Posts it."""
        try:
            response = await self._http.post("/events", json=event)
        except httpx.TransportError:
            return None
        if response.status_code == _TAKEN:
            return str(response.json()["workflow_id"])
        assert response.status_code >= _FAULT or response.status_code == _TOO_MANY, response.text
        return None

    async def aclose(self) -> None:
        """Closes its connections."""
        await self._http.aclose()


class IntakeDoor:
    """The intake in this process; it knows no faults.

    Args:
        intake: Starts a run for each event.
        store: Closed with the door.
        tenant: Whose events they are.
    """

    def __init__(self, intake: Intake, store: PostgresStore, tenant: str) -> None:
        self._intake = intake
        self._store = store
        self._tenant = tenant

    async def take(self, event: dict[str, Any]) -> str | None:
        """Starts its run."""
        source = SourceEvent(self._tenant, event["source"], event["id"])
        (started,) = await self._intake.accept([Incoming(1, event, source)])
        return started.workflow_id

    async def aclose(self) -> None:
        """Closes the store."""
        await self._store.aclose()
