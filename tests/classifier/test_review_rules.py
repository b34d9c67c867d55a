"""Rules for events that wait: as data they say the same, and what cannot work is said at the start."""

from __future__ import annotations

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from classifier.classifier import Classifier
from classifier.models.scripted import ScriptedModel
from classifier.playbook import Outbox, Playbook
from classifier.questions import Choice, Questions
from classifier.review_rules import Escalate, ReviewRules, ReviewStep, TakeRoute, Then
from workflows.reviewing import steps_of

HOUR = timedelta(hours=1)
TIMES = st.timedeltas(timedelta(microseconds=1), timedelta(days=365))
QUEUES = st.text(min_size=1, max_size=20).filter(str.strip)


def nested(steps: list[tuple[timedelta, str]], last: tuple[timedelta, str] | None) -> ReviewRules:
    """Rules that escalate so often, and then take a route."""
    deadline: timedelta | None = None
    then: Then | None = None
    if last is not None:
        deadline, then = last[0], TakeRoute(last[1])
    for after, queue in reversed(steps):
        then = Escalate(queue=queue, deadline=deadline, then=then)
        deadline = after
    assert deadline is not None
    assert then is not None
    return ReviewRules(deadline=deadline, then=then)


@given(
    st.lists(st.tuples(TIMES, QUEUES), min_size=1, max_size=4),
    st.none() | st.tuples(TIMES, st.sampled_from(["a", "b"])),
)
def test_rules_travel_as_one_step_after_the_other(
    steps: list[tuple[timedelta, str]], last: tuple[timedelta, str] | None
) -> None:
    rules = nested(steps, last)
    assert list(rules.problems({"a", "b"})) == []
    travelled = steps_of([dict(step) for step in rules.steps()])
    expected: list[tuple[timedelta, str | None, str | None]] = [
        (after, queue, None) for after, queue in steps
    ]
    expected += [] if last is None else [(last[0], None, last[1])]
    found = [(step.queue, step.route) for step in travelled]
    assert found == [(queue, route) for _, queue, route in expected]
    for step, (after, _, _) in zip(travelled, expected, strict=True):
        assert abs(step.after - after) <= timedelta(microseconds=10)


def test_rules_that_only_take_a_route_are_one_step() -> None:
    rules = ReviewRules(deadline=2 * HOUR, then=TakeRoute("a"))
    assert rules.steps() == [ReviewStep(after=7200.0, route="a")]


class Ticket(Questions):
    """What is asked."""

    department = Choice({"a": None, "b": None})


@pytest.mark.parametrize(
    ("rules", "problem"),
    [
        (ReviewRules(deadline=timedelta(0), then=TakeRoute("a")), "more than nothing and at most 365 days"),
        (ReviewRules(deadline=366 * 24 * HOUR, then=TakeRoute("a")), "at most 365 days"),
        (ReviewRules(deadline=HOUR, then=TakeRoute("c")), "takes 'c', which is not one of its routes"),
        (ReviewRules(deadline=HOUR, then=Escalate(queue=" ")), "a name of at most 100 characters"),
        (
            ReviewRules(deadline=HOUR, then=Escalate(queue="leads", deadline=HOUR)),
            "'leads' has a deadline without what happens then",
        ),
        (
            ReviewRules(deadline=HOUR, then=Escalate(queue="q", deadline=HOUR, then=TakeRoute("c"))),
            "takes 'c', which is not one of its routes",
        ),
    ],
)
def test_rules_that_cannot_work_are_a_problem_of_their_playbook(rules: ReviewRules, problem: str) -> None:
    playbook = Playbook(
        id="tickets",
        classifier=Classifier("tickets", ScriptedModel(lambda request: {}), Ticket),
        routes=("a", "b"),
        route=lambda answers: "a",
        gates={},
        destinations={"*": Outbox("out.jsonl")},
        review=rules,
    )
    (said,) = playbook.problems()
    assert said.startswith("playbook 'tickets': ")
    assert problem in said
