"""Labels of people: what a text means for an answer, and what a route says about one."""

from __future__ import annotations

from typing import Any

import pytest

from classifier.answers import Answer, BooleanAnswer, ChoiceAnswer, Refusal, ScoreAnswer
from classifier.decision import Branch
from classifier.errors import ConfigurationError
from classifier.labelling import AnswerLabel, label_of_review, read_label
from tests.classifier.audit.examples import decision

TOPIC = ChoiceAnswer("billing", {"billing": 0.7, "other": 0.3})
ANSWERS: dict[str, Answer] = {
    "topic": TOPIC,
    "team": ChoiceAnswer("red"),
    "unsafe": BooleanAnswer(0.1),
    "mood": ScoreAnswer(1.2, (0.2, 0.4, 0.4)),
    "size": ScoreAnswer(7.0),
    "odd": Refusal(),
}


@pytest.mark.parametrize(
    ("question", "text", "label"),
    [
        ("topic", "other", "other"),
        ("team", "blue", "blue"),
        ("unsafe", "Yes", True),
        ("unsafe", "false", False),
        ("mood", "2", 2),
        ("mood", "0.5", 0.5),
        ("size", "12", 12),
    ],
)
def test_a_text_becomes_a_label_of_the_answers_kind(question: str, text: str, label: Any) -> None:
    found = read_label(ANSWERS, question, text)
    assert found == AnswerLabel(question, label)
    assert type(found.label) is type(label)


@pytest.mark.parametrize(
    ("question", "text", "said"),
    [
        ("topic", "fraud", "takes one of billing, other, not 'fraud'"),
        ("team", " ", "takes an option"),
        ("unsafe", "perhaps", "takes true or false, not 'perhaps'"),
        ("mood", "3", "takes a level from 0 to 2, not '3'"),
        ("mood", "nan", "takes a level from 0 to 2"),
        ("mood", "happy", "takes a level from 0 to 2"),
        ("size", "-1", "takes a level from 0, not '-1'"),
        ("odd", "true", "was refused"),
        ("nothing", "true", "has no question 'nothing'; it has topic, team"),
    ],
)
def test_a_label_that_does_not_fit_is_refused(question: str, text: str, said: str) -> None:
    with pytest.raises(ConfigurationError) as raised:
        read_label(ANSWERS, question, text)
    assert said in str(raised.value)


def test_a_failed_call_has_nothing_to_label() -> None:
    with pytest.raises(ConfigurationError, match="the call failed"):
        read_label(None, "topic", "billing")


ASKED = Branch("review", "billing")


@pytest.mark.parametrize("suggested", ["billing", None])
@pytest.mark.parametrize("route", ["billing", "other"])
def test_a_route_that_is_an_option_labels_its_question(route: str, suggested: str | None) -> None:
    found = label_of_review(decision(answers=ANSWERS, branch=ASKED), route, suggested)
    assert found == AnswerLabel("topic", route)


@pytest.mark.parametrize(
    ("answers", "branch", "route", "suggested"),
    [
        ({"topic": TOPIC}, Branch("review", "billing"), "vip_desk", "billing"),
        ({"topic": TOPIC, "first": TOPIC}, Branch("review", "billing"), "other", "billing"),
        ({"topic": TOPIC}, Branch("review", "other"), "other", "other"),
        ({"topic": TOPIC}, Branch("route", "billing"), "other", "billing"),
        ({"topic": TOPIC}, None, "other", "billing"),
        ({"topic": ChoiceAnswer("billing")}, Branch("review", "billing"), "other", "billing"),
        ({"topic": Refusal()}, Branch("review", None), "other", None),
        ({}, Branch("review", None), "other", None),
    ],
    ids=[
        "no option",
        "two questions",
        "the playbook routes otherwise",
        "a delivery asked",
        "no playbook",
        "options unknown",
        "refused",
        "no answers",
    ],
)
def test_a_route_that_may_mean_something_else_labels_nothing(
    answers: dict[str, Answer], branch: Branch | None, route: str, suggested: str | None
) -> None:
    assert label_of_review(decision(answers=answers, branch=branch), route, suggested) is None
