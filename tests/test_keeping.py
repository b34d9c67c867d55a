"""Erasing, retaining and holding as commands: processes of their own, a real Temporal, a real PostgreSQL."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncGenerator, Generator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest
from temporalio.client import Client
from temporalio.service import RPCError, RPCStatusCode

from classifier.audit.history import History
from classifier.audit.partitions import ensure_partitions
from classifier.audit.postgres import PostgresStore
from classifier.audit.signing import new_key
from classifier.decision import Coordinates, Decision
from tests.classifier.audit.examples import KEY, decision
from tests.classifier.audit.test_erasure import PERSON, TEXT, about
from tests.classifier.audit.whole import hits
from tests.processes import PATIENCE, Finished, environment, run, state_folder
from tests.processes import started as process_started

LONG_AGO = datetime(2024, 1, 15, tzinfo=UTC)


@pytest.fixture
def home() -> Generator[Path]:
    with state_folder() as folder:
        yield folder


@pytest.fixture
def environ(home: Path, database_url: str, temporal_address: str) -> dict[str, str]:
    return environment(
        home, DATABASE_URL=database_url, TEMPORAL_ADDRESS=temporal_address, CLASSIFIER_HASH_KEY=KEY.decode()
    )


@pytest.fixture
async def store(database_url: str) -> AsyncGenerator[PostgresStore]:
    store = PostgresStore(database_url, hash_key=KEY)
    yield store
    await store.aclose()


async def history_command(environ: dict[str, str], *arguments: str) -> Finished:
    finished = await run("history", *arguments, environ=environ)
    assert finished.code == 0, finished.errors
    return finished


async def started(client: Client, name: str, *, closed: bool) -> Decision:
    """A decision about the person, in a run that was given their text; nobody works on it."""
    handle = await client.start_workflow("nobody's", TEXT, id=f"erasing-{name}", task_queue="erasing")
    if closed:
        await handle.terminate("done")
    at = Coordinates("acme", client.namespace, handle.id, handle.first_execution_run_id or "", "1")
    return about(name, coordinates=at, decision_id=at.decision_id(0))


async def forgotten(client: Client, one: Decision) -> None:
    """Returns when Temporal knows nothing of the run any more; the dev server takes up to 90 seconds."""
    at = one.coordinates
    async with asyncio.timeout(PATIENCE):
        while True:
            try:
                await client.get_workflow_handle(at.workflow_id, run_id=at.run_id).describe()
            except RPCError as error:
                assert error.status == RPCStatusCode.NOT_FOUND  # noqa: PT017 - it is waited for
                return
            await asyncio.sleep(0.05)


@pytest.mark.slow
async def test_erase_deletes_closed_runs_lists_open_ones_and_says_what_is_out_of_reach(
    environ: dict[str, str], store: PostgresStore, database_url: str, temporal_address: str
) -> None:
    client = await Client.connect(temporal_address)
    closed, still_open = [await started(client, name, closed=name == "closed") for name in ("closed", "open")]
    never = about("never", coordinates=replace(closed.coordinates, run_id=str(uuid.uuid4())))
    await store.record(
        [closed, still_open, never, about("plain", coordinates=Coordinates("acme", workflow_id="a key"))]
    )
    command = ("erase", "--tenant", "acme", "--resource", PERSON, "--by", "Ada")

    shown = await history_command(environ, *command, "--dry-run")
    assert "contents would be erased: 4" in shown.output
    assert "closed runs would be deleted in Temporal: 1" in shown.output
    assert len(await hits(database_url, TEXT)) == 1

    erased = (await history_command(environ, *command, "--json")).json
    open_at = still_open.coordinates
    assert (erased["contents"], erased["runs"]) == (4, {"deleted": 1, "gone": 1, "open": 1})
    assert erased["open_runs"] == [[open_at.workflow_id, open_at.run_id]]
    assert any("outbox" in where for where in erased["out_of_reach"])
    assert await hits(database_url, TEXT) == {}

    await client.get_workflow_handle(open_at.workflow_id).terminate("done")
    again = await history_command(environ, *command)
    assert "still open" not in again.output
    assert PERSON not in again.output


@pytest.mark.long
async def test_temporal_forgets_a_deleted_run_in_its_own_time(
    environ: dict[str, str], store: PostgresStore, temporal_address: str
) -> None:
    client = await Client.connect(temporal_address)
    one = await started(client, "forgotten", closed=True)
    await store.record([one])
    await history_command(environ, "erase", "--tenant", "acme", "--resource", PERSON, "--by", "Ada")
    await forgotten(client, one)


@pytest.mark.slow
async def test_erase_works_without_temporal_and_says_that_runs_are_out_of_reach(
    environ: dict[str, str], store: PostgresStore, database_url: str
) -> None:
    await store.record([about("w")])
    environ["TEMPORAL_ADDRESS"] = "127.0.0.1:9"
    erased = (
        await history_command(
            environ, "erase", "--tenant", "acme", "--resource", PERSON, "--by", "Ada", "--json"
        )
    ).json
    assert erased["runs"] == {"out_of_reach": 1}
    assert "Temporal does not answer" in erased["out_of_reach"][0]
    assert await hits(database_url, TEXT) == {}


@pytest.mark.slow
async def test_a_hold_is_placed_listed_and_released_and_refuses_an_erasure_meanwhile(
    environ: dict[str, str], store: PostgresStore, database_url: str
) -> None:
    await store.record([about("w")])
    person = ("--tenant", "acme", "--resource", PERSON)
    placed = (
        await history_command(
            environ, "hold", "add", *person, "--reason", "case [12]", "--by", "Lee", "--json"
        )
    ).json
    refused = await run("history", "erase", *person, "--by", "Ada", environ=environ)
    assert refused.code == 1
    assert "under legal hold" in refused.sentence
    assert placed["hold_id"] in refused.sentence
    assert PERSON not in refused.sentence
    listed = await history_command(environ, "hold", "list", "--tenant", "acme")
    assert "case [12]" in listed.output
    await history_command(environ, "hold", "release", placed["hold_id"], "--tenant", "acme", "--by", "Lee")
    past = (await history_command(environ, "hold", "list", "--tenant", "acme", "--released", "--json")).json
    assert [hold["released_by"] for hold in past["holds"]] == ["Lee"]
    await history_command(environ, "erase", *person, "--by", "Ada")
    assert await hits(database_url, TEXT) == {}


@pytest.mark.slow
async def test_retain_drops_months_and_verify_passes_or_the_gap_is_announced(
    environ: dict[str, str], store: PostgresStore, database_url: str
) -> None:
    await store.record([decision("old", decided_at=LONG_AGO), decision("new")])
    await ensure_partitions(database_url)
    retain = ("retain", "--older-than", "400d")
    dry = (await history_command(environ, *retain, "--dry-run", "--json")).json
    assert (dry["months"], dry["decisions"]) == (["2024_01"], {"acme": 1})

    with_key = environ | {"CLASSIFIER_SEAL_KEY": new_key()}
    dropped = await history_command(with_key, *retain)
    assert "months dropped: 2024_01" in dropped.output
    assert "1 signed stubs" in dropped.output
    await history_command(with_key, "verify")

    await store.record([decision("late", decided_at=LONG_AGO)])
    await ensure_partitions(database_url)
    announced = await history_command(environ, *retain, "--json")
    assert announced.json["verify_will_report_a_gap"]
    async with History(database_url) as history:
        assert {event.actor for event in await history.events("acme", "")} == {"retention"}


@pytest.mark.slow
async def test_retain_empties_the_contents_of_one_tenant(
    environ: dict[str, str], store: PostgresStore, database_url: str
) -> None:
    await store.record([about("w"), about("w", tenant="globex")])
    emptied = await history_command(
        environ, "retain", "--tenant", "acme", "--contents-older-than", "0h", "--by", "Ada"
    )
    assert "contents of 1 decisions" in emptied.output
    assert await hits(database_url, TEXT) == {"decision_contents": 1}


@pytest.mark.slow
async def test_a_worker_drops_what_is_old_of_its_own_accord(
    environ: dict[str, str], store: PostgresStore, database_url: str, temporal_address: str
) -> None:
    await store.record([about("old", tenant="default", decided_at=LONG_AGO)])
    await ensure_partitions(database_url)
    queue = f"keeping-{uuid.uuid4()}"
    environ |= {"CLASSIFIER_RETENTION": "52w", "CLASSIFIER_TASK_QUEUE": queue}
    schedule = (await Client.connect(temporal_address)).get_schedule_handle(f"{queue}-housekeeping")
    off = environ | {"CLASSIFIER_HOUSEKEEPING": "no", "CLASSIFIER_TASK_QUEUE": f"{queue}-off"}
    async with (
        process_started("worker", environ=environ) as worker,
        process_started("worker", environ=off) as without,
    ):
        await asyncio.gather(worker.said("stop with Ctrl-C"), without.said("stop with Ctrl-C"))
        async with asyncio.timeout(PATIENCE):
            while await hits(database_url, TEXT):
                await asyncio.sleep(0.1)
        for each in await asyncio.gather(worker.terminated(), without.terminated()):
            assert each.code == 0, each.errors
    await schedule.delete()
    never = (await Client.connect(temporal_address)).get_schedule_handle(f"{queue}-off-housekeeping")
    with pytest.raises(RPCError, match="not found"):
        await never.describe()


@pytest.mark.slow
async def test_what_is_wrong_is_one_sentence(environ: dict[str, str]) -> None:
    wrong = {
        ("retain",): "say how old",
        ("retain", "--older-than", "soon"): "'soon' is no length of time",
        ("retain", "--contents-older-than", "3d"): "go together",
        ("hold", "release", "x", "--by", "Lee"): "'x' is not a hold's id",
    }
    finished = await asyncio.gather(*(run("history", *words, environ=environ) for words in wrong))
    for each, said in zip(finished, wrong.values(), strict=True):
        assert each.code == 1
        assert said in each.sentence
