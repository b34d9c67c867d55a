"""Caps: what is too much is refused visibly and can come again, and one sender's excess is nobody else's."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from temporalio.client import Client

from service.problems import Problem
from service.rates import MAX_KEYS, InFlight, Rate
from service.settings import Caps
from tests.service.house import OTHER_TOKEN, House, house, until


class Clock:
    """A clock that the test sets."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@given(st.lists(st.floats(0, 3), max_size=60), st.integers(1, 20), st.integers(1, 20))
def test_a_rate_never_lets_more_through_than_it_says(pauses: list[float], rate: int, at_once: int) -> None:
    clock = Clock()
    bucket = Rate(rate, at_once, clock)
    taken: list[float] = []
    for pause in pauses:
        clock.now += pause
        if not bucket.take("x"):
            taken.append(clock.now)
    for first in range(len(taken)):
        for last in range(first, len(taken)):
            assert last - first + 1 <= at_once + rate * (taken[last] - taken[first]) + 0.001


@given(st.integers(1, 20), st.integers(1, 20))
def test_who_waits_as_long_as_told_is_let_through(rate: int, at_once: int) -> None:
    clock = Clock()
    bucket = Rate(rate, at_once, clock)
    assert [bucket.take("x") for _ in range(at_once)] == [0.0] * at_once
    wait = bucket.take("x")
    assert 0 < wait <= 1 / rate + 0.001
    assert bucket.take("y") == 0.0
    clock.now += wait
    assert bucket.take("x") == 0.0


def test_a_rate_remembers_a_bounded_number_of_keys() -> None:
    clock = Clock()
    bucket = Rate(1, 1, clock)
    for key in range(MAX_KEYS + 10):
        bucket.take(key)
    assert len(bucket._due) <= MAX_KEYS + 1
    clock.now += 2
    bucket.take("x")
    assert len(bucket._due) == 1


def test_no_tenant_has_more_than_half_of_what_is_in_flight() -> None:
    flight = InFlight(4)
    with flight.of("a", 2):
        with pytest.raises(Problem) as caught, flight.of("a", 1):
            pass
        assert (caught.value.status, caught.value.headers["Retry-After"]) == (429, "1")
        with flight.of("b", 2), pytest.raises(Problem), flight.of("c", 1):
            pass
    with flight.of("a", 2):
        pass


async def test_an_actor_who_floods_is_held_to_his_cap_and_others_are_served_at_once(
    client: Client, queue: str, tmp_path: Path, database_url: str
) -> None:
    caps = Caps(actor_rate=1, tenant_rate=1000)
    async with house(client, queue, tmp_path, database_url, caps=caps) as desk:
        flood = [desk.event(f"x{number}", actor="x") for number in range(100)]
        answers = await asyncio.gather(*map(desk.post, flood))
        taken = [
            event["id"] for event, answer in zip(flood, answers, strict=True) if answer.status_code == 202
        ]
        refused = [answer for answer in answers if answer.status_code == 429]
        assert len(taken) + len(refused) == 100, {a.text for a in answers if a.status_code == 503}
        assert 10 <= len(taken) <= 30
        assert all(int(answer.headers["Retry-After"]) >= 1 for answer in refused)
        assert {answer.json()["code"] for answer in refused} <= {"ACTOR_RATE", "BUSY"}
        others = [desk.post(desk.event(f"b{number}"), OTHER_TOKEN) for number in range(5)]
        assert {answer.status_code for answer in await asyncio.gather(*others)} == {202}
        mine = [desk.post(desk.event(f"y{number}", actor="y")) for number in range(5)]
        assert {answer.status_code for answer in await asyncio.gather(*mine)} == {202}
        wanted = {*taken, *(f"{who}{number}" for who in "by" for number in range(5))}
        await until(lambda: {event["id"] for event in desk.delivered()} == wanted)


async def test_a_tenant_has_a_rate_and_a_batch_says_which_events_were_over_it(
    client: Client, queue: str, tmp_path: Path, database_url: str
) -> None:
    async with house(client, queue, tmp_path, database_url, caps=Caps(tenant_rate=1), works=False) as desk:
        batch = [desk.event(f"e{number}") for number in range(15)]
        headers = {"content-type": "application/cloudevents-batch+json"}
        response = await desk.post(batch, **headers)
        assert response.status_code == 207
        assert [answer["status"] for answer in response.json()].count(202) in {10, 11}
        over = await desk.post(batch[-2:], **headers)
        assert (over.status_code, over.json()["code"]) == (429, "TENANT_RATE")
        assert over.headers["retry-after"]
        assert (await desk.post(desk.event("b1"), OTHER_TOKEN)).status_code == 202


async def test_a_loop_over_one_subject_is_capped_and_leaves_one_alert(desk: House) -> None:
    minute = datetime.now(UTC).strftime("%H:%M")
    answers = [await desk.post(desk.event(f"e{number}", subject="order-9")) for number in range(50)]
    statuses = [answer.status_code for answer in answers]
    assert statuses[:30] == [202] * 30
    assert statuses.count(429) >= 15
    assert {answer.json()["code"] for answer in answers if answer.status_code == 429} == {"SUBJECT_RATE"}
    assert (await desk.post(desk.event("f1", subject="order-10"))).status_code == 202
    loops = await desk.loops()
    assert 1 <= len(loops) <= (1 if datetime.now(UTC).strftime("%H:%M") == minute else 2)
    assert (loops[0].body["reason"], loops[0].body["subject"]) == ("subject_rate", "order-9")


async def test_nothing_more_is_taken_while_too_much_waits_for_workers(
    client: Client, queue: str, tmp_path: Path, database_url: str
) -> None:
    async with house(client, queue, tmp_path, database_url, caps=Caps(backlog=3), works=False) as desk:
        number = 0
        while True:
            number += 1
            assert number < 2000
            response = await desk.post(desk.event(f"e{number}"))
            if response.status_code == 429:
                break
            await asyncio.sleep(0.05)
        assert response.json()["code"] == "BACKLOG"
        assert int(response.headers["Retry-After"]) >= 1
