"""Everyday commands on servers that are given, with a worker that runs: triage, history, review, check.

One database and one worker live through the module, in the order of the tests; every command is a process.
"""

from __future__ import annotations

import asyncio
import json
import shutil
import uuid
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import pytest

from tests.postgres import PostgresServer
from tests.processes import Finished, environment, run, started, state_folder
from tests.servers import Answer, Server

ROUTED = [f"invoice {number}" for number in range(7)]
UNSURE = [f"an unsure one, {number}" for number in range(3)]
REFUSED = "a broken card"
SOURCE = f"commands-{uuid.uuid4()}"
"""Nobody else's on the server that all tests share."""
pytestmark = pytest.mark.slow


def event(name: str, data: object) -> bytes:
    body = {"specversion": "1.0", "id": name, "source": SOURCE, "type": "test", "data": data}
    return json.dumps(body).encode()


def tickets(*texts: str) -> bytes:
    return b"\n".join(event(text, {"text": text}) for text in texts)


@pytest.fixture(scope="module")
async def hook() -> AsyncGenerator[Server]:
    """Refuses for good, twice, and takes what comes then."""
    async with Server([Answer(status=404), Answer(status=410), Answer()]) as server:
        yield server


@pytest.fixture(scope="module")
async def environ(
    postgres_server: PostgresServer, temporal_address: str, hook: Server
) -> AsyncGenerator[dict[str, str]]:
    with state_folder() as home:
        async with postgres_server.database() as url:
            yield environment(
                home,
                TEMPORAL_ADDRESS=temporal_address,
                DATABASE_URL=url,
                CLASSIFIER_HASH_KEY="only-for-tests",
                CLASSIFIER_TASK_QUEUE=f"queue-{uuid.uuid4()}",
                CLASSIFIER_APP="tests.apps.tickets:app",
                HOOK_URL=hook.url,
                HOOK_TOKEN="sk-test-123",
            )


@pytest.fixture(scope="module")
async def triaged(environ: dict[str, str]) -> AsyncGenerator[Finished]:
    """What `triage` said, while the worker that did the work goes on."""
    async with started("worker", environ=environ) as worker:
        await worker.said("stop with Ctrl-C")
        given = tickets(*ROUTED, *UNSURE, REFUSED)
        yield await run("triage", "-", "--json", environ=environ, given=given)


async def waiting(environ: dict[str, str]) -> dict[str, dict[str, Any]]:
    """What `review list` says, by text."""
    listed = await run("review", "list", "--json", environ=environ)
    return {one["state"]: one for one in listed.json["waiting"]}


def outbox(environ: dict[str, str], decision_id: str) -> list[dict[str, Any]]:
    """What was delivered by this decision."""
    lines = (Path(environ["CLASSIFIER_HOME"]) / "outbox.jsonl").read_text(encoding="utf-8").splitlines()
    return [line for line in map(json.loads, lines) if line["decision_id"] == decision_id]


def test_triage_counts_an_event_that_nobody_would_take_as_a_dead_letter(triaged: Finished) -> None:
    assert triaged.code == 0, triaged.errors
    summary = triaged.json
    assert (summary["started"], summary["decisions"], summary["temporal_ui"]) == (11, 11, None)
    assert summary["routes"] == {"billing": len(ROUTED)}
    assert summary["reviews"] == len(UNSURE)
    assert summary["reasons"] == {"low_probability:department": len(UNSURE)}
    assert summary["dead_letters"] == {"DELIVERY_REJECTED": 1}


async def test_the_same_events_again_are_known_and_nobody_waits_for_what_a_person_has_to_decide(
    environ: dict[str, str], triaged: Finished
) -> None:
    again = await run("triage", "-", "--json", environ=environ, given=tickets(REFUSED, *UNSURE, *ROUTED))
    assert (again.json["started"], again.json["repeats"], again.json["resumed"]) == (0, 11, 0)


async def test_review_list_says_why_each_event_waits_and_how_to_decide(
    environ: dict[str, str], triaged: Finished
) -> None:
    found, table = await asyncio.gather(waiting(environ), run("review", "list", environ=environ))
    assert {text: one["review"]["reasons"] for text, one in found.items()} == {
        text: ["low_probability:department"] for text in UNSURE
    }
    words = table.output.split()
    assert "(low_probability:department)" in words
    hint = table.output.partition("decide: ")[2].split()
    assert shutil.which(hint[0]), "what is printed can be typed"
    assert hint[1:3] == ["review", "decide"]
    assert hint[3] in {one["decision_id"] for one in found.values()}


async def test_history_list_filters_and_pages(environ: dict[str, str], triaged: Finished) -> None:
    page, table, technical, earlier = await asyncio.gather(
        run("history", "list", "--json", "--limit", "5", environ=environ),
        run("history", "list", "--limit", "5", environ=environ),
        run(
            *("history", "list", "--json", "--action", "route", "--where", "department = technical"),
            environ=environ,
        ),
        run("history", "list", "--until", "1h", "--json", environ=environ),
    )
    assert "Decisions, newest first" in table.output
    cursor = page.json["next_cursor"]
    assert f"more: --cursor {cursor}" in table.output
    assert [decision["branch"]["route"] for decision in technical.json["decisions"]] == ["technical"]
    assert earlier.json["decisions"] == []
    following = await run("history", "list", "--json", "--limit", "5", "--cursor", cursor, environ=environ)
    ids = [decision["decision_id"] for decision in page.json["decisions"] + following.json["decisions"]]
    assert len(ids) == len(set(ids)) == 10


async def test_a_persons_choice_is_delivered_and_stays_on_record(
    environ: dict[str, str], triaged: Finished
) -> None:
    decision = (await waiting(environ))[UNSURE[0]]["decision_id"]
    choice = (
        *("review", "decide", decision, "--route", "billing"),
        *("--by", "Zoë [ops]", "--reason", "knows it"),
    )
    decided = await run(*choice, "--json", environ=environ)
    assert decided.code == 0, decided.errors
    assert decided.json == {
        "decision_id": decision,
        "route": "billing",
        "state": "delivered",
        "by": "Zoë [ops]",
    }
    (line,) = outbox(environ, decision)
    assert (line["route"], line["decided_by"]) == ("billing", "Zoë [ops]")
    shown, table, left, again = await asyncio.gather(
        run("history", "show", decision, "--json", environ=environ),
        run("history", "show", decision, environ=environ),
        waiting(environ),
        run(*choice, environ=environ),
    )
    review, delivery = shown.json["events"]
    assert (review["kind"], review["actor"], review["body"]["reason"]) == ("review", "Zoë [ops]", "knows it")
    assert (delivery["kind"], delivery["actor"]) == ("delivery", "Zoë [ops]")
    for part in (decision, "Zoë [ops]", "department", "gates", "model that answered", "workflow"):
        assert part in table.output
    assert UNSURE[0] not in left
    assert again.code == 1
    assert "nothing waits" in again.sentence


async def letters(environ: dict[str, str], *options: str) -> list[dict[str, Any]]:
    """What `deadletters list` says."""
    listed = await run("deadletters", "list", "--json", *options, environ=environ)
    return list(listed.json["dead_letters"])


async def test_tri_o05_a_dead_letter_is_listed_shown_and_replayed_until_somebody_takes_it(
    environ: dict[str, str], triaged: Finished, hook: Server
) -> None:
    (letter,) = await letters(environ)
    assert (letter["event"], letter["stage"], letter["route"]) == (REFUSED, "deliver", "technical")
    assert (letter["code"], letter["status"], letter["attempts"]) == ("DELIVERY_REJECTED", 404, 1)
    name = letter["run"]
    table, shown, planned, checked = await asyncio.gather(
        run("deadletters", "list", environ=environ),
        run("deadletters", "show", name, environ=environ),
        run("deadletters", "drop", "--all", "--by", "Zoë", "--dry-run", environ=environ),
        run("check", "--json", environ=environ),
    )
    assert {name, "DELIVERY_REJECTED", "404"} <= set(table.output.split())
    assert {"dead_letter", letter["decision_id"]} <= set(shown.output.split())
    assert "would drop 1 dead letters" in planned.output
    assert "default: 1" in str(checked.json["findings"])
    again = await run("deadletters", "replay", name, "--by", "Zoë", environ=environ)
    assert (again.code, "dead_letter (DELIVERY_REJECTED)" in again.output) == (3, True), again.errors
    replay = ("deadletters", "replay", "--all", "--stage", "deliver", "--by", "Zoë", "--reason", "mended")
    replayed = await run(*replay, "--json", environ=environ)
    assert replayed.code == 0, replayed.errors
    assert replayed.json["outcomes"] == [{"run": name, "state": "delivered", "detail": "webhook 127.0.0.1"}]
    assert len({call.headers["idempotency-key"] for call in hook.calls}) == 1
    history = await run("history", "show", letter["decision_id"], "--json", environ=environ)
    kinds = [event["kind"] for event in history.json["events"]]
    assert kinds == ["dead_letter", "replay", "dead_letter", "replay", "delivery"]
    assert history.json["events"][3]["body"]["reason"] == "mended"
    assert await letters(environ) == []


async def test_orders_about_dead_letters_that_make_no_sense_are_refused_with_one_sentence(
    environ: dict[str, str], triaged: Finished
) -> None:
    unknown, both, neither, narrowed = await asyncio.gather(
        run("deadletters", "replay", "triage-0", "--by", "Zoë", environ=environ),
        run("deadletters", "drop", "triage-0", "--all", "--by", "Zoë", environ=environ),
        run("deadletters", "drop", "--by", "Zoë", environ=environ),
        run("deadletters", "drop", "triage-0", "--stage", "decide", "--by", "Zoë", environ=environ),
    )
    assert (unknown.code, "has no dead letter triage-0" in unknown.sentence) == (1, True)
    assert [both.code, neither.code, narrowed.code] == [2, 2, 2]


async def test_a_choice_that_cannot_be_carried_out_is_refused_with_one_sentence(
    environ: dict[str, str], triaged: Finished
) -> None:
    decision = (await waiting(environ))[UNSURE[1]]["decision_id"]
    elsewhere = environ | {"CLASSIFIER_TASK_QUEUE": "nobody-polls-this"}
    choice = ("--route", "[/moon]", "--by", "Zoë")
    unknown_route, unknown_decision, nobody = await asyncio.gather(
        run("review", "decide", decision, *choice, environ=environ),
        run("review", "decide", decision.replace(decision[:8], "0" * 8), *choice, environ=environ),
        run("review", "decide", decision, *choice, environ=elsewhere),
    )
    assert "there is no route '[/moon]'; routes: billing, technical" in unknown_route.sentence
    assert "has no decision" in unknown_decision.sentence
    assert nobody.sentence == (
        "no worker polls the queue 'nobody-polls-this'; start one with `classifier worker`"
    )


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
    "steering": "unsure \0 \ud800 \udc00 \x1b[2J\x1b]0;owned\x07 where is [/bold] my [red]card[/] \u202edrac",
}


async def test_bad_lines_are_reported_by_number_and_the_rest_go_on(
    environ: dict[str, str], triaged: Finished
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
    environ: dict[str, str], triaged: Finished
) -> None:
    listed = await run("history", "list", "--tenant", "odd", "--json", environ=environ)
    decisions = {each["ids"]["message"]: each for each in listed.json["decisions"]}
    assert {name: each["state"] for name, each in decisions.items()} == ODD
    shown, reviews = await asyncio.gather(
        run("history", "show", decisions["steering"]["decision_id"], "--tenant", "odd", environ=environ),
        run("review", "list", "--tenant", "odd", environ=environ),
    )
    for each in (shown, reviews):
        assert each.code == 0, each.errors
        assert not {"\x1b", "\0", "\u202e"} & set(each.output)
    assert "[/bold] my [red]card[/]" in shown.output


async def test_migrate_and_check_are_content(environ: dict[str, str], triaged: Finished) -> None:
    migrated, checked = await asyncio.gather(run("migrate", environ=environ), run("check", environ=environ))
    assert migrated.code == checked.code == 0, migrated.errors
    assert "is up to date" in migrated.errors
    assert "restricted roles" in checked.output
