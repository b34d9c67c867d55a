"""Sealing on a real PostgreSQL: what is sealed when, and what `verify` says of whatever was done to it."""

from __future__ import annotations

import asyncio
import random
import uuid
from collections.abc import AsyncGenerator
from dataclasses import replace
from datetime import UTC, datetime

import pytest
import sqlalchemy as sa
from sqlalchemy.exc import DBAPIError

from classifier.audit.engine import Role, create_engine, set_tenant
from classifier.audit.erasure import erase
from classifier.audit.postgres import PostgresStore
from classifier.audit.sealing import missing_outside, retained_stub, seal
from classifier.audit.signing import PublicKeys, SealKey, new_key
from classifier.audit.verifying import MOST_BREACHES, verify
from classifier.errors import StoreError
from tests.classifier.audit.examples import KEY, NOW, decision
from tests.classifier.audit.sealed import (
    DECISIONS,
    EVENTS,
    PUBLIC,
    ROWS,
    SEAL,
    breaches,
    event,
    kept_outside,
    named,
    record_all,
    sealed,
    swap,
    tamper,
    verified,
)
from tests.classifier.audit.test_arrivals import open_transaction, write
from tests.postgres import PostgresServer

OTHER = SealKey.of(new_key())
THIRD, FIFTH = DECISIONS[2], DECISIONS[4]
SECOND_EVENT = EVENTS[1]
EVENT = f"event_id = '{SECOND_EVENT.event_id}'"


@pytest.fixture(scope="module")
async def template(postgres_server: PostgresServer) -> AsyncGenerator[str]:
    """The name of a database with a sealed history, to be cloned."""
    async with postgres_server.database() as url:
        store = PostgresStore(url, hash_key=KEY)
        await record_all(store)
        await store.aclose()
        await sealed(url, ROWS + 1)
        yield str(sa.make_url(url).database)


@pytest.fixture
async def url(postgres_server: PostgresServer, template: str) -> AsyncGenerator[str]:
    """A database of the test's own with a sealed history."""
    async with postgres_server.database(template) as url:
        yield url


@pytest.fixture
async def store(url: str) -> AsyncGenerator[PostgresStore]:
    """What writes to it."""
    store = PostgresStore(url, hash_key=KEY)
    yield store
    await store.aclose()


async def test_an_untouched_history_is_as_it_was_sealed(url: str) -> None:
    results = await verified(url, outside=await kept_outside(url))
    assert {name: (one.leaves, one.breaches, one.unsealed) for name, one in results.items()} == {
        "acme": (ROWS, (), 0),
        "globex": (1, (), 0),
    }
    assert results["acme"].checkpoints == results["acme"].outside >= ROWS // 4
    assert (results["acme"].erased, results["acme"].retained) == (0, 0)


async def test_sealing_again_adds_nothing_and_goes_on_with_what_is_new(
    url: str, store: PostgresStore
) -> None:
    before = await kept_outside(url)
    done = await seal(url, SEAL, keys=PUBLIC, hash_key=KEY)
    assert sum(one.rows for one in done) == 0
    assert await kept_outside(url) == before
    await store.record([decision("new")])
    assert (await verified(url))["acme"].unsealed == 1
    await sealed(url, 1)
    assert (await verified(url))["acme"].leaves == ROWS + 1
    assert [
        each async for each in missing_outside(url, {name: them[-1] for name, them in before.items()})
    ] == [(await kept_outside(url))["acme"][-1]]


CHANGES = (
    "decisions SET outcome = 'aborted'",
    "decisions SET duration_ms = 12.500000000000002",
    "decisions SET recorded_at = recorded_at + interval '1 us'",
    """decisions SET answers = jsonb_set(answers, '{topic,choice}', '"other"')""",
    "decisions SET subject = '', metadata = '{}'",
    "decisions SET decided_at = decided_at + interval '20 days'",
    "decision_answers SET number = 0.99, kind = 'boolean'",
    "decision_answers SET question = question || 'x'",
    "decision_answers SET tenant = 'globex'",
)


ANSWER = "decision_id, decided_at, tenant, 'zz', kind, choice, number FROM classifier.decision_answers"


async def test_each_decision_that_was_changed_is_named(url: str, store: PostgresStore) -> None:
    more = [decision(f"more{number}") for number in range(len(CHANGES) + 2)]
    for one in more:
        await store.record([one])
    await sealed(url, len(more))
    statements = [
        f"UPDATE classifier.{what} WHERE {named(one)}" for what, one in zip(CHANGES, more, strict=False)
    ]
    fewer, other = more[-2:]
    statements += [
        f"DELETE FROM classifier.decision_answers WHERE question = 'unsafe' AND {named(fewer)}",
        f"INSERT INTO classifier.decision_answers SELECT {ANSWER} WHERE kind = 'boolean' AND {named(other)}",
    ]
    await tamper(url, *statements)
    assert await breaches(url) == [("changed", one.decision_id) for one in more]


async def test_contents_that_were_changed_are_named(url: str) -> None:
    changes = (
        "state = 'another text'",
        "resource_id = 'x'",
        """request_context = '{"a": 1}'""",
        "original = ''",
    )
    changed = DECISIONS[1 : 1 + len(changes)]
    await tamper(
        url,
        *(
            f"UPDATE classifier.decision_contents SET {change} WHERE {named(one)}"
            for change, one in zip(changes, changed, strict=True)
        ),
    )
    assert await breaches(url) == [("contents changed", one.decision_id) for one in changed]
    assert (await verified(url, hash_key=None))["acme"].breaches == ()


async def test_each_event_that_was_changed_is_named(url: str) -> None:
    changes = (
        "kind = 'stop'",
        """body = '{"route": "security"}'""",
        """content = '{"reason": "they wrote"}'""",
    )
    await tamper(
        url,
        *(
            f"UPDATE classifier.history_events SET {change} WHERE event_id = '{one.event_id}'"
            for change, one in zip(changes, EVENTS, strict=True)
        ),
    )
    faults = ("changed", "changed", "contents changed")
    assert await breaches(url) == [(fault, one.event_id) for fault, one in zip(faults, EVENTS, strict=True)]


async def test_rows_that_were_removed_are_named_the_first_first(url: str) -> None:
    await tamper(
        url,
        f"DELETE FROM classifier.decisions WHERE {named(FIFTH)}",
        f"DELETE FROM classifier.history_events WHERE {EVENT}",
    )
    assert await breaches(url) == [("removed", SECOND_EVENT.event_id), ("removed", FIFTH.decision_id)]


COPY = (
    "decided_at, tenant, namespace, workflow_id, run_id, activity_id, ordinal, classifier_id, phase, "
    "outcome, mode, question_set, gates, duration_ms, attempts, warnings, normalised, metadata, refused, "
    "state_hash, state_length"
)
LEAST = "(-(2::numeric^63))::bigint"


async def test_decisions_that_were_slipped_in_anywhere_are_named(url: str) -> None:
    places = (
        f"{LEAST}, {LEAST}",
        "-transaction_id, arrival",
        "transaction_id, -arrival",
        "transaction_id, arrival",
    )
    ids = [uuid.UUID(int=number) for number in range(len(places))]
    await tamper(
        url,
        *(
            f"INSERT INTO classifier.decisions (decision_id, {COPY}, transaction_id, arrival) "
            f"SELECT '{slipped}', {COPY}, {place} FROM classifier.decisions WHERE {named(THIRD)}"
            for slipped, place in zip(ids, places, strict=True)
        ),
    )
    assert await breaches(url) == [("inserted", slipped) for slipped in ids]


async def test_an_event_that_was_slipped_in_is_named(url: str) -> None:
    late = event("late")
    await tamper(
        url,
        "INSERT INTO classifier.history_events "
        "(event_id, at, tenant, kind, workflow_id, run_id, body, transaction_id, arrival) "
        f"SELECT '{late.event_id}', at, tenant, kind, workflow_id, run_id, body, transaction_id, arrival - 1 "
        f"FROM classifier.history_events WHERE {EVENT}",
    )
    assert ("inserted", late.event_id) in await breaches(url)


async def test_rows_that_changed_places_are_named_as_reordered(url: str) -> None:
    await tamper(url, swap("decisions", named(THIRD), named(FIFTH)))
    assert await breaches(url) == [("reordered", THIRD.decision_id), ("reordered", FIFTH.decision_id)]


async def test_events_that_changed_places_are_named_as_reordered(url: str) -> None:
    await tamper(url, swap("history_events", EVENT, f"event_id = '{EVENTS[2].event_id}'"))
    assert await breaches(url) == [("reordered", SECOND_EVENT.event_id), ("reordered", EVENTS[2].event_id)]


async def test_a_row_that_was_moved_behind_the_last_checkpoint_is_reordered(url: str) -> None:
    await tamper(url, f"UPDATE classifier.decisions SET arrival = arrival + 900 WHERE {named(THIRD)}")
    assert await breaches(url) == [("reordered", THIRD.decision_id)]


async def test_a_row_given_to_another_tenant_is_gone_here_and_slipped_in_there(url: str) -> None:
    await tamper(url, f"UPDATE classifier.decisions SET tenant = 'globex' WHERE {named(THIRD)}")
    results = await verified(url)
    assert [(one.fault, one.row_id) for one in results["acme"].breaches] == [("removed", THIRD.decision_id)]
    assert [(one.fault, one.row_id) for one in results["globex"].breaches] == [
        ("inserted", THIRD.decision_id)
    ]


async def test_whoever_changed_very_much_is_told_the_first_of_it(url: str, store: PostgresStore) -> None:
    await store.record([decision(f"many{number}") for number in range(60)])
    await sealed(url, 60, batch=1000)
    await tamper(url, "UPDATE classifier.decisions SET mode = 'monitor' WHERE tenant = 'acme'")
    found = await breaches(url)
    assert len(found) == MOST_BREACHES
    assert found[0] == ("changed", DECISIONS[0].decision_id)


async def test_thousands_of_rows_slipped_in_are_found_without_reading_them_all(url: str) -> None:
    await tamper(
        url,
        f"INSERT INTO classifier.decisions (decision_id, {COPY}, transaction_id, arrival) "
        f"SELECT gen_random_uuid(), {COPY}, transaction_id, -n FROM classifier.decisions, "
        f"generate_series(1, 5000) n WHERE {named(THIRD)}",
    )
    assert [fault for fault, _ in await breaches(url)] == ["inserted"] * MOST_BREACHES


async def test_a_leaf_that_was_changed_or_removed_is_named(url: str) -> None:
    await tamper(
        url, "UPDATE classifier.seal_leaves SET row_hash = chain_hash WHERE sequence = 3 AND tenant = 'acme'"
    )
    assert await breaches(url) == [("leaf", 3)]
    await tamper(url, "DELETE FROM classifier.seal_leaves WHERE sequence = 2 AND tenant = 'acme'")
    assert await breaches(url) == [("leaf", 2)]


async def test_a_row_removed_with_its_leaf_leaves_a_gap(url: str) -> None:
    await tamper(
        url,
        f"DELETE FROM classifier.decisions WHERE {named(THIRD)}",
        f"DELETE FROM classifier.seal_leaves WHERE row_id = '{THIRD.decision_id}'",
    )
    assert await breaches(url) == [("leaf", 5)]


async def rewrite(url: str, key: SealKey) -> None:
    """Changes a row, forgets all seals, and seals anew with the key that is at hand."""
    await tamper(
        url,
        f"UPDATE classifier.decisions SET outcome = 'aborted' WHERE {named(THIRD)}",
        "DELETE FROM classifier.seal_leaves",
        "DELETE FROM classifier.seal_checkpoints",
    )
    await sealed(url, ROWS + 1, key=key, keys=PublicKeys.of([key.public]))


async def test_rows_and_leaves_and_links_rewritten_together_contradict_the_checkpoint(url: str) -> None:
    before = await kept_outside(url)
    await rewrite(url, OTHER)
    await tamper(url, "DELETE FROM classifier.seal_checkpoints")
    for checkpoint in (each for them in before.values() for each in them):
        await tamper(
            url,
            "INSERT INTO classifier.seal_checkpoints VALUES "
            f"('{checkpoint.tenant}', {checkpoint.number}, {checkpoint.leaves}, "
            f"{checkpoint.place.transaction_id}, {checkpoint.place.arrival}, "
            f"'\\x{checkpoint.chain_hash.hex()}', "
            + (f"'\\x{checkpoint.previous.hex()}', " if checkpoint.previous else "NULL, ")
            + f"'{checkpoint.sealed_at.isoformat()}', '{checkpoint.key_id}', "
            f"'\\x{checkpoint.signature.hex()}')",
        )
    [(fault, number), *_] = await breaches(url)
    assert fault == "checkpoint"
    first = next(each.number for each in before["acme"] if each.leaves >= 5)
    assert number == first, "the first that stands for the changed row, which is the fifth"


async def test_a_checkpoint_forged_with_another_key_is_not_believed(url: str) -> None:
    await rewrite(url, OTHER)
    results = await verified(url)
    assert {one.breaches[0].fault for one in results.values()} == {"checkpoint"}
    assert "was not given" in results["acme"].breaches[0].sentence


async def test_a_full_rewrite_with_the_stolen_key_is_caught_by_checkpoints_kept_outside(url: str) -> None:
    kept = await kept_outside(url)
    await rewrite(url, SEAL)
    assert (await verified(url))["acme"].breaches == (), "nothing inside can tell"
    found = (await verified(url, outside=kept))["acme"].breaches
    assert {one.fault for one in found} == {"outside"}
    assert "rewritten" in found[0].sentence
    newest = {name: them[-1] for name, them in kept.items()}
    with pytest.raises(StoreError, match="not in the database as it was kept"):
        _ = [each async for each in missing_outside(url, newest)]


async def test_a_tail_that_was_cut_off_is_caught_by_checkpoints_kept_outside(url: str) -> None:
    kept = await kept_outside(url)
    last, end = kept["acme"][-2:]
    await tamper(
        url,
        f"DELETE FROM classifier.seal_checkpoints WHERE tenant = 'acme' AND number = {end.number}",
        f"DELETE FROM classifier.seal_leaves WHERE tenant = 'acme' AND sequence > {last.leaves}",
        f"DELETE FROM classifier.decisions WHERE tenant = 'acme' AND (transaction_id, arrival) > "
        f"({last.place.transaction_id}, {last.place.arrival})",
    )
    assert (await verified(url))["acme"].breaches == (), "nothing inside can tell"
    [breach] = (await verified(url, outside=kept))["acme"].breaches
    assert (breach.fault, breach.sequence) == ("outside", end.number)
    assert "it was cut" in breach.sentence


async def test_a_tenant_of_which_nothing_is_left_is_caught_by_checkpoints_kept_outside(url: str) -> None:
    kept = await kept_outside(url)
    tables = ("decisions", "seal_leaves", "seal_checkpoints")
    await tamper(url, *(f"DELETE FROM classifier.{table} WHERE tenant = 'globex'" for table in tables))
    assert "globex" not in await verified(url)
    assert [one.fault for one in (await verified(url, outside=kept))["globex"].breaches] == ["outside"]


async def test_a_checkpoint_that_was_removed_is_missed(url: str) -> None:
    await tamper(url, "DELETE FROM classifier.seal_checkpoints WHERE tenant = 'acme' AND number = 1")
    assert await breaches(url) == [("checkpoint", 2)]
    await tamper(url, "DELETE FROM classifier.seal_checkpoints WHERE tenant = 'acme'")
    assert await breaches(url) == [("leaf", 1)]


async def test_nothing_is_sealed_on_top_of_a_forged_checkpoint(url: str, store: PostgresStore) -> None:
    await tamper(url, "UPDATE classifier.seal_checkpoints SET leaves = leaves WHERE tenant = 'acme'")
    await tamper(url, "UPDATE classifier.seal_checkpoints SET chain_hash = signature WHERE tenant = 'acme'")
    await store.record([decision("new"), decision("new", tenant="globex")])
    problems = {one.tenant: one.problem for one in await seal(url, SEAL, keys=PUBLIC, hash_key=KEY)}
    assert "is not what the key" in (problems["acme"] or "")
    assert problems["globex"] is None


async def test_keys_are_replaced_and_old_checkpoints_still_count(url: str, store: PostgresStore) -> None:
    both = PublicKeys.of([SEAL.public, OTHER.public])
    await store.record([decision("new")])
    await sealed(url, 1, key=OTHER, keys=both)
    assert (await verified(url, keys=both))["acme"].breaches == ()
    assert [one.fault for one in (await verified(url, keys=PublicKeys.of([OTHER.public])))["globex"].breaches]


async def test_erasing_a_person_keeps_the_seal_and_is_sealed_itself(url: str) -> None:
    person = await erase(url, hash_key=KEY, tenant="acme", resource="user-1", by="lee")
    assert (person.contents, person.events) == (1, 1)
    await sealed(url, 1)
    result = (await verified(url))["acme"]
    assert (result.breaches, result.erased, result.leaves) == ((), 2, ROWS + 1)


async def test_contents_that_were_erased_before_the_seal_may_not_come_back(
    postgres_store: PostgresStore, database_url: str
) -> None:
    await record_all(postgres_store)
    await erase(database_url, hash_key=KEY, tenant="acme", resource="user-2", by="lee")
    await sealed(database_url, ROWS + 2)
    assert await breaches(database_url) == []
    await tamper(
        database_url,
        "INSERT INTO classifier.decision_contents (decision_id, decided_at, tenant, state, state_is_json, "
        "request_context) SELECT decision_id, decided_at, tenant, 'put words in their mouth', false, '{}' "
        f"FROM classifier.decisions WHERE {named(THIRD)}",
    )
    assert await breaches(database_url) == [("contents changed", THIRD.decision_id)]


async def test_a_row_of_an_open_transaction_is_sealed_when_it_is_final_and_never_counts_as_slipped_in(
    postgres_store: PostgresStore, database_url: str
) -> None:
    writers = create_engine(database_url, role="classifier_writer", timeout=10, pool_size=2)
    try:
        async with open_transaction(writers, decision("slow")) as slow:
            await postgres_store.record([decision("fast")])
            await postgres_store.record_events([event("fast")])
            done = await seal(database_url, SEAL, keys=PUBLIC, hash_key=KEY)
            assert sum(one.rows for one in done) == 0
            await slow.commit()
        await sealed(database_url, 3)
        assert await breaches(database_url) == []
    finally:
        await writers.dispose()


async def test_interleaved_transactions_and_late_records_end_in_one_sound_chain(
    postgres_store: PostgresStore, database_url: str
) -> None:
    chance = random.Random(7)
    writers = create_engine(database_url, role="classifier_writer", timeout=30, pool_size=6)

    async def writer(number: int) -> None:
        for step in range(6):
            async with writers.connect() as connection:
                for part in range(chance.randint(1, 3)):
                    late = NOW.replace(day=1) if chance.random() < 0.3 else NOW
                    name = f"{number}-{step}-{part}"
                    await write(connection, decision(name, decided_at=late))
                    await asyncio.sleep(0)
                if chance.random() < 0.2:
                    await connection.rollback()
                else:
                    await connection.commit()
            await postgres_store.record_events([event(f"{number}-{step}")])

    async def sealer(done: asyncio.Event) -> None:
        while not done.is_set():
            await seal(database_url, SEAL, keys=PUBLIC, hash_key=KEY, batch=3)

    finished = asyncio.Event()
    async with asyncio.TaskGroup() as group:
        sealers = [group.create_task(sealer(finished)) for _ in range(2)]
        async with asyncio.TaskGroup() as writing:
            for number in range(6):
                writing.create_task(writer(number))
        finished.set()
        await asyncio.gather(*sealers)
    await writers.dispose()
    rest = (await verified(database_url))["acme"].unsealed
    await sealed(database_url, rest)
    result = (await verified(database_url))["acme"]
    assert result.breaches == ()
    assert result.leaves > 36, "every event, and most decisions"
    assert result.unsealed == 0


async def test_several_may_seal_at_once_and_each_row_is_sealed_once(
    postgres_store: PostgresStore, database_url: str
) -> None:
    for tenant in ("acme", "globex"):
        await postgres_store.record([decision(f"w{number}", tenant=tenant) for number in range(40)])
    total = 0
    async with asyncio.timeout(60):
        while total < 80:
            rounds = await asyncio.gather(
                *(seal(database_url, SEAL, keys=PUBLIC, hash_key=KEY, batch=7) for _ in range(4))
            )
            total += sum(one.rows for done in rounds for one in done)
    results = await verified(database_url)
    assert {name: (one.leaves, one.breaches) for name, one in results.items()} == {
        "acme": (40, ()),
        "globex": (40, ()),
    }


async def test_verify_reads_one_moment_while_others_write_and_seal(url: str, store: PostgresStore) -> None:
    results = verify(url, PUBLIC, hash_key=KEY)
    first = await anext(results)
    await store.record([decision("new"), decision("new", tenant="globex")])
    await sealed(url, 2)
    [second] = [result async for result in results]
    assert (first.breaches, second.breaches) == ((), ())
    assert first.leaves == ROWS


async def test_a_stub_that_was_forged_or_changed_does_not_cover_for_rows(url: str) -> None:
    engine = create_engine(url, role="classifier_maintenance", timeout=10)
    since, until = NOW.replace(day=1), datetime(NOW.year + 1, 1, 1, tzinfo=UTC)
    async with engine.begin() as connection:
        forged = await retained_stub(connection, OTHER, tenant="acme", since=since, until=until)
    await engine.dispose()
    assert forged is not None
    await tamper(url, f"DELETE FROM classifier.decisions WHERE {named(THIRD)}")
    assert await breaches(url) == [("stub", None), ("removed", THIRD.decision_id)]


async def test_a_stub_accounts_for_exactly_the_leaves_there_were(url: str, store: PostgresStore) -> None:
    since, until = NOW.replace(day=1), datetime(NOW.year + 1, 1, 1, tzinfo=UTC)
    engine = create_engine(url, role="classifier_maintenance", timeout=10)
    await store.record([decision("not sealed yet")])
    async with engine.begin() as connection:
        with pytest.raises(StoreError, match=r"1 rows of tenant 'acme' .* not sealed yet"):
            await retained_stub(connection, SEAL, tenant="acme", since=since, until=until)
    await sealed(url, 1)
    async with engine.begin() as connection:
        stub = await retained_stub(connection, SEAL, tenant="acme", since=since, until=until)
        assert await retained_stub(connection, SEAL, tenant="nobody", since=since, until=until) is None
    await engine.dispose()
    assert stub is not None
    assert (stub.leaves, stub.through) == (7, ROWS + 1)
    await tamper(url, "DELETE FROM classifier.decisions WHERE tenant = 'acme'")
    result = (await verified(url))["acme"]
    assert (result.breaches, result.retained) == ((), 7)
    await store.record([replace(THIRD, decision_id=decision("after").decision_id)])
    await sealed(url, 1)
    await tamper(url, "DELETE FROM classifier.decisions WHERE tenant = 'acme'")
    assert await breaches(url) == [("removed", decision("after").decision_id)]


SEALS = ("seal_leaves", "seal_checkpoints", "seal_stubs")


async def test_nobody_may_change_a_seal(url: str) -> None:
    roles: tuple[Role, ...] = ("classifier_writer", "classifier_reader", "classifier_maintenance")
    for role in roles:
        engine = create_engine(url, role=role, timeout=10)
        for table in SEALS:
            for statement in (
                f"DELETE FROM classifier.{table}",
                f"UPDATE classifier.{table} SET tenant = 'x'",
            ):
                with pytest.raises(DBAPIError, match="permission denied"):
                    async with engine.begin() as connection:
                        await connection.execute(sa.text(statement))
        await engine.dispose()


async def test_sec_o05_a_reader_sees_the_seals_of_its_tenant_alone(url: str) -> None:
    engine = create_engine(url, role="classifier_reader", timeout=10)
    try:
        for table in SEALS[:2]:
            for tenant, expected in ((None, set[str]()), ("globex", {"globex"}), ("nobody", set[str]())):
                async with engine.begin() as connection:
                    if tenant is not None:
                        await set_tenant(connection, tenant)
                    found = await connection.scalars(sa.text(f"SELECT tenant FROM classifier.{table}"))
                    assert set(found) == expected
    finally:
        await engine.dispose()


async def test_rows_restored_from_another_server_are_refused_in_words(url: str) -> None:
    await tamper(url, f"UPDATE classifier.history_events SET transaction_id = 1000000000000 WHERE {EVENT}")
    with pytest.raises(StoreError, match="pg_resetwal"):
        await seal(url, SEAL, keys=PUBLIC, hash_key=KEY)
