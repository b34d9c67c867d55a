"""Retention: which months go, what a hold keeps, what the seal says afterwards, and contents with an age."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
import sqlalchemy as sa

from classifier.audit.engine import create_engine
from classifier.audit.erasure import erase
from classifier.audit.history import History
from classifier.audit.holds import place_hold, release_hold
from classifier.audit.partitions import Month, ensure_partitions
from classifier.audit.postgres import PostgresStore
from classifier.audit.query import DecisionQuery
from classifier.audit.retention import drop_months, empty_contents
from classifier.audit.rows import ERASED
from classifier.audit.schema import downgrade, upgrade
from classifier.audit.sealing import seal
from classifier.audit.verifying import verify
from classifier.decision import Decision, Ids
from classifier.errors import ConfigurationError, StoreError
from tests.classifier.audit.examples import KEY, NOW, decision
from tests.classifier.audit.sealed import PUBLIC, SEAL, final
from tests.classifier.audit.test_erasure import PERSON, TEXT, UNSTORABLE, about, reviewed
from tests.classifier.audit.whole import ask, everything, hits
from tests.postgres import EMPTY, PostgresServer

JANUARY = datetime(2024, 1, 31, 23, 59, 59, 999999, tzinfo=UTC)
FEBRUARY = datetime(2024, 2, 1, tzinfo=UTC)
MARCH = datetime(2024, 3, 1, tzinfo=UTC)


async def old(store: PostgresStore, url: str, *made: Decision) -> None:
    """Stores decisions of months that have no partitions yet."""
    await store.record(made)
    await ensure_partitions(url)


async def sealed(url: str) -> None:
    await final(url)
    await seal(url, SEAL, keys=PUBLIC, hash_key=KEY)


async def breaches(url: str) -> list[str]:
    return [
        f"{result.tenant}: {breach.fault}"
        async for result in verify(url, PUBLIC, hash_key=KEY)
        for breach in result.breaches
    ]


async def partitions(url: str) -> set[str]:
    found = await everything(url)
    assert found
    listed = "SELECT string_agg(relname, ' ') FROM pg_class WHERE relispartition AND relkind = 'r'"
    return set((await ask(url, listed)).split())


async def test_exactly_the_months_that_ended_before_are_dropped(
    postgres_store: PostgresStore, history: History, database_url: str
) -> None:
    first, last, kept = (
        decision(name, decided_at=at) for name, at in (("a", FEBRUARY), ("b", JANUARY), ("c", MARCH))
    )
    theirs = decision("a", tenant="globex", decided_at=FEBRUARY)
    await old(postgres_store, database_url, first, last, kept, theirs, decision("now"))

    almost = await drop_months(database_url, before=MARCH - timedelta(microseconds=1), by="ada")
    assert almost.months == ("2024_01",)
    dropped = await drop_months(database_url, before=MARCH, by="ada")

    assert (dropped.months, dropped.decisions) == (("2024_02",), {"acme": 1, "globex": 1})
    assert [
        one.coordinates.workflow_id for one in (await history.page(DecisionQuery(tenant="acme"))).decisions
    ] == [
        "now",
        "c",
    ]
    names = await partitions(database_url)
    for table in ("decisions", "decision_contents", "decision_answers"):
        assert f"{table}_2024_03" in names
        assert f"{table}_{Month.of(NOW).suffix}" in names
        assert not {f"{table}_2024_01", f"{table}_2024_02"} & names
    [event] = await history.events("globex", "")
    assert (event.kind, event.actor) == ("retention", "ada")
    assert event.body == {"what": "months", "months": ["2024_02"], "decisions": 1}


async def test_the_last_month_that_a_calendar_knows_holds_nothing_up(
    postgres_store: PostgresStore, database_url: str
) -> None:
    end = datetime(9999, 12, 31, tzinfo=UTC)
    await old(postgres_store, database_url, decision("a", decided_at=JANUARY), decision("z", decided_at=end))
    assert (await drop_months(database_url, before=MARCH, by="ada")).months == ("2024_01",)


async def test_a_dry_run_says_it_and_drops_nothing(postgres_store: PostgresStore, database_url: str) -> None:
    await old(postgres_store, database_url, about("a", decided_at=JANUARY))
    before = await everything(database_url)
    dropped = await drop_months(database_url, before=MARCH, by="ada", dry_run=True)
    assert (dropped.months, dropped.decisions) == (("2024_01",), {"acme": 1})
    emptied = await empty_contents(database_url, tenant="acme", before=MARCH, by="ada", dry_run=True)
    assert (emptied.contents, emptied.events) == (1, 0)
    assert await everything(database_url) == before


async def test_a_month_with_a_row_under_hold_stays_until_the_hold_is_released(
    postgres_store: PostgresStore, database_url: str
) -> None:
    await old(
        postgres_store,
        database_url,
        about("a", decided_at=JANUARY),
        about("b", decided_at=FEBRUARY, person="user-78"),
    )
    person = await place_hold(
        database_url, hash_key=KEY, tenant="acme", resource=PERSON, reason="case", by="lee"
    )
    await place_hold(database_url, hash_key=KEY, tenant="globex", reason="no rows of theirs", by="lee")
    dropped = await drop_months(database_url, before=MARCH, by="ada")
    assert (dropped.months, dropped.held) == (("2024_02",), {"2024_01": (person.hold_id,)})
    await release_hold(database_url, person.hold_id, tenant="acme", by="lee")
    assert (await drop_months(database_url, before=MARCH, by="ada")).months == ("2024_01",)


async def test_what_waits_in_quarantine_for_a_month_that_would_go_goes_too(
    postgres_store: PostgresStore, database_url: str
) -> None:
    await postgres_store.record([about("late", decided_at=JANUARY), about("bad", attempts=UNSTORABLE)])
    await postgres_store.record([about("theirs", tenant="globex", decided_at=JANUARY)])
    await place_hold(database_url, hash_key=KEY, tenant="globex", reason="audit", by="lee")
    dropped = await drop_months(database_url, before=MARCH, by="ada")
    assert (dropped.months, dropped.decisions) == ((), {"acme": 1})
    assert await hits(database_url, "late") == {}
    assert await ask(database_url, "SELECT count(*) FROM classifier.quarantine") == 2


async def test_after_retention_with_a_key_verify_passes_and_without_one_it_names_the_gap(
    postgres_store: PostgresStore, database_url: str
) -> None:
    await old(
        postgres_store,
        database_url,
        decision("a", decided_at=JANUARY),
        decision("a", tenant="globex", decided_at=JANUARY),
        decision("b", decided_at=FEBRUARY),
        decision("now"),
    )
    await sealed(database_url)
    dropped = await drop_months(database_url, before=FEBRUARY, by="ada", key=SEAL)
    assert (dropped.months, dropped.stubs) == (("2024_01",), 2)
    await sealed(database_url)
    assert await breaches(database_url) == []
    assert (await drop_months(database_url, before=MARCH, by="ada")).stubs == 0
    assert await breaches(database_url) == ["acme: removed"]


async def test_with_a_key_nothing_that_is_not_sealed_is_dropped(
    postgres_store: PostgresStore, database_url: str
) -> None:
    await old(postgres_store, database_url, decision("a", decided_at=JANUARY))
    with pytest.raises(StoreError, match="not sealed yet"):
        await drop_months(database_url, before=MARCH, by="ada", key=SEAL)
    assert "decisions_2024_01" in await partitions(database_url)


async def test_the_seal_holds_after_an_erasure_and_after_contents_were_emptied(
    postgres_store: PostgresStore, database_url: str
) -> None:
    await postgres_store.record([about("a"), about("b", person="user-78")])
    await postgres_store.record_events([reviewed("a", TEXT), reviewed("b", TEXT)])
    await sealed(database_url)
    await erase(database_url, hash_key=KEY, tenant="acme", resource=PERSON, by="ada")
    assert await breaches(database_url) == []
    await sealed(database_url)
    await empty_contents(database_url, tenant="acme", before=NOW + timedelta(days=1), by="ada")
    assert await hits(database_url, TEXT) == {}
    assert await breaches(database_url) == []


async def test_contents_of_one_tenant_are_emptied_after_their_age_and_facts_stay(
    postgres_store: PostgresStore, history: History, database_url: str
) -> None:
    limit = NOW - timedelta(days=2)
    before, at = about("before", decided_at=limit - timedelta(microseconds=1)), about("at", decided_at=limit)
    theirs = about("before", tenant="globex", decided_at=NOW - timedelta(days=3))
    bad = about("bad", decided_at=NOW - timedelta(days=3), attempts=UNSTORABLE)
    await postgres_store.record([before, at, theirs, bad])
    await postgres_store.record_events([reviewed("before", TEXT)])  # now, so it stays
    emptied = await empty_contents(database_url, tenant="acme", before=limit, by="ada")
    assert (emptied.contents, emptied.events, emptied.holds) == (2, 0, ())
    kept = await history.get("acme", before.decision_id)
    assert kept is not None
    assert (kept.state, kept.ids.resource, kept.answers) == (ERASED, None, before.answers)
    assert await history.get("acme", at.decision_id) == at
    assert await history.get("globex", theirs.decision_id) == theirs
    assert await hits(database_url, TEXT) == {"decision_contents": 2, "history_events": 1}
    [event] = await history.events("acme", "")
    assert event.body == {"what": "contents", "before": limit.isoformat(), "contents": 2, "events": 0}
    again = await empty_contents(database_url, tenant="acme", before=limit, by="ada")
    assert (again.contents, again.events) == (0, 0)
    assert len(await history.events("acme", "")) == 1
    [retried] = await postgres_store.record([before])
    assert retried.state == ERASED


async def test_contents_under_hold_outlive_their_age(
    postgres_store: PostgresStore, history: History, database_url: str
) -> None:
    held, free = about("held"), about("free", person="user-78")
    waiting = about("waiting", attempts=UNSTORABLE)
    await postgres_store.record([held, free, waiting])
    await postgres_store.record_events([reviewed("held", TEXT), reviewed("free", TEXT)])
    later = NOW + timedelta(days=1)
    everybody = await place_hold(database_url, hash_key=KEY, tenant="acme", reason="audit", by="lee")
    nothing = await empty_contents(database_url, tenant="acme", before=later, by="ada")
    assert (nothing.contents, nothing.events, nothing.holds) == (0, 0, (everybody.hold_id,))
    await release_hold(database_url, everybody.hold_id, tenant="acme", by="lee")
    await place_hold(database_url, hash_key=KEY, tenant="acme", resource=PERSON, reason="case", by="lee")
    emptied = await empty_contents(database_url, tenant="acme", before=later, by="ada")
    assert emptied.contents == 1
    assert await history.get("acme", held.decision_id) == held
    assert [event.body["reason"] for event in await history.events("acme", "held")] == [TEXT]
    assert "reason" not in (await history.events("acme", "free"))[0].body
    assert await postgres_store.find("acme", NOW, [waiting.decision_id]) == {waiting.decision_id: waiting}


@pytest.mark.slow
async def test_a_reader_that_takes_its_time_makes_retention_give_up_and_not_hang(
    postgres_store: PostgresStore, database_url: str
) -> None:
    await old(postgres_store, database_url, decision("a", decided_at=JANUARY))
    engine = create_engine(database_url, role="classifier_reader", timeout=60)
    async with engine.begin() as reading:
        await reading.execute(sa.text("SELECT count(*) FROM classifier.decisions"))
        with pytest.raises(StoreError, match="55P03"):
            await drop_months(database_url, before=MARCH, by="ada")
    await engine.dispose()
    assert (await drop_months(database_url, before=MARCH, by="ada")).months == ("2024_01",)


async def test_nobody_drops_nothing(database_url: str) -> None:
    with pytest.raises(ConfigurationError, match="--by"):
        await drop_months(database_url, before=MARCH, by="")


async def test_a_decision_without_a_person_has_no_part_in_a_hold_on_one(
    postgres_store: PostgresStore, database_url: str
) -> None:
    await old(postgres_store, database_url, decision("a", decided_at=JANUARY, ids=Ids(thread=PERSON)))
    await place_hold(database_url, hash_key=KEY, tenant="acme", resource=PERSON, reason="case", by="lee")
    assert (await drop_months(database_url, before=MARCH, by="ada")).months == ("2024_01",)


async def test_reasons_of_earlier_versions_move_to_where_they_can_be_erased_and_back(
    postgres_server: PostgresServer,
) -> None:
    body = "SELECT body::text || coalesce(content::text, '') FROM classifier.history_events"
    async with postgres_server.database(EMPTY) as url:
        await upgrade(url, "0004")
        await ask(
            url,
            "INSERT INTO classifier.history_events (event_id, at, tenant, kind, workflow_id, run_id, body) "
            "VALUES (gen_random_uuid(), now(), 'acme', 'review', 'w', 'r', "
            '\'{"route": "billing", "reason": "why"}\') RETURNING 1',
        )
        await upgrade(url)
        assert await ask(url, body) == '{"route": "billing"}{"reason": "why"}'
        async with History(url) as history:
            assert [event.body for event in await history.events("acme", "w")] == [
                {"route": "billing", "reason": "why"}
            ]
        await downgrade(url, "0004")
        assert await ask(url, "SELECT body->>'reason' FROM classifier.history_events") == "why"
