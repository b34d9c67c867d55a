"""The plan follows from the seed, hits everything that it may, and leaves room to recover."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.chaos.plan import FIRE, HOW, KINDS, WHIMS, Fault, Kind, plan_of, share_of, whim_of

seeds = st.integers(0, 10_000)
lengths = st.floats(10, 3600)
kinds = st.sets(st.sampled_from(KINDS), min_size=1)


@given(seeds, lengths, kinds)
def test_the_same_seed_gives_the_same_plan(seed: int, seconds: float, only: set[Kind]) -> None:
    assert plan_of(seed, seconds=seconds, only=only) == plan_of(seed, seconds=seconds, only=only)


@given(seeds, lengths, kinds)
def test_every_kind_that_is_wanted_happens_and_no_other(seed: int, seconds: float, only: set[Kind]) -> None:
    assert {fault.kind for fault in plan_of(seed, seconds=seconds, only=only)} == only


@given(seeds, lengths)
def test_leaving_a_kind_out_changes_nothing_about_the_others(seed: int, seconds: float) -> None:
    whole = plan_of(seed, seconds=seconds)
    for kind in KINDS:
        alone = plan_of(seed, seconds=seconds, only=[kind])
        assert alone == tuple(fault for fault in whole if fault.kind == kind)


@given(seeds, lengths)
def test_things_go_wrong_in_order_and_are_over_well_before_the_end(seed: int, seconds: float) -> None:
    faults = plan_of(seed, seconds=seconds)
    assert [fault.at for fault in faults] == sorted(fault.at for fault in faults)
    for fault in faults:
        assert FIRE[0] * seconds - 0.1 <= fault.at
        assert fault.at + fault.away <= FIRE[1] * seconds + 0.2
        assert fault.how in HOW[fault.kind]


@given(seeds, lengths)
def test_what_is_away_is_back_before_it_is_hit_again(seed: int, seconds: float) -> None:
    for kind in KINDS:
        faults = plan_of(seed, seconds=seconds, only=[kind])
        for before, after in pairwise(faults):
            assert after.at >= before.at + before.away - 0.2


@given(seeds, st.integers(1, 8))
def test_only_workers_that_there_are_are_hit(seed: int, workers: int) -> None:
    faults = plan_of(seed, seconds=600, workers=workers)
    assert {fault.which for fault in faults} <= set(range(workers))


def test_five_minutes_hit_a_worker_every_ten_seconds_and_each_server_several_times() -> None:
    count = Counter(fault.kind for fault in plan_of(7, seconds=300))
    assert count == {"worker": 18, "service": 4, "database": 5, "temporal": 4}


def test_a_fault_is_read_at_a_glance() -> None:
    assert str(Fault(4.6, "worker", "killed", 1.5, 1)) == "    4.6 s  worker 1 killed, back after 1.5 s"
    assert str(Fault(61.0, "database", "killed", 0.2)) == "   61.0 s  database killed, back after 0.2 s"


def test_models_are_whimsical_by_the_seed_and_honest_most_of_the_time() -> None:
    whims = Counter(whim_of(3, f"text {number}", 0) for number in range(5_000))
    assert whims == Counter(whim_of(3, f"text {number}", 0) for number in range(5_000))
    assert set(whims) == set(WHIMS)
    for whim, share in WHIMS.items():
        assert whims[whim] / 5_000 == pytest.approx(share / 100, abs=0.02)


@given(seeds, st.text())
def test_a_share_is_the_same_for_the_same_thing(seed: int, what: str) -> None:
    assert 0 <= share_of(seed, what) == share_of(seed, what) < 1
