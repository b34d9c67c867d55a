"""Each invariant sees the breach it is there for, and a sound run has none."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from tests.chaos.checker import RULES, check, is_sound
from tests.chaos.facts import Branched, Choice, Facts, Happened, Log, Post, Row, Run, Said, Sent
from tests.chaos.report import line_of

PLACE = ("w1", "r1", "1", 0)
ROW = Row(
    "d1", "w1", PLACE, "step", "text 1", "a", failed=False, outcome="allowed", action="route", route="a"
)
ASKED = Row(
    "d2", "w2", ("w2", "r2", "1", 0), "step", "text 2", None, failed=False, outcome="allowed", action="review"
)
LEFT = replace(ASKED, decision="d3", workflow="w3", place=("w3", "r3", "1", 0), text="text 3")
STREAM = Row("d4", "t1", ("t1", "r4", "2/1", 0), "stream", "hello", None, failed=False, outcome="allowed")
WHOLE = replace(STREAM, decision="d5", place=("t1", "r4", "3", 0), phase="output")
STOPPED = replace(STREAM, decision="d6", place=("t1", "r4", "5/1", 0), text="HUNTER2", outcome="aborted")
FINE = Said("t1", "m1", "finished", "hello", ("d4", "d5"))
BLOCKED = Said("t1", "m2", "blocked", "", ("d6",))
POST = Post("k1", "digest", "e1", "a", "d1")
SOUND = Facts(
    sent=(Sent("e1", "text 1", "w1"), Sent("e2", "text 2", "w2"), Sent("e3", "text 3", "w3")),
    runs=(
        Run("w1", "r1", "COMPLETED", "delivered", "a", "d1", (Branched("d1", "route", "a"),)),
        Run("w2", "r2", "COMPLETED", "delivered", "b", "d2", (Branched("d2", "review", None),)),
        Run("w3", "r3", "RUNNING", "review", None, "d3", (Branched("d3", "review", None),)),
    ),
    rows=(ROW, ASKED, LEFT, STREAM, WHOLE, STOPPED),
    happened=(
        Happened("w1", "delivery", "k1", "a", "classifier"),
        Happened("w2", "review", "v2", "b", "kim"),
        Happened("w2", "delivery", "k2", "b", "kim"),
    ),
    remembered={"e1": "w1", "e2": "w2", "e3": "w3"},
    posts=(POST, POST, Post("k2", "another", "e2", "b", "d2")),
    choices=(Choice("w2", "b", taken=True),),
    given={"text 1": ("b", "a"), "text 2": (None,), "text 3": (None,)},
    said=(FINE, BLOCKED),
    kept=(FINE, BLOCKED),
    endings={("t1", "m1"): 1, ("t1", "m2"): 1},
    shown={("t1", "m1"): "hello"},
    prompts=("where is it?",),
    blocked="HUNTER2",
    logs=(Log("worker-0", 100),),
    commands={"triage": 0},
)
(
    ENDED,
    AGREE,
    COMMANDS,
    REMEMBERED,
    ONCE,
    LOST,
    ACTED,
    GIVEN,
    CHANGED,
    DELIVERED,
    CHOICES,
    TURNS,
    JUDGED,
    MEMORY,
    LOGS,
) = RULES

Spoil = Callable[[Facts], Facts]


def with_run(number: int, **changes: object) -> Spoil:
    """Spoils a run."""

    def spoil(facts: Facts) -> Facts:
        runs = list(facts.runs)
        runs[number] = replace(runs[number], **changes)  # type: ignore[arg-type]
        return replace(facts, runs=tuple(runs))

    return spoil


def with_facts(**changes: object) -> Spoil:
    """Spoils the facts themselves."""
    return lambda facts: replace(facts, **changes)  # type: ignore[arg-type]


SPOILT: list[tuple[str, Spoil, set[str]]] = [
    ("a run that failed", with_run(0, status="FAILED", state=None), {ENDED}),
    ("a run that never ended", with_run(0, status="RUNNING", state="deciding"), {ENDED}),
    ("an event without a run", with_facts(runs=SOUND.runs[1:]), {ENDED}),
    (
        "an event with two runs",
        with_facts(runs=(*SOUND.runs, replace(SOUND.runs[0], run="r9"))),
        {ENDED},
    ),
    (
        "a run of nobody's",
        with_facts(runs=(*SOUND.runs, Run("w9", "r9", "RUNNING", "review"))),
        {ENDED},
    ),
    ("a workflow that cannot be replayed", with_run(0, broken=("NON_DETERMINISTIC_ERROR",)), {AGREE}),
    ("a command that failed", with_facts(commands={"triage": 1}), {COMMANDS}),
    ("a command that never ended", with_facts(commands={"triage": None}), {COMMANDS}),
    ("an event that the database forgot", with_facts(remembered={"e1": "w1", "e2": "w2"}), {REMEMBERED}),
    (
        "an event under another run",
        with_facts(remembered=dict(SOUND.remembered) | {"e1": "w9"}),
        {REMEMBERED},
    ),
    ("a decision that is there twice", with_facts(rows=(*SOUND.rows, ROW)), {ONCE}),
    (
        "a decision under a second id",
        with_facts(rows=(*SOUND.rows, replace(ROW, decision="d9"))),
        {ONCE},
    ),
    ("a decision that was not recorded", with_facts(rows=SOUND.rows[1:]), {LOST, CHANGED}),
    ("a turn's decision that was not recorded", with_facts(rows=SOUND.rows[:-1]), {LOST}),
    ("a branch that is not on record", with_run(0, branched=(Branched("d1", "route", "c"),)), {ACTED}),
    ("an answer that nobody gave", with_facts(given=dict(SOUND.given) | {"text 1": ("b",)}), {GIVEN}),
    (
        "a delivery to another place",
        with_facts(posts=(replace(POST, route="c"), *SOUND.posts[2:])),
        {CHANGED},
    ),
    ("a run that says another place", with_run(0, route="c"), {CHANGED}),
    (
        "a delivery of what waits",
        with_facts(posts=(*SOUND.posts, Post("k3", "x", "e3", "a", "d3"))),
        {CHANGED},
    ),
    ("a delivery that nobody got", with_facts(posts=SOUND.posts[2:]), {DELIVERED}),
    ("a key with two contents", with_facts(posts=(*SOUND.posts, replace(POST, content="x"))), {DELIVERED}),
    ("a delivery without a key", with_facts(posts=(*SOUND.posts, replace(POST, key=""))), {DELIVERED}),
    ("a delivery under a second key", with_facts(posts=(*SOUND.posts, replace(POST, key="k9"))), {DELIVERED}),
    ("a delivery that is not on record", with_facts(happened=SOUND.happened[1:]), {DELIVERED}),
    (
        "a choice that is not on record",
        with_facts(choices=(*SOUND.choices, Choice("w3", "c", taken=True))),
        {CHOICES},
    ),
    ("a turn that never ended", with_facts(said=(replace(FINE, outcome=None), BLOCKED)), {TURNS}),
    ("a turn that is kept twice", with_facts(kept=(FINE, FINE, BLOCKED)), {TURNS}),
    ("a turn that was told otherwise", with_facts(said=(replace(FINE, reply="hi"), BLOCKED)), {TURNS}),
    (
        "a turn that ended twice",
        with_facts(endings=dict(SOUND.endings) | {("t1", "m1"): 2}),
        {TURNS},
    ),
    (
        "a reply that nobody judged",
        with_facts(
            said=(replace(FINE, reply="hello you"), BLOCKED),
            kept=(replace(FINE, reply="hello you"), BLOCKED),
            shown={("t1", "m1"): "hello you"},
        ),
        {JUDGED},
    ),
    ("a screen with another text", with_facts(shown={("t1", "m1"): "hello you"}), {JUDGED}),
    ("a screen of a blocked turn", with_facts(shown=dict(SOUND.shown) | {("t1", "m2"): "psst"}), {JUDGED}),
    ("a prompt with what was blocked", with_facts(prompts=("HUNTER2",)), {MEMORY}),
    ("a log with a text", with_facts(logs=(Log("worker-0", 9, ("a text",)),)), {LOGS}),
]


def test_a_sound_run_breaks_nothing_and_everything_was_looked_at() -> None:
    found = check(SOUND)
    assert [finding for finding in found if finding.breaches] == []
    assert all(finding.checked for finding in found)
    assert is_sound(found)


@pytest.mark.parametrize(("spoil", "broken"), [case[1:] for case in SPOILT], ids=[case[0] for case in SPOILT])
def test_a_breach_is_seen_by_the_invariant_it_breaks(spoil: Spoil, broken: set[str]) -> None:
    found = check(spoil(SOUND))
    assert {finding.name for finding in found if finding.breaches} == broken
    assert not is_sound(found)


def test_every_invariant_is_broken_by_some_case() -> None:
    assert {name for _, _, broken in SPOILT for name in broken} == set(RULES)


def test_a_dead_letter_is_settled_where_the_history_knows_it() -> None:
    facts = with_run(2, state="dead_letter")(SOUND)
    known = replace(facts, happened=(*facts.happened, Happened("w3", "dead_letter", "x")))
    assert {finding.name for finding in check(facts) if finding.breaches} == {ENDED}
    assert {finding.name for finding in check(known) if finding.breaches} == set()


def test_an_invariant_is_one_line_with_its_breaches_below() -> None:
    (ended, *_) = check(with_run(0, status="FAILED", state=None)(SOUND))
    assert line_of(ended).splitlines() == [
        "BROKEN    1  every event has one run, which ended or waits (3 checked)",
        "             event e1: its run is FAILED and in the state None",
    ]
    remembered = check(SOUND)[3]
    assert line_of(remembered) == "holds        every event that was taken is remembered (3 checked)"
