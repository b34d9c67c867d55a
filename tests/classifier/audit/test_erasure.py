"""Erasing a person, and what a legal hold does to it."""

from __future__ import annotations

import asyncio
import json
import uuid
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import JSONB

from classifier.audit.engine import create_engine, set_tenant
from classifier.audit.erasure import Run, erase, look
from classifier.audit.history import History
from classifier.audit.holds import list_holds, place_hold, release_hold
from classifier.audit.inserts import INSERT_DECISIONS, parameters
from classifier.audit.partitions import ensure_partitions
from classifier.audit.postgres import PostgresStore
from classifier.audit.query import DecisionQuery
from classifier.audit.records import EventKind, HistoryEvent, event_id_of
from classifier.audit.rows import ERASED, rows_of, subject_of
from classifier.audit.tables import EVERY_TABLE
from classifier.decision import Decision, Ids
from classifier.errors import ConfigurationError
from tests.classifier.audit.examples import KEY, NOW, decision
from tests.classifier.audit.whole import ask, hits

PERSON = "user-77"
TEXT = "my grandmother's maiden name"
LONG_AGO = datetime(2001, 2, 3, tzinfo=UTC)
UNSTORABLE = 2**70


def about(name: str, *, person: str = PERSON, text: str = TEXT, **changes: Any) -> Decision:
    """A decision about a person, with their text in every place that content has."""
    content: dict[str, Any] = {
        "ids": Ids(resource=person, thread="t-1"),
        "state": {"text": text, "from": person},
        "original": f"{text}!",
        "request_context": {"resource_id": person, "note": text},
    }
    return decision(name, **(content | changes))


def reviewed(workflow: str, reason: str, *, tenant: str = "acme", kind: EventKind = "review") -> HistoryEvent:
    return HistoryEvent(
        event_id=event_id_of(tenant, kind, workflow),
        at=NOW,
        tenant=tenant,
        kind=kind,
        workflow_id=workflow,
        run_id="run",
        actor="ann",
        body={"route": "billing", "reason": reason},
    )


async def test_aud_o11_after_an_erasure_no_text_of_theirs_is_left_and_every_decision_counts(
    postgres_store: PostgresStore, history: History, database_url: str
) -> None:
    theirs = [about(f"w{number}") for number in range(12)]
    unstorable = about("bad", attempts=UNSTORABLE)
    early = about("early", decided_at=LONG_AGO)
    other = about("w-other", person="user-78", text="something else")
    await postgres_store.record([*theirs, unstorable, early, other])
    await postgres_store.record_events([reviewed("w3", f"she says {TEXT}"), reviewed("w-other", "clear")])
    assert await hits(database_url, TEXT) == {"decision_contents": 12, "history_events": 1, "quarantine": 2}

    erased = await erase(database_url, hash_key=KEY, tenant="acme", resource=PERSON, by="ada")

    assert await hits(database_url, TEXT) == {}
    assert await hits(database_url, PERSON) == {}
    assert (erased.decisions, erased.contents, erased.quarantined, erased.events) == (14, 12, 2, 1)
    assert Run("default", "w3", "run") in erased.runs
    page = await history.page(DecisionQuery(tenant="acme", thread="t-1"), 100)
    assert len(page.decisions) == 13
    kept = await history.get("acme", theirs[3].decision_id)
    assert kept == replace(theirs[3], state=ERASED, original=None, request_context={}, ids=Ids(thread="t-1"))
    assert await history.get("acme", other.decision_id) == other
    [clear] = await history.events("acme", "w-other")
    assert clear.body["reason"] == "clear"
    [record] = await history.events("acme", "")
    assert (record.kind, record.actor) == ("erasure", "ada")
    assert record.body == {
        "subject": subject_of(KEY, "acme", PERSON),
        "decisions": 14,
        "contents": 12,
        "quarantined": 2,
        "events": 1,
        "runs": {},
    }


async def test_every_column_that_can_hold_text_is_known_to_be_a_fact_or_erased() -> None:
    """Whoever adds a column decides which it is: what is erased, `classifier.audit.erasure` has to erase."""
    erased = {
        "decision_contents": {"resource_id", "state", "request_context", "original"},
        "history_events": {"content"},
        "quarantine": {"kept"},
        "legal_holds": {"reason"},
    }
    facts = {
        "decisions": "*",
        "decision_contents": {"tenant"},
        "decision_answers": "*",
        "history_events": {"tenant", "kind", "workflow_id", "run_id", "actor", "body"},
        "accepted_events": "*",
        "quarantine": {"tenant", "error"},
        "seal_leaves": "*",
        "seal_checkpoints": "*",
        "seal_stubs": "*",
        "erased_subjects": "*",
        "legal_holds": {"tenant", "subject", "placed_by", "released_by"},
    }
    unknown = {
        f"{table.name}.{column.name}"
        for table in EVERY_TABLE
        for column in table.columns
        if isinstance(column.type, sa.Text | JSONB)
        and facts.get(table.name) != "*"
        and column.name not in {*facts.get(table.name, ()), *erased.get(table.name, ())}
    }
    assert unknown == set()


async def test_a_tenant_keeps_what_another_erases(
    postgres_store: PostgresStore, history: History, database_url: str
) -> None:
    ours, theirs = about("w"), about("w", tenant="globex")
    await postgres_store.record([ours, theirs])
    await postgres_store.record_events([reviewed("w", TEXT), reviewed("w", TEXT, tenant="globex")])
    await erase(database_url, hash_key=KEY, tenant="globex", resource=PERSON, by="ada")
    assert await history.get("acme", ours.decision_id) == ours
    assert [event.body["reason"] for event in await history.events("acme", "w")] == [TEXT]
    assert await history.events("acme", "") == ()
    assert (await look(database_url, hash_key=KEY, tenant="globex", resource=PERSON)).contents == 0


async def test_looking_first_changes_nothing(postgres_store: PostgresStore, database_url: str) -> None:
    await postgres_store.record([about("w1"), about("w2")])
    before = await hits(database_url, "")
    found = await look(database_url, hash_key=KEY, tenant="acme", resource=PERSON)
    assert (found.decisions, found.contents, found.holds) == (2, 2, ())
    assert found.runs == (Run("default", "w1", "run"), Run("default", "w2", "run"))
    assert await hits(database_url, "") == before
    nobody = await look(database_url, hash_key=KEY, tenant="acme", resource="nobody")
    assert (nobody.decisions, nobody.contents, nobody.runs) == (0, 0, ())


async def test_what_was_erased_does_not_come_back_by_a_retry_or_late(
    postgres_store: PostgresStore, history: History, database_url: str
) -> None:
    stored, late, unstorable = about("stored"), about("late"), about("bad", attempts=UNSTORABLE)
    waiting = about("waiting", decided_at=LONG_AGO)
    await postgres_store.record([stored, waiting])
    await erase(database_url, hash_key=KEY, tenant="acme", resource=PERSON, by="ada")

    [again] = await postgres_store.record([stored])
    assert again.state == ERASED
    await postgres_store.record([late, unstorable])
    assert (await ensure_partitions(database_url)).moved == 1

    assert await hits(database_url, TEXT) == {}
    found = await postgres_store.find("acme", NOW, [late.decision_id, unstorable.decision_id])
    assert [one.state for one in found.values()] == [ERASED, ERASED]
    moved = await history.get("acme", waiting.decision_id)
    assert moved is not None
    assert moved.state == ERASED
    new = about("new", decided_at=datetime.now(UTC) + timedelta(seconds=1))
    await postgres_store.record([new])
    assert await history.get("acme", new.decision_id) == new


async def test_a_write_that_is_under_way_is_waited_for_and_erased(database_url: str) -> None:
    engine = create_engine(database_url, role="classifier_writer", timeout=30)
    waiting = "SELECT count(*) FROM pg_locks WHERE NOT granted"
    async with engine.connect() as connection:
        await set_tenant(connection, "acme")
        await connection.execute(INSERT_DECISIONS, parameters([rows_of(about("w"), KEY)]))
        erasing = asyncio.create_task(
            erase(database_url, hash_key=KEY, tenant="acme", resource=PERSON, by="ada")
        )
        async with asyncio.timeout(30):
            while not erasing.done() and not await ask(database_url, waiting):
                await asyncio.sleep(0.02)  # PostgreSQL tells of who waits only when asked
        assert not erasing.done()
        await connection.commit()
    assert (await erasing).contents == 1
    await engine.dispose()
    assert await hits(database_url, TEXT) == {}
    assert await ask(database_url, "SELECT count(*) FROM classifier.decisions") == 1


async def test_a_hash_key_that_was_replaced_hides_nothing(
    postgres_store: PostgresStore, database_url: str
) -> None:
    older = PostgresStore(database_url, hash_key=b"the key of last year")
    late = about("late")
    await older.record([about("old"), about("bad", attempts=UNSTORABLE)])
    await postgres_store.record([about("new")])
    erased = await erase(database_url, hash_key=KEY, tenant="acme", resource=PERSON, by="ada")
    await older.record([late])
    await older.aclose()
    assert (erased.decisions, erased.contents, erased.quarantined) == (3, 2, 1)
    assert await hits(database_url, TEXT) == {}


async def test_a_hold_on_a_person_or_their_tenant_refuses_their_erasure_until_it_is_released(
    postgres_store: PostgresStore, history: History, database_url: str
) -> None:
    one = about("w")
    await postgres_store.record([one])
    person = await place_hold(
        database_url, hash_key=KEY, tenant="acme", resource=PERSON, reason="case 12", by="lee"
    )
    tenant = await place_hold(database_url, hash_key=KEY, tenant="acme", reason="audit", by="lee")
    for hold in (person, tenant):
        with pytest.raises(ConfigurationError, match=f"under legal hold .*{hold.hold_id}"):
            await erase(database_url, hash_key=KEY, tenant="acme", resource=PERSON, by="ada")
        assert await history.get("acme", one.decision_id) == one
        released = await release_hold(database_url, hold.hold_id, tenant="acme", by="lee")
        assert released.released_at is not None
    assert await list_holds(database_url, "acme") == ()
    erased = await erase(database_url, hash_key=KEY, tenant="acme", resource=PERSON, by="ada")
    assert erased.contents == 1
    assert await hits(database_url, "case 12") == {}
    past = await list_holds(database_url, "acme", released=True)
    assert [hold.reason for hold in past] == ["", "audit"]


async def test_a_hold_on_somebody_else_or_elsewhere_refuses_nothing(
    postgres_store: PostgresStore, database_url: str
) -> None:
    await postgres_store.record([about("w")])
    await place_hold(database_url, hash_key=KEY, tenant="acme", resource="user-78", reason="case", by="lee")
    await place_hold(database_url, hash_key=KEY, tenant="globex", reason="case", by="lee")
    erased = await erase(database_url, hash_key=KEY, tenant="acme", resource=PERSON, by="ada")
    assert erased.contents == 1


async def test_holds_are_on_the_record_and_know_a_person_by_pseudonym_alone(
    history: History, database_url: str
) -> None:
    hold = await place_hold(
        database_url, hash_key=KEY, tenant="acme", resource=PERSON, reason="case 12", by="lee"
    )
    assert await list_holds(database_url, "acme") == (hold,)
    assert await list_holds(database_url, "globex", released=True) == ()
    assert await hits(database_url, PERSON) == {}
    await release_hold(database_url, hold.hold_id, tenant="acme", by="kim")
    events = await history.events("acme", "")
    assert [(event.kind, event.actor, event.body["what"]) for event in events] == [
        ("hold", "lee", "placed"),
        ("hold", "kim", "released"),
    ]
    assert events[0].body["reason"] == "case 12"


async def test_holds_and_erasures_say_what_is_missing(database_url: str) -> None:
    hold = await place_hold(database_url, hash_key=KEY, tenant="acme", reason="audit", by="lee")
    with pytest.raises(ConfigurationError, match="has no hold"):
        await release_hold(database_url, hold.hold_id, tenant="globex", by="lee")
    with pytest.raises(ConfigurationError, match="has no hold"):
        await release_hold(database_url, uuid.uuid4(), tenant="acme", by="lee")
    await release_hold(database_url, hold.hold_id, tenant="acme", by="lee")
    with pytest.raises(ConfigurationError, match="was released on"):
        await release_hold(database_url, hold.hold_id, tenant="acme", by="lee")
    with pytest.raises(ConfigurationError, match="by pseudonym"):
        await place_hold(
            database_url, hash_key=KEY, tenant="acme", resource=PERSON, reason=f"for {PERSON}", by="lee"
        )
    for by in ("  ", PERSON):
        with pytest.raises(ConfigurationError, match="--by"):
            await erase(database_url, hash_key=KEY, tenant="acme", resource=PERSON, by=by)


async def test_an_id_that_cannot_be_written_plainly_is_erased_too(
    postgres_store: PostgresStore, database_url: str
) -> None:
    for number, person in enumerate(('a"b\\c', "a\0b", "%_", "\ud800", "Zoë")):
        one = about(f"w{number}", person=person)
        bad = about(f"bad{number}", person=person, attempts=UNSTORABLE)
        await postgres_store.record([one, bad])
        await postgres_store.record([about(f"other{number}", person="zzz", text="kept")])
        erased = await erase(database_url, hash_key=KEY, tenant="acme", resource=person, by="ada")
        assert (erased.contents, erased.quarantined) == (1, 1), json.dumps(person)
    assert await hits(database_url, TEXT) == {}
    assert (await hits(database_url, "kept"))["decision_contents"] == 5


async def test_who_writes_decisions_cannot_mark_anybody_erased(database_url: str) -> None:
    with pytest.raises(Exception, match="permission denied"):
        await ask(
            database_url,
            "INSERT INTO classifier.erased_subjects VALUES ('acme', 's', now())",
            "classifier_writer",
        )
