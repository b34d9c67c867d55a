"""Somebody's first hour: a file is decided with nothing configured, looked at, reviewed, and given again.

One state folder lives through the whole module, in the order of the tests; every command is a process.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
import time
from collections import Counter
from collections.abc import AsyncGenerator, Generator
from pathlib import Path
from typing import Any

import psutil
import pytest
from temporalio.api.common.v1 import WorkflowExecution
from temporalio.api.workflowservice.v1 import DeleteWorkflowExecutionRequest
from temporalio.client import Client
from temporalio.service import RPCError, RPCStatusCode

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
from workflows.messages import triage_workflow_id

TICKETS = (ROOT / "examples" / "tickets.jsonl").read_bytes().splitlines(keepends=True)
FIRST, SECOND = TICKETS[:60], TICKETS[60:120]
pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def home() -> Generator[Path]:
    with state_folder() as folder:
        yield folder


@pytest.fixture(scope="module")
def file(home: Path) -> Path:
    """A file of sixty tickets."""
    path = home / "sixty.jsonl"
    path.write_bytes(b"".join(FIRST))
    return path


@pytest.fixture(scope="module")
async def first(home: Path, file: Path) -> Finished:
    """What the first run of all printed."""
    return await run("triage", str(file), environ=environment(home / "state"))


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


@pytest.fixture(scope="module")
async def waiting(up: Running, environ: dict[str, str]) -> list[dict[str, Any]]:
    """What `review list` says."""
    listed = await run("review", "list", "--json", environ=environ)
    found: list[dict[str, Any]] = listed.json["waiting"]
    assert len(found) > 1
    return found


@pytest.fixture(scope="module")
async def forgotten(addresses: Addresses, home: Path) -> str:
    """A delivered event's workflow, whose deletion is asked for early: it takes Temporal a minute."""
    assert addresses.temporal_address
    client = await Client.connect(addresses.temporal_address)
    known = outbox(home)[0]["event"]
    workflow_id = triage_workflow_id("default", known["source"], known["id"])
    await client.workflow_service.delete_workflow_execution(
        DeleteWorkflowExecutionRequest(
            namespace=client.namespace, workflow_execution=WorkflowExecution(workflow_id=workflow_id)
        )
    )
    return workflow_id


def outbox(home: Path) -> list[dict[str, Any]]:
    lines = (home / "state" / "outbox.jsonl").read_text(encoding="utf-8").splitlines()
    return [json.loads(line) for line in lines]


def event(name: str, data: object) -> bytes:
    body = {"specversion": "1.0", "id": name, "source": "made-up", "type": "test", "data": data}
    return json.dumps(body).encode()


def numbers(printed: str) -> dict[str, str]:
    """The table of totals."""
    pairs = (line.rsplit(maxsplit=1) for line in printed.partition("In total")[2].splitlines())
    return {pair[0].strip(): pair[1] for pair in pairs if len(pair) == 2}


def test_the_first_run_decides_every_ticket_and_says_what_happened(first: Finished) -> None:
    assert first.code == 0, first.errors
    total = numbers(first.output)
    assert total["events read"] == total["new runs"] == total["decisions recorded"] == "60"
    assert int(total["delivered"]) + int(total["waiting for review"]) == 60
    for part in ("Delivered", "Waiting for a person, and why", "Temporal UI: http://127.0.0.1:", "Next:"):
        assert part in first.output
    assert "low_probability:department" in first.output


def test_progress_without_a_terminal_is_plain_lines_on_standard_error(first: Finished) -> None:
    *_, last = lines = first.errors.splitlines()
    assert last == "60 of 60 events done"
    assert all(line.endswith(" of 60 events done") for line in lines), first.errors
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


async def test_a_later_start_of_the_stack_takes_a_few_seconds(environ: dict[str, str]) -> None:
    began = time.monotonic()
    async with started("up", environ=environ) as process:
        await process.said("stop with Ctrl-C")
        took = time.monotonic() - began
        children = descendants(process.pid)
        assert {"temporal", "postgres"} <= {child.name() for child in children}
        finished = await process.interrupted()
    assert took < 15, "5 s on a quiet machine, the start of Python included"
    assert (finished.code, finished.output) == (0, "")
    assert "Traceback" not in finished.errors
    assert not [child.pid for child in children if child.is_running()]


async def test_on_a_terminal_a_second_run_shows_a_bar_and_knows_every_event(
    environ: dict[str, str], file: Path
) -> None:
    code, screen = await run_on_a_terminal("triage", str(file), environ=environ | {"TERM": "xterm-256color"})
    assert code == 0, screen
    assert "\x1b[" in screen
    assert "60/60" in screen
    total = numbers(screen)
    assert (total["new runs"], total["known already"], total["decisions recorded"]) == ("0", "60", "0")


async def test_triage_attaches_to_a_running_up_whose_memory_stays_under_400_mb(
    up: Running, forgotten: str, environ: dict[str, str]
) -> None:
    finished = await run("triage", "-", "--json", environ=environ, given=b"".join(SECOND))
    assert finished.code == 0, finished.errors
    assert (finished.json["started"], finished.json["decisions"]) == (60, 60)
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


async def test_history_list_filters_and_pages(up: Running, environ: dict[str, str]) -> None:
    found = await asyncio.gather(
        run("history", "list", "--json", "--limit", "5", environ=environ),
        run(
            "history",
            "list",
            "--json",
            "--action",
            "route",
            "--where",
            "department = exchange",
            environ=environ,
        ),
        run("history", "list", "--json", "--tenant", "somebody-else", environ=environ),
        run("history", "list", "--until", "1h", "--json", environ=environ),
    )
    page, exchange, elsewhere, earlier = (finished.json for finished in found)
    assert len(page["decisions"]) == 5
    assert page["next_cursor"]
    assert exchange["decisions"]
    assert {decision["branch"]["route"] for decision in exchange["decisions"]} == {"exchange"}
    assert elsewhere["decisions"] == earlier["decisions"] == []
    following = await run(
        "history", "list", "--json", "--limit", "5", "--cursor", page["next_cursor"], environ=environ
    )
    ids = [decision["decision_id"] for decision in page["decisions"] + following.json["decisions"]]
    assert len(set(ids)) == 10


async def test_history_and_reviews_are_tables_for_people(
    up: Running, environ: dict[str, str], waiting: list[dict[str, Any]]
) -> None:
    history, reviews, shown = await asyncio.gather(
        run("history", "list", environ=environ),
        run("review", "list", environ=environ),
        run("history", "show", waiting[0]["decision_id"], environ=environ),
    )
    assert "Decisions, newest first" in history.output
    assert "more: --cursor " in history.output
    hint = reviews.output.partition("decide: ")[2].split()
    assert shutil.which(hint[0]), "what is printed can be typed"
    assert hint[1:4] == ["review", "decide", waiting[0]["decision_id"]]
    assert "low_probability:department" in reviews.output
    for part in (
        waiting[0]["decision_id"],
        "department",
        "P(yes)",
        "gates",
        "model that answered",
        "workflow",
    ):
        assert part in shown.output


async def test_a_persons_choice_is_delivered_and_stays_on_record(
    up: Running, environ: dict[str, str], waiting: list[dict[str, Any]], home: Path
) -> None:
    decision = waiting[0]["decision_id"]
    choice = (
        "review",
        "decide",
        decision,
        "--route",
        "security",
        "--by",
        "Zoë [ops]",
        "--reason",
        "knows it",
    )
    decided = await run(*choice, "--json", environ=environ)
    assert decided.code == 0, decided.errors
    assert decided.json == {
        "decision_id": decision,
        "route": "security",
        "state": "delivered",
        "by": "Zoë [ops]",
    }
    (line,) = [line for line in outbox(home) if line["decision_id"] == decision]
    assert (line["route"], line["decided_by"]) == ("security", "Zoë [ops]")
    shown, table, left, again = await asyncio.gather(
        run("history", "show", decision, "--json", environ=environ),
        run("history", "show", decision, environ=environ),
        run("review", "list", "--json", "--limit", "1000", environ=environ),
        run(*choice, environ=environ),
    )
    review, delivery = shown.json["events"]
    assert (review["kind"], review["actor"], review["body"]["reason"]) == ("review", "Zoë [ops]", "knows it")
    assert (delivery["kind"], delivery["actor"]) == ("delivery", "Zoë [ops]")
    assert "Zoë [ops]" in table.output
    assert decision not in {each["decision_id"] for each in left.json["waiting"]}
    assert again.code == 1
    assert "nothing waits" in again.sentence


async def test_a_choice_that_cannot_be_carried_out_is_refused_with_one_sentence(
    up: Running, environ: dict[str, str], waiting: list[dict[str, Any]]
) -> None:
    decision = waiting[1]["decision_id"]
    unknown_route, unknown_decision, no_decision = await asyncio.gather(
        run("review", "decide", decision, "--route", "[/moon]", "--by", "Zoë", environ=environ),
        run(
            "review",
            "decide",
            decision.replace(decision[:8], "0" * 8),
            "--route",
            "security",
            "--by",
            "Zoë",
            environ=environ,
        ),
        run("review", "decide", "nonsense", "--route", "security", "--by", "Zoë", environ=environ),
    )
    assert "there is no route '[/moon]'; routes: account, " in unknown_route.sentence
    assert "has no decision" in unknown_decision.sentence
    assert "is not a decision's id" in no_decision.sentence


BAD: dict[str, bytes] = {
    "not JSON": b"{oops",
    "missing": b'{"specversion": "1.0", "source": "bad", "type": "t", "data": "no id"}',
    "the limit is": event("big", "x" * 3_000_000),
    "no text to decide on": event("empty", {"text": ""}),
    "not UTF-8": event("latin", "caf?").replace(b"?", b"\xe9"),
    "id holds": event("\0", "NUL in its id"),
}
ODD = {
    "arabic": "مرحبا، سُرقت بطاقتي أمس وأحتاج إلى المساعدة",
    "nul": "where is \0 my card?",
    "surrogate": "where is \ud800 my \udc00 card?",
    "steering": "\x1b[2J\x1b]0;owned\x07 where is [/bold] my [red]card[/] \u202edrac",
}


async def test_bad_lines_are_reported_by_number_and_the_rest_go_on(
    up: Running, environ: dict[str, str]
) -> None:
    odd = [event(name, {"text": text}) for name, text in ODD.items()]
    given = b"\n".join([*BAD.values(), b"", *odd])
    finished = await run("triage", "-", "--tenant", "odd", "--json", environ=environ, given=given)
    assert finished.code == 3, finished.errors
    rejected = finished.json["rejected"]
    assert [each["line"] for each in rejected] == list(range(1, len(BAD) + 1))
    for part, each in zip(BAD, rejected, strict=True):
        assert part in each["reason"]
    assert (finished.json["started"], finished.json["decisions"]) == (len(ODD), len(ODD))
    again = await run("triage", "-", "--tenant", "odd", environ=environ, given=given)
    assert again.code == 3
    assert "Rejected lines: 6" in again.output
    assert "known already" in again.output


async def test_odd_texts_are_kept_as_they_came_and_shown_without_steering_the_terminal(
    up: Running, environ: dict[str, str]
) -> None:
    listed = await run("history", "list", "--tenant", "odd", "--json", environ=environ)
    decisions = {each["ids"]["message"]: each for each in listed.json["decisions"]}
    assert {name: each["state"] for name, each in decisions.items()} == ODD
    shown = await asyncio.gather(
        *(
            run("history", "show", each["decision_id"], "--tenant", "odd", environ=environ)
            for each in decisions.values()
        ),
        run("review", "list", "--tenant", "odd", environ=environ),
    )
    for each in shown:
        assert each.code == 0, each.errors
        assert not {"\x1b", "\0", "\u202e"} & set(each.output)
    assert any("[/bold] my [red]card[/]" in each.output for each in shown)


async def test_migrate_and_check_are_content(up: Running, environ: dict[str, str]) -> None:
    migrated, checked, listed = await asyncio.gather(
        run("migrate", environ=environ),
        run("check", "--json", environ=environ),
        run("check", environ=environ),
    )
    assert migrated.code == checked.code == listed.code == 0, migrated.errors
    assert "is up to date" in migrated.errors
    assert checked.json["ok"]
    assert "restricted roles" in listed.output


async def test_only_the_part_that_is_not_given_is_started(addresses: Addresses) -> None:
    """The running stack stands in for servers of one's own; each command gets a fresh state folder."""
    assert addresses.temporal_address
    assert addresses.database_url
    with state_folder() as ours, state_folder() as theirs:
        only_postgres = environment(
            ours, TEMPORAL_ADDRESS=addresses.temporal_address, CLASSIFIER_TASK_QUEUE="apart"
        )
        only_temporal = environment(
            theirs,
            DATABASE_URL=addresses.database_url,
            CLASSIFIER_HASH_KEY="only-for-tests",
        )
        async with (
            started("up", environ=only_postgres) as first,
            started("up", environ=only_temporal) as second,
        ):
            await first.said("stop with Ctrl-C")
            await second.said("stop with Ctrl-C")
            names = [{child.name() for child in descendants(process.pid)} for process in (first, second)]
            assert ["postgres" in found for found in names] == [True, False]
            assert ["temporal" in found for found in names] == [False, True]
            finished = await run(
                "triage",
                "-",
                "--tenant",
                "apart",
                "--json",
                environ=only_postgres,
                given=event("apart", "Where is my card?"),
            )
            assert (finished.code, finished.json["temporal_ui"]) == (0, None), finished.errors
            stopped = await asyncio.gather(first.interrupted(), second.terminated())
        assert [each.code for each in stopped] == [0, 0], stopped


async def test_a_run_that_temporal_has_forgotten_is_still_known(
    environ: dict[str, str], addresses: Addresses, forgotten: str, home: Path, file: Path
) -> None:
    assert addresses.temporal_address
    await until_unknown(await Client.connect(addresses.temporal_address), forgotten)
    before = await run("history", "list", "--limit", "1000", "--json", environ=environ)
    again = await run("triage", str(file), "--json", environ=environ)
    assert again.code == 0, again.errors
    assert (again.json["started"], again.json["repeats"], again.json["decisions"]) == (0, 60, 0)
    after = await run("history", "list", "--limit", "1000", "--json", environ=environ)
    assert after.json == before.json
    assert len({line["event"]["id"] for line in outbox(home)}) == len(outbox(home))


async def until_unknown(client: Client, workflow_id: str) -> None:
    async with asyncio.timeout(120):
        while True:
            try:
                await client.get_workflow_handle(workflow_id).describe()
            except RPCError as error:
                if error.status == RPCStatusCode.NOT_FOUND:
                    return
                raise
            await asyncio.sleep(0.05)


async def test_up_ends_with_one_sentence_when_a_part_dies(up: Running, environ: dict[str, str]) -> None:
    (server,) = [child for child in descendants(up.pid) if child.name() == "temporal"]
    os.kill(server.pid, signal.SIGKILL)
    finished = await up.finished()
    assert finished.code == 1
    assert "Traceback" not in finished.errors
    assert finished.errors.splitlines()[-1].startswith("error Temporal")


async def test_a_run_that_was_cut_short_is_finished_by_the_next_one(
    environ: dict[str, str], home: Path
) -> None:
    path = home / "third.jsonl"
    path.write_bytes(b"".join(TICKETS[120:180]))
    before = len(outbox(home))
    async with started("triage", str(path), environ=environ) as process:
        await until(lambda: len(outbox(home)) > before)
        finished = await process.interrupted()
    assert finished.code == 130
    assert "Traceback" not in finished.errors
    again = await run("triage", str(path), "--json", environ=environ)
    assert again.code == 0, again.errors
    summary = again.json
    assert summary["started"] + summary["repeats"] == 60
    assert summary["decisions"] == summary["started"] + summary["resumed"]
    listed = await run("history", "list", "--limit", "1000", "--json", environ=environ)
    messages = Counter(decision["ids"]["message"] for decision in listed.json["decisions"])
    expected = {json.loads(line)["id"] for line in TICKETS[:180]}
    assert expected <= messages.keys()
    assert set(messages.values()) == {1}
