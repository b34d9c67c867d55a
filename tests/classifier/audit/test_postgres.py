"""What only PostgreSQL can get wrong: text, partitions, quarantine, pools, tenants and outages."""

from __future__ import annotations

import asyncio
import tempfile
import traceback
from dataclasses import fields, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import psutil
import pytest
from sqlalchemy.exc import ProgrammingError

from classifier.audit.engine import Role
from classifier.audit.history import History
from classifier.audit.partitions import Month, ensure_partitions
from classifier.audit.postgres import PostgresStore
from classifier.audit.query import AnswerCondition, DecisionQuery
from classifier.audit.records import EventKind, HistoryEvent, event_id_of
from classifier.audit.schema import upgrade
from classifier.decision import Branch, Decision, Ids
from classifier.errors import StoreUnavailable
from embedded.stack import Stack
from tests.classifier.audit.examples import KEY, NOW, decision
from tests.classifier.audit.whole import ask

LONG_AGO = datetime(2001, 2, 3, tzinfo=UTC)
UNSTORABLE = 2**70


def happened(workflow: str, kind: EventKind, **body: str) -> HistoryEvent:
    return HistoryEvent(
        event_id=event_id_of("acme", kind, workflow),
        at=NOW,
        tenant="acme",
        kind=kind,
        workflow_id=workflow,
        run_id="run",
        actor="ann\0",
        body=body,
    )


async def test_aud_o01_nul_and_its_literal_form_stay_different(
    postgres_store: PostgresStore, history: History
) -> None:
    texts = ["a\0b", "a\\u0000b", "\ud800", "\ud83d", "␛0000", "x" * 3_000_000]
    written = [decision(f"w{n}", state=text, request_context={"t": text}) for n, text in enumerate(texts)]
    await postgres_store.record(written)
    for one in written:
        assert await history.get("acme", one.decision_id) == one


async def test_aud_o02_numbers_that_are_not_finite_do_not_lose_the_row(
    postgres_store: PostgresStore, history: History, database_url: str
) -> None:
    one = decision(metadata={"latency": float("nan"), "rank": float("inf"), "ok": 0.4})
    await postgres_store.record([one])
    kept = await history.get("acme", one.decision_id)
    assert kept is not None
    assert kept.metadata["rank"] == float("inf")
    assert kept.metadata["latency"] != kept.metadata["latency"]
    assert await ask(database_url, "SELECT metadata->>'ok' FROM classifier.decisions") == "0.4"


async def test_what_is_no_json_or_too_much_is_stored_with_a_note(
    postgres_store: PostgresStore, history: History
) -> None:
    deep: list[Any] = []
    for _ in range(500):
        deep = [deep]
    one = decision(metadata={"set": {1}, "deep": deep, "digits": 10**5000, "ok": 1})
    await postgres_store.record([one])
    kept = await history.get("acme", one.decision_id)
    assert kept is not None
    assert kept.metadata["ok"] == 1
    assert "not stored" in str(kept.metadata["set"])
    assert "not stored" in str(kept.metadata["deep"])
    assert "not stored" in str(kept.metadata["digits"])


async def test_aud_o06_one_bad_row_goes_to_quarantine_and_the_others_land(
    postgres_store: PostgresStore, history: History, database_url: str
) -> None:
    batch = [decision(f"w{number}") for number in range(50)]
    batch[17] = replace(batch[17], attempts=UNSTORABLE, state="a\0b")
    assert await postgres_store.record(batch) == batch
    assert len((await history.page(DecisionQuery(tenant="acme"), 100)).decisions) == 49
    assert await ask(database_url, "SELECT count(*) FROM classifier.quarantine WHERE error = '22003'") == 1
    assert await postgres_store.find("acme", NOW, [batch[17].decision_id]) == {
        batch[17].decision_id: batch[17]
    }
    assert await postgres_store.record([replace(batch[17], duration_ms=1.0)]) == [batch[17]]


async def test_a_month_without_partitions_waits_in_quarantine_and_is_moved(
    postgres_store: PostgresStore, history: History, database_url: str
) -> None:
    old = decision(decided_at=LONG_AGO)
    bad = decision("w2", decided_at=LONG_AGO, attempts=UNSTORABLE)
    assert await postgres_store.record([old, bad]) == [old, bad]
    assert await history.get("acme", old.decision_id) is None
    report = await ensure_partitions(database_url)
    assert (report.created, report.moved, report.refused) == (("2001_02",), 1, 0)
    assert await history.get("acme", old.decision_id) == old
    assert await postgres_store.record([replace(old, duration_ms=1.0)]) == [old]
    assert await ensure_partitions(database_url) == replace(report, created=(), moved=0)


def test_months_count_across_years() -> None:
    assert Month(2026, 11).plus(3) == Month(2027, 2)
    assert Month(2026, 1).plus(-1) == Month(2025, 12)
    assert Month(9999, 12).bounds.endswith("TO (MAXVALUE)")


async def test_content_and_answers_go_in_once_also_when_the_content_was_erased(
    postgres_store: PostgresStore, history: History, database_url: str
) -> None:
    one = decision()
    await postgres_store.record([one])
    await ask(
        database_url,
        "DELETE FROM classifier.decision_contents RETURNING 1",
    )
    [kept] = await postgres_store.record([one])
    assert kept == replace(one, state="", request_context={})
    assert await ask(database_url, "SELECT count(*) FROM classifier.decision_contents") == 0


async def test_aud_o08_two_hundred_at_once_on_five_connections(
    postgres_store: PostgresStore, history: History, database_url: str
) -> None:
    await asyncio.gather(*(postgres_store.record([decision(f"w{number}")]) for number in range(200)))
    connections = (
        "SELECT count(*) FROM pg_stat_activity "
        "WHERE application_name = 'classifier' AND datname = current_database()"
    )
    assert await ask(database_url, connections, "classifier_reader") <= 5
    [count] = await history.counts(DecisionQuery(tenant="acme"))
    assert count.count == 200


async def test_a_cancelled_caller_does_not_undo_what_was_handed_over(
    postgres_store: PostgresStore, history: History
) -> None:
    task = asyncio.create_task(_record(postgres_store, decision()))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await postgres_store.record([decision("later")])
    await postgres_store.aclose()
    assert await history.get("acme", decision().decision_id) == decision()


async def _record(store: PostgresStore, one: Decision) -> None:
    await store.record([one])


async def test_sec_o05_no_read_crosses_tenants(postgres_store: PostgresStore, history: History) -> None:
    ids = Ids(thread="t-1", resource="p-1", message="m-1", trace="tr-1")
    ours = decision(ids=ids, branch=Branch("review", "b", ("low",)))
    theirs = [
        replace(
            ours, decision_id=decision(f"x{n}").decision_id, coordinates=decision(tenant="globex").coordinates
        )
        for n in range(3)
    ]
    event = replace(happened("w", "delivery", route="b"), tenant="globex")
    await postgres_store.record([ours, *theirs])
    await postgres_store.record_events([event])
    filters: list[dict[str, Any]] = [
        {},
        {"thread": "t-1"},
        {"resource": "p-1"},
        {"message": "m-1"},
        {"trace": "tr-1"},
        {"workflow": "w"},
        {"answers": (AnswerCondition.parse("topic = billing"),)},
        {"action": "review"},
        {"reason": "low"},
    ]
    for one in filters:
        query = DecisionQuery(tenant="acme", **one)
        assert (await history.page(query)).decisions == (ours,)
        assert sum(count.count for count in await history.counts(query)) == 1
    assert await history.get("acme", theirs[0].decision_id) is None
    assert await history.events("acme", "w") == ()
    assert not (await history.settled("acme", ["w"]))["w"].delivered
    assert [one.decision for one in await history.open_reviews("acme")] == [ours]


@pytest.mark.parametrize("role", ["classifier_writer", "classifier_reader", "classifier_owner"])
async def test_sec_o05_no_tenant_set_means_no_rows(
    postgres_store: PostgresStore, database_url: str, role: Role
) -> None:
    await postgres_store.record([decision()])
    for table in ("decisions", "decision_contents", "decision_answers"):
        assert await ask(database_url, f"SELECT count(*) FROM classifier.{table}", role) == 0


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE classifier.decisions SET outcome = 'allowed'",
        "DELETE FROM classifier.decisions",
        "TRUNCATE classifier.decisions",
        f"SELECT * FROM classifier.decisions_{Month.of(NOW).suffix}",
    ],
)
@pytest.mark.parametrize("role", ["classifier_writer", "classifier_reader"])
async def test_writer_and_reader_may_not_change_rows_nor_touch_partitions(
    database_url: str, role: Role, statement: str
) -> None:
    with pytest.raises(ProgrammingError, match="permission denied"):
        await ask(database_url, statement, role)


async def test_runs_are_delivered_reviewed_or_waiting(
    postgres_store: PostgresStore, history: History
) -> None:
    review, route = Branch("review", "cards", ("low_probability:topic",)), Branch("route", "cards")
    await postgres_store.record(
        [decision("w1", branch=route), decision("w2", branch=review), decision("w3", branch=review)]
    )
    await postgres_store.record_events(
        [happened("w1", "delivery", route="cards"), happened("w3", "review", route="fraud")]
    )
    found = await history.settled("acme", ["w1", "w2", "w3", "unknown"])
    assert set(found) == {"w1", "w2", "w3"}
    assert (found["w1"].delivered, found["w1"].waiting, found["w1"].route) == (True, False, "cards")
    assert (found["w2"].waiting, found["w2"].reasons) == (True, ("low_probability:topic",))
    assert (found["w3"].reviewed, found["w3"].waiting, found["w3"].route) == (True, False, "fraud")
    assert [one.decision.coordinates.workflow_id for one in await history.open_reviews("acme")] == ["w2"]
    [event] = await history.events("acme", "w3")
    assert (event.actor, event.body) == ("ann\0", {"route": "fraud"})


async def test_aud_o07_a_store_that_refuses_connections_says_so_without_content() -> None:
    store = PostgresStore("postgresql://nobody:secret@127.0.0.1:1/none", hash_key=KEY, timeout=2)
    with pytest.raises(StoreUnavailable) as caught:
        await store.record([decision()])
    await store.aclose()
    said = "".join(traceback.format_exception(caught.value))
    assert "my card has not arrived" not in said
    assert "secret" not in said


@pytest.mark.slow
async def test_kill_nine_in_the_middle_of_writing_loses_nothing_and_doubles_nothing() -> None:
    home = Path(tempfile.mkdtemp(prefix="classifier-kill-"))
    confirmed: set[str] = set()
    async with Stack(home, temporal=False) as stack:
        url = stack.addresses.database_url
        assert url is not None
        await upgrade(url)
        store = PostgresStore(url, hash_key=KEY, timeout=5)
        writers = [asyncio.create_task(_write(store, name, confirmed)) for name in range(8)]
        while len(confirmed) < 100:
            await asyncio.sleep(0)
        [postmaster] = [
            child
            for child in psutil.Process().children(recursive=True)
            if str(home) in " ".join(child.cmdline())
        ][:1]
        postmaster.kill()
        assert not all([await writer for writer in writers])
        await store.aclose()
    async with Stack(home, temporal=False) as stack:
        url = stack.addresses.database_url
        assert url is not None
        store = PostgresStore(url, hash_key=KEY)
        everything = [decision(f"{writer}-{number}") for writer in range(8) for number in range(200)]
        found = await store.find("acme", NOW, [one.decision_id for one in everything])
        assert confirmed <= {one.coordinates.workflow_id for one in found.values()}
        assert await store.record(everything) == everything
        async with History(url) as history:
            [count] = await history.counts(DecisionQuery(tenant="acme"))
        assert count.count == len(everything)
        await store.aclose()


async def _write(store: PostgresStore, writer: int, confirmed: set[str]) -> bool:
    for number in range(200):
        one = decision(f"{writer}-{number}")
        try:
            await store.record([one])
        except StoreUnavailable:
            return False
        confirmed.add(one.coordinates.workflow_id)
    return True


async def test_aud_o12_records_are_plain_values_that_outlive_the_connection(
    postgres_store: PostgresStore, history: History
) -> None:
    one = decision(decided_at=NOW - timedelta(seconds=1))
    await postgres_store.record([one])
    kept = await history.get("acme", one.decision_id)
    await history.aclose()
    assert type(kept) is Decision
    for field in fields(Decision):
        assert getattr(kept, field.name) == getattr(one, field.name)
