"""A shadow as it is declared: what it leaves out is the playbook's, and what cannot work is said at start."""

from __future__ import annotations

from dataclasses import fields
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from classifier.answers import BooleanAnswer
from classifier.app import App
from classifier.classifier import Classifier
from classifier.errors import ConfigurationError
from classifier.models.scripted import ScriptedModel
from classifier.playbook import Outbox, Playbook
from classifier.questions import Boolean, Question
from classifier.shadow import LONGEST_BUDGET, Shadow
from classifier.testing import try_playbook

QUESTIONS: dict[str, Question] = {"unsafe": Boolean("?")}


def classifier(name: str = "live", **options: Any) -> Classifier[Any]:
    return Classifier(name, ScriptedModel(lambda request: {"unsafe": BooleanAnswer(0.1)}), **options)


def playbook(shadow: Shadow[Any] | None = None) -> Playbook[Any]:
    return Playbook(
        id="letters",
        classifier=classifier(questions=QUESTIONS),
        routes=("a",),
        route=lambda answers: "a",
        gates={"unsafe": 0.9},
        destinations={"*": Outbox("x")},
        policy_version="1",
        shadow=shadow,
    )


GIVEN: dict[str, Any] = {
    "classifier": "another",
    "gates": {"unsafe": 0.5},
    "routes": ("a", "b"),
    "route": lambda answers: "b",  # pyright: ignore[reportUnknownLambdaType]
}


@given(st.sets(st.sampled_from(sorted(GIVEN)), min_size=1))
def test_what_a_shadow_leaves_out_is_as_in_the_playbook(names: set[str]) -> None:
    changed: dict[str, Any] = {name: GIVEN[name] for name in names}
    shadow = Shadow[Any](policy_version="2", **changed)
    live = playbook(shadow)
    beside = shadow.of(live)
    for field in fields(live):
        name = field.name
        expected = {**changed, "policy_version": "2", "shadow": None}.get(name, getattr(live, name))
        assert getattr(beside, name) == expected
    assert list(live.problems()) == []


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"policy_version": " "}, "needs a policy_version of its own"),
        ({"policy_version": "1"}, "needs a policy_version of its own"),
        ({"gates": None}, "is the playbook once more"),
        ({"routes": ()}, "has no routes"),
        ({"budget": timedelta(0)}, "has a budget"),
        ({"budget": LONGEST_BUDGET * 2}, "has a budget"),
    ],
)
def test_a_shadow_that_cannot_work_says_why(options: dict[str, Any], problem: str) -> None:
    given: dict[str, Any] = {"policy_version": "2", "gates": {"unsafe": 0.5}, **options}
    shadow = Shadow[Any](**given)
    assert f"the shadow of playbook 'letters' {problem}" in " ".join(playbook(shadow).problems())


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"classifier": "nobody"}, "the shadow of playbook 'letters' names the classifier 'nobody'"),
        (
            {"classifier": classifier("bare")},
            "the shadow of playbook 'letters' needs a classifier with questions",
        ),
        ({"gates": {"unsave": 0.5}}, "the shadow of playbook 'letters': "),
    ],
)
def test_an_app_whose_shadow_cannot_be_asked_does_not_start(options: dict[str, Any], problem: str) -> None:
    app = App(playbooks=[playbook(Shadow[Any](policy_version="2", **options))])
    with pytest.raises(ConfigurationError, match=problem):
        app.resolve({})


def test_a_shadows_own_classifier_is_resolved_with_its_model() -> None:
    beside = classifier("beside", questions=QUESTIONS)
    live = playbook(Shadow[Any](policy_version="2", classifier=beside))
    resolved = App(playbooks=[live]).resolve({})
    assert list(resolved.classifiers) == ["live", "beside"]


async def test_a_shadow_is_tried_as_a_playbook_is() -> None:
    shadow = Shadow[Any](policy_version="2", gates={"unsafe": 0.999})
    live, answers = playbook(shadow), {"unsafe": BooleanAnswer(0.05, calibrated=True)}
    assert (await try_playbook(live, answers)).action == "route"
    assert (await try_playbook(shadow.of(live), answers)).action == "review"
