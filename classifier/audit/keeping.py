"""What erasure, retention and holds share: one at a time, as `classifier_maintenance`, each on the record."""

from __future__ import annotations

import re
import uuid
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from datetime import datetime

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from classifier.audit.engine import create_engine, store_errors
from classifier.audit.escape import dumps
from classifier.audit.inserts import INSERT_EVENTS
from classifier.audit.partitions import act_as, lock
from classifier.audit.records import EventKind, HistoryEvent
from classifier.audit.rows import event_row
from classifier.errors import ConfigurationError
from classifier.values import JSON

_TIMEOUT = 600.0
_LOCK_TIMEOUT = sa.text("SET LOCAL lock_timeout = '5s'")


@asynccontextmanager
async def keeping(database_url: str, what: str) -> AsyncGenerator[AsyncConnection]:
    """One transaction, with no other of its kind beside it.

    So a hold is placed before or after an erasure, never during. Who writes decisions does not wait for it;
    and where it has to wait for them, it gives up after five seconds, since others would queue behind it.

    Raises:
        StoreUnavailable: The database cannot be reached, is not migrated, or was too busy.
    """
    engine = create_engine(database_url, role=None, timeout=_TIMEOUT, name="classifier keeping")
    try:
        async with store_errors(what), engine.begin() as connection:
            await lock(connection)
            await connection.execute(_LOCK_TIMEOUT)
            await act_as(connection, "classifier_maintenance")
            yield connection
    finally:
        await engine.dispose()


async def put_on_record(
    connection: AsyncConnection,
    kind: EventKind,
    *,
    tenant: str,
    at: datetime,
    by: str,
    body: Mapping[str, JSON],
) -> None:
    """An event of the history that belongs to no run."""
    event = HistoryEvent(
        event_id=uuid.uuid4(),
        at=at,
        tenant=tenant,
        kind=kind,
        workflow_id="",
        run_id="",
        actor=by,
        body=body,
    )
    await connection.execute(INSERT_EVENTS, {"rows": dumps([event_row(event)])})


def names(text: str, resource: str) -> bool:
    """Whether the id of a person stands in `text`, as a word of its own."""
    return re.search(rf"(?<!\w){re.escape(resource)}(?!\w)", text) is not None


def checked_name(by: str, resource: str | None = None) -> str:
    """Who does it.

    Raises:
        ConfigurationError: Nobody, or the very person whose id is not to stand in the record.
    """
    if not by.strip():
        raise ConfigurationError("say who does it: --by NAME")
    if resource is not None and names(by, resource):
        raise ConfigurationError(
            "--by holds the id of the person; the record must not, so name them otherwise"
        )
    return by.strip()
