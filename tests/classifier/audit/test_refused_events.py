"""An event that PostgreSQL refuses fails its own call, and no other."""

from __future__ import annotations

import asyncio
import random
import traceback

import pytest

from classifier.audit.history import History
from classifier.audit.postgres import PostgresStore
from classifier.audit.records import AcceptedEvent, HistoryEvent, SourceEvent, event_id_of
from classifier.errors import StoreError, StoreUnavailable
from tests.classifier.audit.examples import NOW

TOO_LONG = random.Random(1).randbytes(20_000).hex()
"""No index holds it: it is over a page even when compressed."""


def event(workflow: str, tenant: str = "acme") -> HistoryEvent:
    return HistoryEvent(
        event_id=event_id_of(tenant, "review", workflow),
        at=NOW,
        tenant=tenant,
        kind="review",
        workflow_id=workflow,
        run_id="run",
    )


async def test_of_many_at_once_only_the_one_that_is_refused_fails(
    postgres_store: PostgresStore, history: History
) -> None:
    names = [f"w{n}" for n in range(30)]
    results = await asyncio.gather(
        *(postgres_store.record_events([event(name)]) for name in names[:15]),
        postgres_store.record_events([event(TOO_LONG)]),
        *(postgres_store.record_events([event(name), event(name, "globex")]) for name in names[15:]),
        return_exceptions=True,
    )
    [refused] = [result for result in results if result is not None]
    assert isinstance(refused, StoreError)
    assert not isinstance(refused, StoreUnavailable)
    assert results[15] is refused
    assert TOO_LONG[:50] not in "".join(traceback.format_exception(refused))
    assert set(await history.settled("acme", names)) == set(names)
    assert set(await history.settled("globex", names)) == set(names[15:])


async def test_those_of_one_call_are_stored_beside_the_one_that_is_refused(
    postgres_store: PostgresStore, history: History
) -> None:
    with pytest.raises(StoreError, match=r"PostgreSQL refuses the values \(54000\)"):
        await postgres_store.record_events([event("w1"), event(TOO_LONG), event("w2")])
    assert set(await history.settled("acme", ["w1", "w2"])) == {"w1", "w2"}


async def test_an_acceptance_that_is_refused_leaves_the_others(postgres_store: PostgresStore) -> None:
    known, bad = SourceEvent("acme", "/mail", "1"), SourceEvent(TOO_LONG, "/mail", "2")
    with pytest.raises(StoreError):
        await postgres_store.accept([AcceptedEvent(each, "w", "r", NOW) for each in (bad, known)])
    assert set(await postgres_store.accepted([known])) == {known}
