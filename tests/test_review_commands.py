"""`classifier review` by people who take turns, as processes on given servers with a worker that runs."""

from __future__ import annotations

import asyncio
import json
import uuid
from collections.abc import AsyncGenerator
from typing import Any

import pytest

from tests.postgres import PostgresServer
from tests.processes import environment, run, started, state_folder

pytestmark = pytest.mark.slow

GIVEN = ("an unsure one, 1", "an unsure one, 2")


def tickets(source: str) -> bytes:
    whole = {"specversion": "1.0", "source": source, "type": "test"}
    return b"\n".join(json.dumps({**whole, "id": text, "data": {"text": text}}).encode() for text in GIVEN)


@pytest.fixture
async def environ(postgres_server: PostgresServer, temporal_address: str) -> AsyncGenerator[dict[str, str]]:
    """Two events wait, and a worker runs."""
    queue = f"queue-{uuid.uuid4()}"
    with state_folder() as home:
        async with postgres_server.database() as url:
            environ = environment(
                home,
                TEMPORAL_ADDRESS=temporal_address,
                DATABASE_URL=url,
                CLASSIFIER_HASH_KEY="only-for-tests",
                CLASSIFIER_TASK_QUEUE=queue,
                CLASSIFIER_APP="tests.apps.tickets:app",
                HOOK_URL="http://127.0.0.1:9/",
                HOOK_TOKEN="sk-test-123",
            )
            async with started("worker", environ=environ) as worker:
                await worker.said("stop with Ctrl-C")
                done = await run("triage", "-", "--json", environ=environ, given=tickets(queue))
                assert done.json["reviews"] == len(GIVEN), done.errors
                yield environ


async def listed(environ: dict[str, str], *options: str) -> dict[str, dict[str, Any]]:
    found = await run("review", "list", "--json", *options, environ=environ)
    assert found.code == 0, found.errors
    return {one["state"]: one for one in found.json["waiting"]}


async def test_people_take_turns_and_see_what_each_of_them_does(environ: dict[str, str]) -> None:
    everything, old, playbook, none, queue, odd = await asyncio.gather(
        listed(environ),
        listed(environ, "--older-than", "0s"),
        listed(environ, "--playbook", "tickets", "--limit", "1"),
        listed(environ, "--older-than", "1h"),
        listed(environ, "--queue", "leads"),
        run("review", "list", "--older-than", "2026-01-01", environ=environ),
    )
    assert (set(everything), set(old), set(none), set(queue)) == (set(GIVEN), set(GIVEN), set(), set())
    assert len(playbook) == 1
    assert (odd.code, odd.sentence) == (
        1,
        "'2026-01-01' is no length of time; write 90s, 15m, 12h, 30d or 52w",
    )
    decision = everything[GIVEN[0]]["decision_id"]
    claimed = await run("review", "claim", decision, "--by", "Zoë [ops]", "--for", "30m", environ=environ)
    assert (claimed.code, f"{decision} is Zoë [ops]'s until 20" in claimed.output) == (0, True), (
        claimed.errors
    )
    decide = ("review", "decide", decision, "--route", "billing", "--by")
    table, shown, body, held, foreign = await asyncio.gather(
        run("review", "list", environ=environ),
        run("review", "show", decision, environ=environ),
        run("review", "show", decision, "--json", environ=environ),
        run(*decide, "Kim", environ=environ),
        run("review", "release", decision, "--by", "Kim", environ=environ),
    )
    assert "Zoë [ops] until" in " ".join(table.output.split())
    for part in (GIVEN[0], "Zoë [ops] until", "billing, technical", "department", "review_claimed"):
        assert part in shown.output
    assert (body.json["review"]["claimed_by"], body.json["routes"]) == ("Zoë [ops]", ["billing", "technical"])
    for refused in (held, foreign):
        assert refused.code == 1
        assert "somebody else has claimed the review, until 20" in refused.sentence
    released = await run("review", "release", decision, "--by", "Zoë [ops]", "--json", environ=environ)
    assert released.json == {"decision_id": decision, "by": "Zoë [ops]", "until": None}
    decided = await run(*decide, "Kim", environ=environ)
    assert decided.code == 0, decided.errors
    late, shown, left = await asyncio.gather(
        run(*decide, "Zoë [ops]", environ=environ),
        run("review", "show", decision, environ=environ),
        listed(environ),
    )
    assert late.code == 1
    assert late.sentence.endswith("has ended; nothing waits: it was delivered to billing, as Kim decided")
    assert "no: it was delivered to billing, as Kim decided" in shown.output
    assert set(left) == {GIVEN[1]}
