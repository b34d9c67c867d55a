"""The product holds in a short run under fire, and the same run sees what is broken in one that is broken."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncGenerator
from typing import TypeAlias, cast, get_args

import pytest

from tests.apps.sabotaged import Switch
from tests.chaos.arena import Arena, arena
from tests.chaos.bout import Settings
from tests.chaos.checker import Finding
from tests.chaos.run import Outcome, run
from tests.chaos.soak import soak

pytestmark = pytest.mark.slow

Switches: TypeAlias = tuple[Switch, ...]

BREAKS: dict[Switch, set[str]] = {
    "forgets a decision": {"no decision is lost"},
    "records under random ids": {"each decision is made and recorded once"},
    "forgets a delivery": {"each event is delivered once, by its key"},
    "logs text": {"no secret and no text is in a log"},
    "delivers without a key": {"each event is delivered once, by its key"},
    "delivers nothing": {"each event is delivered once, by its key"},
    "delivers elsewhere": {"no outcome was changed on the way"},
}
"""What must be seen, at least, of a worker with this switch."""


@pytest.fixture(scope="module")
async def servers() -> AsyncGenerator[Arena]:
    async with arena() as running:
        yield running


def breaches(outcome: Outcome) -> list[Finding]:
    """What does not hold."""
    return [finding for finding in outcome.findings if finding.breaches]


FEW: Switches = ("forgets a decision", "delivers without a key")
REST: Switches = (
    "logs text",
    "records under random ids",
    "forgets a delivery",
    "delivers nothing",
    "delivers elsewhere",
)


@pytest.fixture(
    scope="module",
    params=[
        pytest.param(FEW, id="few"),
        pytest.param(
            tuple(each for each in BREAKS if each not in FEW), id="the-rest", marks=pytest.mark.long
        ),
    ],
)
async def outcomes(request: pytest.FixtureRequest, servers: Arena) -> dict[Switch, Outcome]:
    """A run of each broken worker, all at the same time, since most of it is starting processes."""

    async def one(switch: Switch) -> Outcome:
        command = (sys.executable, "-m", "tests.apps.sabotaged", switch)
        peace = Settings(
            seed=None, seconds=1, events=6, turns=0, only=(), workers=1, worker=command, serves=False, drain=5
        )
        return await run(servers, peace)

    switches = cast("Switches", request.param)
    found = await asyncio.gather(*(one(switch) for switch in switches))
    return dict(zip(switches, found, strict=True))


def test_a_worker_that_is_broken_is_found_out(outcomes: dict[Switch, Outcome]) -> None:
    for switch, outcome in outcomes.items():
        assert not outcome.sound, switch
        assert BREAKS[switch] <= outcome.broken, switch
        assert len(outcome.facts.sent) == 6, switch


def test_every_switch_is_tried() -> None:
    assert {*FEW, *REST} == {*BREAKS} == {*get_args(Switch)}


async def test_a_short_run_under_fire_breaks_nothing(servers: Arena) -> None:
    settings = Settings(seed=7, seconds=10.0, events=40, turns=2, only=("service", "database"), workers=1)
    assert len(settings.plan) == 2
    outcome = await run(servers, settings)
    assert breaches(outcome) == []
    idle = {finding.name for finding in outcome.findings if not finding.checked}
    assert idle <= {"every command that was run again came to a good end", "every choice of a person is kept"}
    assert len(outcome.facts.sent) == 40


@pytest.mark.long
async def test_a_run_with_every_kind_of_fault_breaks_nothing(servers: Arena) -> None:
    outcome = await run(servers, Settings(seed=11, seconds=60.0, events=400, turns=15))
    assert breaches(outcome) == []
    assert len(outcome.facts.sent) == 400


@pytest.mark.long
async def test_a_minute_at_an_even_rate_leaves_no_backlog_and_no_connections(servers: Arena) -> None:
    found = await soak(servers, 60.0, 5.0)
    assert found.events == 300
    assert {growth.name for growth in found.growths if growth.last > growth.bound.highest} == set()
