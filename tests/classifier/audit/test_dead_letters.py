"""Dead letters in the history: what lies there, found by what people look for, of one tenant alone."""

from __future__ import annotations

import itertools
from collections.abc import AsyncGenerator, Sequence
from datetime import timedelta
from typing import Any

import pytest

from classifier.audit.dead_letters import DeadLetter, DeadLetterQuery, DeadLetters, count_by_tenant
from classifier.audit.postgres import PostgresStore
from classifier.audit.records import EventKind, HistoryEvent, event_id_of
from classifier.values import JSON
from tests.classifier.audit.examples import NOW

KINDS: Sequence[EventKind] = ("dead_letter", "replay", "drop", "delivery", "stop", "review")
ENDS = {"replay", "drop", "delivery", "stop"}
EVERYTHING = DeadLetterQuery(tenant="acme")


@pytest.fixture
async def letters(database_url: str) -> AsyncGenerator[DeadLetters]:
    async with DeadLetters(database_url) as letters:
        yield letters


def happened(
    run: str, kind: EventKind, minutes: int = 0, *, tenant: str = "acme", **facts: JSON
) -> HistoryEvent:
    """Something that happened to this run so many minutes from now on."""
    body: dict[str, Any] = {
        "stage": "deliver",
        "code": "DELIVERY_REJECTED",
        "attempts": 2,
        "status": 404,
        "playbook": "tickets",
        "route": "technical␛",
        "source": "/shop",
        "event": f"{run}\0",
        "type": "ticket",
        **facts,
    }
    return HistoryEvent(
        event_id=event_id_of(tenant, kind, run, str(minutes)),
        at=NOW + timedelta(minutes=minutes),
        tenant=tenant,
        kind=kind,
        workflow_id=run,
        run_id="first",
        actor="classifier",
        body=body if kind == "dead_letter" else {},
    )


async def runs(letters: DeadLetters, **wanted: Any) -> list[str]:
    return [one.workflow_id for one in await letters.page(DeadLetterQuery(tenant="acme", **wanted), 1000)]


async def test_it_lies_there_until_it_is_replayed_dropped_delivered_or_stopped_and_is_listed_once(
    postgres_store: PostgresStore, letters: DeadLetters, database_url: str
) -> None:
    told = {
        " ".join(kinds): kinds for length in range(1, 4) for kinds in itertools.product(KINDS, repeat=length)
    }
    await postgres_store.record_events(
        [happened(name, kind, n) for name, kinds in told.items() for n, kind in enumerate(kinds)]
    )
    listed = {one.workflow_id: one for one in await letters.page(EVERYTHING, 1000)}
    for name, kinds in told.items():
        last = max((n for n, kind in enumerate(kinds) if kind == "dead_letter"), default=None)
        lies = last is not None and not ENDS & set(kinds[last:])
        assert (name in listed) == lies, name
        found = await letters.find("acme", name)
        assert found == listed.get(name)
        if lies and last is not None:
            assert listed[name].since == NOW + timedelta(minutes=last)
    assert await letters.count(EVERYTHING) == len(listed)
    assert await count_by_tenant(database_url) == {"acme": len(listed)}


async def test_it_is_read_as_it_was_written(postgres_store: PostgresStore, letters: DeadLetters) -> None:
    await postgres_store.record_events([happened("a", "dead_letter")])
    (one,) = await letters.page(EVERYTHING)
    assert one == DeadLetter(
        event_id=event_id_of("acme", "dead_letter", "a", "0"),
        tenant="acme",
        workflow_id="a",
        run_id="first",
        since=NOW,
        stage="deliver",
        code="DELIVERY_REJECTED",
        attempts=2,
        status=404,
        playbook="tickets",
        route="technical␛",
        decided_by="classifier",
        decision_id=None,
        source="/shop",
        event="a\0",
        type="ticket",
    )


async def test_every_filter_narrows_them_down(postgres_store: PostgresStore, letters: DeadLetters) -> None:
    await postgres_store.record_events(
        [
            happened("plain", "dead_letter", 1),
            happened("other playbook", "dead_letter", 2, playbook="bills␛"),
            happened("other stage", "dead_letter", 3, stage="decide"),
            happened("other code", "dead_letter", 4, code="TIMEOUT"),
        ]
    )
    assert await runs(letters, playbook="bills␛") == ["other playbook"]
    assert await runs(letters, stage="decide") == ["other stage"]
    assert await runs(letters, code="TIMEOUT") == ["other code"]
    assert await runs(letters, since=NOW + timedelta(minutes=3)) == ["other stage", "other code"]
    assert await runs(letters, until=NOW + timedelta(minutes=3)) == ["plain", "other playbook"]
    assert await runs(letters, stage="deliver", code="TIMEOUT", playbook="tickets") == ["other code"]


async def test_pages_are_walked_oldest_first_each_once_also_within_one_moment(
    postgres_store: PostgresStore, letters: DeadLetters
) -> None:
    await postgres_store.record_events([happened(f"r{n}", "dead_letter", n // 4) for n in range(20)])
    seen: list[DeadLetter] = []
    while page := await letters.page(EVERYTHING, 3, seen[-1].position if seen else None):
        seen += page
    assert [one.since for one in seen] == sorted(one.since for one in seen)
    assert sorted(one.workflow_id for one in seen) == sorted(f"r{n}" for n in range(20))


async def test_sec_o05_those_of_another_tenant_are_neither_seen_nor_counted_nor_answered_by_ours(
    postgres_store: PostgresStore, letters: DeadLetters, database_url: str
) -> None:
    await postgres_store.record_events(
        [
            happened("same", "dead_letter"),
            happened("same", "drop", 1, tenant="globex"),
            happened("theirs", "dead_letter", tenant="globex"),
        ]
    )
    assert await runs(letters) == ["same"]
    assert await letters.count(EVERYTHING) == 1
    assert await letters.find("acme", "theirs") is None
    assert await count_by_tenant(database_url) == {"acme": 1, "globex": 1}
