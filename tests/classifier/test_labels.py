"""Corrected decisions become examples of the questions they answer; what does not fit names its line."""

from __future__ import annotations

import json
from typing import Any, Literal, assert_type

import pytest

from classifier.answers import Answer, BooleanAnswer, ChoiceAnswer
from classifier.classifier import Classifier
from classifier.errors import ConfigurationError
from classifier.labels import Label, read_labels, with_examples
from classifier.models.local.model import LocalModel
from classifier.models.scripted import ScriptedModel
from classifier.questions import Boolean, Choice, Example, Question, Questions, Score


class Ticket(Questions):
    """Asked about tickets."""

    urgent = Boolean("Is it urgent?", examples=[Example("fire", label=True), Example("old", label=True)])
    topic: Choice[Literal["billing", "other"]] = Choice({"billing": None, "other": None})
    mood = Score(["bad", "fair", "good"])


def lines(*rows: dict[str, Any]) -> list[str]:
    return [json.dumps(row) + "\n" for row in rows]


GOOD = lines(
    {"question": "urgent", "text": "hello", "label": False, "decision_id": "d-1", "by": "ana"},
    {"question": "topic", "state": {"id": "x-1", "body": "an invoice", "n": 3}, "label": "billing"},
    {"question": "mood", "state": "great", "label": 1.5},
    {"question": "urgent", "text": "old", "label": False},
)


def test_labels_become_examples_after_those_a_question_has() -> None:
    taught = with_examples(Ticket, read_labels(GOOD))
    assert taught.urgent.examples == (
        Example("fire", label=True),
        Example("hello", label=False),
        Example("old", label=False),
    )
    assert taught.topic.examples == (Example("x-1\nan invoice", "billing"),)
    assert taught.mood.examples == (Example("great", 1.5),)
    assert len(Ticket.urgent.examples) == 2


def test_a_class_stays_typed_and_its_answers_are_still_of_the_class() -> None:
    taught = with_examples(Ticket, read_labels(GOOD))
    assert_type(taught, type[Ticket])
    answers: dict[str, Answer] = {"urgent": BooleanAnswer(1.0), "topic": ChoiceAnswer("other")}
    classifier = Classifier("c", ScriptedModel([]), taught)
    assert_type(classifier, Classifier[Ticket])
    assert isinstance(taught(answers), Ticket)
    assert taught(answers).urgent == BooleanAnswer(1.0)


def test_a_dictionary_gives_a_dictionary_and_keeps_what_has_no_labels() -> None:
    questions: dict[str, Question] = {"urgent": Boolean(), "other": Boolean("?")}
    taught = with_examples(questions, [Label("urgent", "now", True, "here")])
    assert taught["urgent"].examples == (Example("now", label=True),)
    assert taught["other"] is questions["other"]
    assert questions["urgent"].examples == ()


def test_a_later_line_about_the_same_text_replaces_an_earlier_one() -> None:
    rows = [{"question": "topic", "text": "t", "label": label} for label in ("billing", "other")]
    taught = with_examples(Ticket, read_labels(lines(*rows)))
    assert taught.topic.examples == (Example("t", "other"),)


def test_empty_lines_are_let_be_and_count() -> None:
    labels = read_labels(["\n", *GOOD[:1], "  \n", *GOOD[1:2]], source="fixed.jsonl")
    assert [label.where for label in labels] == ["fixed.jsonl, line 2", "fixed.jsonl, line 4"]


@pytest.mark.parametrize(
    ("line", "fault"),
    [
        ("{", "not a JSON object"),
        ("[]", "not a JSON object"),
        ('{"text": "SECRET", "label": true}', "`question`"),
        ('{"question": 3, "text": "SECRET", "label": true}', "`question`"),
        ('{"question": "urgent", "text": "SECRET"}', "`label`"),
        ('{"question": "urgent", "text": "SECRET", "label": null}', "`label`"),
        ('{"question": "urgent", "text": "SECRET", "label": ["a"]}', "`label`"),
        ('{"question": "urgent", "label": true}', "either `text` or `state`"),
        ('{"question": "urgent", "text": "SECRET", "state": "b", "label": true}', "either `text` or `state`"),
        ('{"question": "urgent", "text": {"a": "SECRET"}, "label": true}', "`text` has a type"),
        ('{"question": "urgent", "state": 7, "label": true}', "`state` has a type"),
        ('{"question": "urgent", "text": " ", "label": true}', "its text is blank"),
    ],
)
def test_a_line_that_cannot_be_read_is_named_without_its_text(line: str, fault: str) -> None:
    with pytest.raises(ConfigurationError, match=f"fixed.jsonl, line 2: .*{fault}") as caught:
        read_labels([GOOD[0], line], source="fixed.jsonl")
    assert "SECRET" not in str(caught.value)


@pytest.mark.parametrize(
    ("question", "label", "fault"),
    [
        ("urgnt", True, "no question 'urgnt'; there is urgent, topic, mood"),
        ("urgent", "yes", "true or false"),
        ("urgent", 1, "true or false"),
        ("topic", "biling", "'biling', which is not an option"),
        ("topic", True, "True, which is not an option"),
        ("mood", 2.5, "outside 0 to 2"),
        ("mood", "good", "outside 0 to 2"),
    ],
)
def test_a_label_that_does_not_fit_its_question_names_line_and_reason(
    question: str, label: Any, fault: str
) -> None:
    labels = read_labels([*GOOD, *lines({"question": question, "text": "t", "label": label})], source="f")
    with pytest.raises(ConfigurationError, match=f"f, line 5: .*{fault}"):
        with_examples(Ticket, labels)


async def test_the_local_model_learns_from_them() -> None:
    """Nonsense words, so that what it answers can only come from the examples."""
    rows = [
        {"question": "kind", "text": f"{word} {n}", "label": label}
        for word, label in (("blorp the wug", "a"), ("zint a frale", "b"))
        for n in range(12)
    ]
    questions: dict[str, Question] = {"kind": Choice({"b": "second kind", "a": "first kind"})}
    model = LocalModel()
    taught = with_examples(questions, read_labels(lines(*rows)))
    result = await Classifier("c", model, taught).evaluate("blorp the wug 99")
    await model.aclose()
    assert result.answers.choice("kind").choice_or(None) == "a"
