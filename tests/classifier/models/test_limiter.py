"""Bounds on requests, counted at the server."""

from __future__ import annotations

import asyncio
from itertools import pairwise

import pytest

from classifier.answers import BooleanAnswer
from classifier.errors import ConfigurationError
from classifier.models.limiter import Limited
from classifier.models.protocol import DecisionModel, DecisionRequest
from classifier.models.scripted import ScriptedModel
from classifier.models.systemone import SystemOne
from classifier.questions import Boolean
from tests.servers import Answer, Call, Hang, Server, in_thread

REQUEST = DecisionRequest("state", {"q": Boolean()})
ANSWER = Answer({"model": "m", "answers": {"q": {"type": "noul", "noul": 0.5}}})


async def slowly(_: Call) -> Answer:
    await asyncio.sleep(0.02)
    return ANSWER


async def test_no_more_requests_are_in_flight_at_the_server_than_agreed() -> None:
    async with Server(slowly) as server:
        model: DecisionModel = Limited(SystemOne(base_url=server.url), in_flight=3)
        await asyncio.gather(*(model.decide(REQUEST) for _ in range(20)))
        await model.aclose()
    assert len(server.calls) == 20
    assert server.most_at_once == 3


async def test_no_more_requests_a_second_reach_the_server_than_agreed() -> None:
    arrivals: list[float] = []
    loop = asyncio.get_running_loop()

    def reply(_: Call) -> Answer:
        arrivals.append(loop.time())
        return ANSWER

    async with Server(reply) as server:
        model = Limited(SystemOne(base_url=server.url), per_second=50)
        await asyncio.gather(*(model.decide(REQUEST) for _ in range(26)))
        await model.aclose()
    assert arrivals[-1] - arrivals[0] >= 25 / 50 - 0.02
    assert all(later > earlier for earlier, later in pairwise(arrivals))


async def test_first_come_first_served() -> None:
    model = ScriptedModel(lambda _: {"q": BooleanAnswer(0.5)}, latency=0.001)
    limited = Limited(model, per_second=1000, in_flight=1)
    requests = [DecisionRequest(str(number), REQUEST.questions) for number in range(10)]
    await asyncio.gather(*(limited.decide(request) for request in requests))
    assert model.requests == requests


async def test_who_leaves_while_waiting_uses_nothing_of_the_limit() -> None:
    async with Server([Hang(), ANSWER]) as server:
        model = Limited(SystemOne(base_url=server.url), in_flight=1)
        asked = asyncio.create_task(model.decide(REQUEST))
        await server.asked.wait()
        waiting = [asyncio.create_task(model.decide(REQUEST)) for _ in range(5)]
        await asyncio.sleep(0)
        for task in [*waiting, asked]:
            task.cancel()
        await asyncio.gather(asked, *waiting, return_exceptions=True)
        await asyncio.wait_for(model.decide(REQUEST), 5)
        await model.aclose()
    assert len(server.calls) == 2


async def test_who_leaves_while_its_second_has_not_come_does_not_cost_the_next_one_its_turn() -> None:
    model = ScriptedModel(lambda _: {"q": BooleanAnswer(0.5)})
    limited = Limited(model, per_second=10)
    loop = asyncio.get_running_loop()
    started = loop.time()
    await limited.decide(REQUEST)
    leaving = [asyncio.create_task(limited.decide(REQUEST)) for _ in range(20)]
    await asyncio.sleep(0)
    for task in leaving:
        task.cancel()
    await asyncio.gather(*leaving, return_exceptions=True)
    await limited.decide(REQUEST)
    assert 0.09 < loop.time() - started < 0.5
    assert len(model.requests) == 2


def test_a_limited_model_works_in_one_event_loop_after_another() -> None:
    with in_thread(lambda _: ANSWER) as server:
        model = Limited(SystemOne(base_url=server.url), per_second=500, in_flight=1)

        async def ask() -> None:
            await asyncio.gather(*(model.decide(REQUEST) for _ in range(3)))

        for _ in range(2):
            asyncio.run(ask())
    assert len(server.calls) == 6


@pytest.mark.parametrize("bound", [{"per_second": 0.0}, {"per_second": float("nan")}, {"in_flight": 0}])
def test_a_bound_that_lets_nothing_through_is_refused(bound: dict[str, float]) -> None:
    with pytest.raises(ConfigurationError):
        Limited(ScriptedModel([]), **bound)  # type: ignore[arg-type] # 0 is an int


def test_it_is_the_model_it_limits() -> None:
    limited = Limited(SystemOne("jev-1.13.0"), in_flight=1)
    assert (limited.provider, limited.name) == ("typesafe", "jev-1.13.0")
    assert limited.configure({})
