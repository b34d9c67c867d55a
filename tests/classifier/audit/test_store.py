"""What every audit store does: one suite over the one in memory and the one in PostgreSQL."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import datetime, timedelta, timezone

import pytest

from classifier.audit.records import AcceptedEvent, HistoryEvent, SourceEvent, event_id_of
from classifier.audit.store import AuditStore
from classifier.errors import DecisionMismatch
from tests.classifier.audit.examples import NOW, decision


async def test_what_was_recorded_is_found(store: AuditStore) -> None:
    first, second = decision("w1"), decision("w2")
    assert await store.record([first, second]) == [first, second]
    found = await store.find("acme", NOW, [first.decision_id, second.decision_id, decision("w3").decision_id])
    assert found == {first.decision_id: first, second.decision_id: second}


async def test_nothing_to_record_is_no_error(store: AuditStore) -> None:
    assert list(await store.record([])) == []
    assert await store.find("acme", NOW, []) == {}
    await store.record_events([])
    await store.accept([])
    assert await store.accepted([]) == {}


async def test_aud_o04_the_first_that_was_recorded_is_given_back(store: AuditStore) -> None:
    first = decision()
    await store.record([first])
    again = replace(first, outcome="aborted", duration_ms=99.0)
    assert await store.record([again]) == [first]


async def test_aud_o04_two_at_once_with_one_id_agree(store: AuditStore) -> None:
    one = decision()
    other = replace(one, duration_ms=99.0)
    [first], [second] = await asyncio.gather(store.record([one]), store.record([other]))
    assert first == second


async def test_one_id_twice_in_a_call_is_one_decision(store: AuditStore) -> None:
    one = decision()
    assert await store.record([one, replace(one, duration_ms=99.0)]) == [one, one]


@pytest.mark.parametrize("change", [{"phase": "input"}, {"processor_id": "guard"}, {"state": "other"}])
async def test_an_id_of_another_processor_phase_or_state_is_refused(
    store: AuditStore, change: dict[str, str]
) -> None:
    first = decision()
    await store.record([first])
    with pytest.raises(DecisionMismatch) as caught:
        await store.record([replace(first, **change)])  # type: ignore[arg-type] # keys are fields of texts
    assert "my card" not in str(caught.value)


async def test_several_tenants_go_in_together_and_come_out_apart(store: AuditStore) -> None:
    ours, theirs = decision(tenant="acme"), decision(tenant="globex")
    assert await store.record([ours, theirs]) == [ours, theirs]
    ids = [ours.decision_id, theirs.decision_id]
    assert list(await store.find("acme", NOW, ids)) == [ours.decision_id]
    assert list(await store.find("globex", NOW, ids)) == [theirs.decision_id]


async def test_aud_o03_the_zone_of_a_time_does_not_matter(store: AuditStore) -> None:
    one = decision()
    await store.record([one])
    india = NOW.astimezone(timezone(timedelta(hours=5, minutes=30)))
    naive = NOW.replace(tzinfo=None)
    assert await store.find("acme", india, [one.decision_id]) == {one.decision_id: one}
    assert await store.find("acme", naive, [one.decision_id]) == {one.decision_id: one}


async def test_the_first_run_of_a_source_event_stays(store: AuditStore) -> None:
    event, unknown = SourceEvent("acme", "/mail", "1"), SourceEvent("globex", "/mail", "1")
    first = AcceptedEvent(event, "w1", "r1", NOW)
    await store.accept([first])
    await store.accept([AcceptedEvent(event, "w2", "r2", NOW)])
    assert await store.accepted([event, unknown]) == {event: first}


@pytest.mark.parametrize("id_", ["x" * 100_000, "a\0b", "\ud800", "ü" * 400])
async def test_any_text_identifies_a_source_event(store: AuditStore, id_: str) -> None:
    event = AcceptedEvent(SourceEvent("acme", "/mail", id_), "w1", "r1", NOW)
    other = SourceEvent("acme", "/mail", id_ + "y")
    await store.accept([event])
    assert await store.accepted([event.event, other]) == {event.event: event}


async def test_an_event_recorded_twice_is_no_error(store: AuditStore) -> None:
    event = HistoryEvent(
        event_id=event_id_of("acme", "delivery", "w1"),
        at=datetime.now(NOW.tzinfo),
        tenant="acme",
        kind="delivery",
        workflow_id="w1",
        run_id="r1",
    )
    await store.record_events([event, event])
    await store.record_events([event])
