"""Somebody's first hour: a file is decided with nothing configured, reviewed, interrupted, and given again.

One state folder lives through the whole module, in the order of the tests; every command is a process.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
from collections import Counter
from collections.abc import AsyncGenerator, Generator
from pathlib import Path
from typing import Any

import psutil
import pytest

from embedded.stack import Addresses, running
from tests.processes import (
    Finished,
    Running,
    descendants,
    environment,
    peak_memory,
    run,
    run_on_a_terminal,
    started,
    state_folder,
    until,
)
from tests.tree import ROOT

TICKETS = (ROOT / "examples" / "tickets.jsonl").read_bytes().splitlines(keepends=True)
FIRST, SECOND, THIRD = TICKETS[:20], TICKETS[20:50], TICKETS[50:75]
pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def home() -> Generator[Path]:
    with state_folder() as folder:
        yield folder


@pytest.fixture(scope="module")
def file(home: Path) -> Path:
    """A file of twenty tickets."""
    path = home / "twenty.jsonl"
    path.write_bytes(b"".join(FIRST))
    return path


@pytest.fixture(scope="module")
async def first(home: Path, file: Path) -> Finished:
    """What the first run of all printed."""
    async with started("triage", str(file), environ=environment(home / "state")) as process:
        return await process.finished()


@pytest.fixture(scope="module")
def environ(home: Path, first: Finished) -> dict[str, str]:
    """The environment after it."""
    return environment(home / "state")


@pytest.fixture(scope="module")
async def up(environ: dict[str, str]) -> AsyncGenerator[Running]:
    """`classifier up` on the same folder."""
    async with started("up", environ=environ) as process:
        await process.said("stop with Ctrl-C")
        yield process


@pytest.fixture(scope="module")
def addresses(up: Running, home: Path) -> Addresses:
    found = running(home / "state")
    assert found is not None
    return found


def outbox(home: Path) -> list[dict[str, Any]]:
    lines = (home / "state" / "outbox.jsonl").read_text(encoding="utf-8").splitlines()
    return [json.loads(line) for line in lines]


def numbers(printed: str) -> dict[str, str]:
    """The table of totals."""
    pairs = (line.rsplit(maxsplit=1) for line in printed.partition("In total")[2].splitlines())
    return {pair[0].strip(): pair[1] for pair in pairs if len(pair) == 2}


def test_the_first_run_decides_every_ticket_and_says_what_happened(first: Finished) -> None:
    assert first.code == 0, first.errors
    total = numbers(first.output)
    assert total["events read"] == total["new runs"] == total["decisions recorded"] == "20"
    assert int(total["delivered"]) + int(total["waiting for review"]) == 20
    for part in ("Delivered", "Waiting for a person, and why", "Temporal UI: http://127.0.0.1:", "Next:"):
        assert part in first.output
    assert "low_probability:department" in first.output


def test_progress_without_a_terminal_is_plain_lines_on_standard_error(first: Finished) -> None:
    *_, last = lines = first.errors.splitlines()
    assert last == "20 of 20 events done"
    assert all(line.endswith(" of 20 events done") for line in lines), first.errors
    assert "\x1b" not in first.output + first.errors


def test_nothing_is_left_running(first: Finished, home: Path) -> None:
    assert running(home / "state") is None
    assert not [
        process.pid
        for process in psutil.process_iter(["cmdline"])
        if str(home) in str(process.info["cmdline"])
    ]


def test_every_delivery_is_one_line_of_the_outbox(first: Finished, home: Path) -> None:
    lines = outbox(home)
    assert len(lines) == int(numbers(first.output)["delivered"])
    assert len({line["key"] for line in lines}) == len({line["event"]["id"] for line in lines}) == len(lines)


async def test_a_choice_starts_what_it_needs_and_ends_it(environ: dict[str, str], home: Path) -> None:
    listed = await run("review", "list", "--json", environ=environ)
    decision = listed.json["waiting"][0]["decision_id"]
    choice = ("review", "decide", decision, "--route", "security", "--by", "Zoë")
    decided = await run(*choice, "--json", environ=environ)
    assert (decided.code, decided.json["state"]) == (0, "delivered"), decided.errors
    (line,) = [line for line in outbox(home) if line["decision_id"] == decision]
    assert (line["route"], line["decided_by"]) == ("security", "Zoë")
    assert running(home / "state") is None


async def test_on_a_terminal_a_second_run_shows_a_bar_and_knows_every_event(
    up: Running, environ: dict[str, str], file: Path
) -> None:
    code, screen = await run_on_a_terminal("triage", str(file), environ=environ | {"TERM": "xterm-256color"})
    assert code == 0, screen
    assert "\x1b[" in screen
    assert "20/20" in screen
    total = numbers(screen)
    assert (total["new runs"], total["known already"], total["decisions recorded"]) == ("0", "20", "0")


async def test_triage_attaches_to_a_running_up_whose_memory_stays_under_400_mb(
    up: Running, environ: dict[str, str]
) -> None:
    """It is the stack's keeper and a worker with the local model; no worker alone can need more."""
    finished = await run("triage", "-", "--json", environ=environ, given=b"".join(SECOND))
    assert finished.code == 0, finished.errors
    assert (finished.json["started"], finished.json["decisions"]) == (len(SECOND), len(SECOND))
    assert finished.json["temporal_ui"] in up.errors
    assert peak_memory(up.pid) < 400


async def test_a_second_up_on_the_same_folder_is_refused_with_one_sentence(
    up: Running, environ: dict[str, str], home: Path
) -> None:
    second = await run("up", environ=environ)
    assert second.code == 1
    assert second.sentence == (
        f"The stack in {home / 'state'} is already run by process {up.pid}: "
        "stop it, or set CLASSIFIER_HOME to another folder."
    )


async def test_only_the_part_that_is_not_given_is_started(addresses: Addresses) -> None:
    """The running stack stands in for servers of one's own; each command gets a fresh state folder."""
    assert addresses.temporal_address
    assert addresses.database_url
    light = {"CLASSIFIER_APP": "tests.apps.tickets:app", "HOOK_URL": "http://127.0.0.1:9/", "HOOK_TOKEN": "t"}
    with state_folder() as ours, state_folder() as theirs:
        only_postgres = environment(
            ours, TEMPORAL_ADDRESS=addresses.temporal_address, CLASSIFIER_TASK_QUEUE="apart", **light
        )
        only_temporal = environment(
            theirs, DATABASE_URL=addresses.database_url, CLASSIFIER_HASH_KEY="only-for-tests", **light
        )
        async with (
            started("up", environ=only_postgres) as first,
            started("up", environ=only_temporal) as second,
        ):
            await first.said("stop with Ctrl-C")
            await second.said("stop with Ctrl-C")
            children = [descendants(process.pid) for process in (first, second)]
            names = [{child.name() for child in found} for found in children]
            assert ["postgres" in found for found in names] == [True, False]
            assert ["temporal" in found for found in names] == [False, True]
            finished = await run(
                *("triage", "-", "--tenant", "apart", "--json"),
                environ=only_postgres,
                given=b"".join(TICKETS[:1]),
            )
            assert (finished.code, finished.json["temporal_ui"]) == (0, None), finished.errors
            stopped = await asyncio.gather(first.interrupted(), second.terminated())
    for each in stopped:
        assert (each.code, each.output) == (0, "")
        assert "Traceback" not in each.errors
    assert not [child.pid for found in children for child in found if child.is_running()]


async def test_up_ends_with_one_sentence_when_a_part_dies(up: Running, environ: dict[str, str]) -> None:
    (server,) = [child for child in descendants(up.pid) if child.name() == "temporal"]
    os.kill(server.pid, signal.SIGKILL)
    finished = await up.finished()
    assert finished.code == 1
    assert "Traceback" not in finished.errors
    assert finished.errors.splitlines()[-1].startswith("error Temporal")


async def test_what_temporal_has_forgotten_is_still_known(
    environ: dict[str, str], home: Path, file: Path
) -> None:
    for path in (home / "state").glob("temporal.db*"):
        path.unlink()
    before = len(outbox(home))
    again = await run("triage", str(file), "--json", environ=environ)
    assert again.code == 0, again.errors
    assert (again.json["started"], again.json["repeats"], again.json["decisions"]) == (0, 20, 0)
    assert len(outbox(home)) == before


async def test_a_run_that_was_cut_short_is_finished_by_the_next_one(
    environ: dict[str, str], home: Path
) -> None:
    path = home / "third.jsonl"
    path.write_bytes(b"".join(THIRD))
    before = len(outbox(home))
    async with started("triage", str(path), environ=environ) as process:
        await until(lambda: len(outbox(home)) > before)
        finished = await process.interrupted()
    assert finished.code == 130
    assert "Traceback" not in finished.errors
    again = await run("triage", str(path), "--json", environ=environ)
    assert again.code == 0, again.errors
    summary = again.json
    assert summary["started"] + summary["repeats"] == len(THIRD)
    assert summary["decisions"] == summary["started"] + summary["resumed"]
    listed = await run("history", "list", "--limit", "1000", "--json", environ=environ)
    messages = Counter(decision["ids"]["message"] for decision in listed.json["decisions"])
    assert messages == Counter(json.loads(line)["id"] for line in FIRST + SECOND + THIRD)
    delivered = Counter(line["event"]["id"] for line in outbox(home))
    assert set(delivered.values()) == {1}
