"""Worker processes that die by SIGKILL at the worst moments: one row per decision, and the first counts."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Literal, TypeAlias

import pytest
from temporalio.client import Client

from classifier.audit.history import History
from classifier.audit.query import DecisionQuery
from classifier.decision import Decision
from tests.apps.cliff import Point
from tests.classifier.temporal.chats import given, guarding
from tests.classifier.temporal.project.workflows import Passed
from tests.postgres import PostgresServer
from tests.processes import environment, started
from tests.servers import Answer, Call, Server

Mode: TypeAlias = Literal["remote", "local"]
IN_FLIGHT = 20
POINTS: tuple[Point, ...] = ("before the insert", "after the commit", "before the completion")
pytestmark = pytest.mark.slow


class Counted:
    """A model that finds a text a little worse each time it is asked.

    Attributes:
        answered: The probabilities each text was given, in order.
    """

    def __init__(self) -> None:
        self.answered: dict[str, list[float]] = defaultdict(list)

    def __call__(self, call: Call) -> Answer:
        given = self.answered[call.json["state"]]
        given.append(round(0.1 + len(given) / 10, 1))
        kind = {
            "type": "choice",
            "choice": "bug",
            "confidence": 0.9,
            "probabilities": {"bug": 0.9, "praise": 0.1},
        }
        return Answer(
            {"model": "m-1", "answers": {"spam": {"type": "noul", "noul": given[-1]}, "kind": kind}}
        )


@dataclass
class Aftermath:
    """What a worker that died and its successor left behind, by text.

    Attributes:
        asked_by_the_first: Requests of the worker that died.
    """

    asked_by_the_first: int
    answered: dict[str, list[float]]
    acted_on: dict[str, Passed]
    rows: dict[str, Decision]


async def crashed_at(client: Client, postgres: PostgresServer, mode: Mode, point: Point) -> Aftermath:
    queue = f"{mode}-{point.replace(' ', '-')}"
    model = Counted()
    texts = [f"message {number}" for number in range(IN_FLIGHT)]
    module = "tests.apps.guarded"
    async with postgres.database() as url, Server(model) as server:
        environ = environment(
            Path("/"),
            TEMPORAL_ADDRESS=client.service_client.config.target_host,
            DATABASE_URL=url,
            CLASSIFIER_HASH_KEY="only-for-tests",
            COUNTED_MODEL_URL=server.url,
        )
        handles = [await guarding(client, queue, given(text, local=mode == "local")) for text in texts]
        async with started(queue, point, str(IN_FLIGHT), environ=environ, module=module) as doomed:
            assert (await doomed.finished()).code == -9, doomed.errors
        asked_by_the_first = len(server.calls)
        async with started(queue, environ=environ, module=module):
            passed = await asyncio.gather(*(handle.result() for handle in handles))
        async with History(url) as history:
            rows = (await history.page(DecisionQuery(tenant="default"), 100)).decisions
    assert len(rows) == IN_FLIGHT
    return Aftermath(
        asked_by_the_first,
        model.answered,
        dict(zip(texts, passed, strict=True)),
        {str(row.state): row for row in rows},
    )


@pytest.fixture(scope="module")
async def aftermaths(client: Client, postgres_server: PostgresServer) -> dict[tuple[str, str], Aftermath]:
    """All at the same time, since most of it is waiting for Temporal to notice."""
    modes: tuple[Mode, ...] = ("remote", "local")
    cases = list(product(modes, POINTS))
    found = await asyncio.gather(*(crashed_at(client, postgres_server, *case) for case in cases))
    return dict(zip(cases, found, strict=True))


@pytest.mark.parametrize("point", POINTS)
@pytest.mark.parametrize("mode", ["remote", "local"])
def test_a_worker_killed_at_a_failpoint_leaves_one_row_per_decision_and_it_is_acted_on(
    aftermaths: dict[tuple[str, str], Aftermath], mode: str, point: Point
) -> None:
    after = aftermaths[mode, point]
    assert len(after.rows) == IN_FLIGHT
    for text, passed in after.acted_on.items():
        row = after.rows[text]
        assert passed.texts == [text]
        assert passed.decision_ids == [str(row.decision_id)]
        assert row.answers is not None
        assert passed.spam == [row.answers["spam"].probability]  # type: ignore[union-attr]


@pytest.mark.parametrize("mode", ["remote", "local"])
def test_before_the_insert_the_answer_is_lost_and_a_later_one_counts(
    aftermaths: dict[tuple[str, str], Aftermath], mode: str
) -> None:
    after = aftermaths[mode, "before the insert"]
    for text, answered in after.answered.items():
        assert len(answered) >= 2
        (acted_on,) = after.acted_on[text].spam
        assert acted_on in answered[1:]


@pytest.mark.parametrize("point", POINTS[1:])
@pytest.mark.parametrize("mode", ["remote", "local"])
def test_once_it_is_committed_the_model_is_not_asked_again(
    aftermaths: dict[tuple[str, str], Aftermath], mode: str, point: Point
) -> None:
    after = aftermaths[mode, point]
    assert set(after.answered) == set(after.rows)
    assert sum(map(len, after.answered.values())) == after.asked_by_the_first
    if mode == "remote":  # an attempt of a local one has two seconds, which a busy machine may need
        assert after.asked_by_the_first == IN_FLIGHT
