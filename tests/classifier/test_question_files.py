"""A question file is read by the letter; a fault names the file, the question and what is wrong."""

from __future__ import annotations

import json
from typing import Any

import pytest

from classifier.errors import ConfigurationError, QuestionError
from classifier.question_files import parse_questions
from classifier.questions import Boolean, Choice, Example, Question, Score

YAML = """\
unsafe:
  type: boolean
  instructions: Is the message unsafe?
  true: threats, self-harm     # unquoted keys that other readers take for booleans
  false: everyday talk
  examples:
    - {text: "I will find you", label: true}
topic:
  type: choice
  instructions: {ask: "What is it about?", of: [subject, body]}
  options:
    billing: Invoices and payments
    yes: null
    2026-01-01:
other: {type: choice, options: [on, "off", "1"]}
mood:
  type: score
  levels: [angry, ~, happy]
  examples: [{text: Thanks, label: 1.5}]
bare:
  type: boolean
"""
EXPECTED: dict[str, Question] = {
    "unsafe": Boolean(
        "Is the message unsafe?",
        true="threats, self-harm",
        false="everyday talk",
        examples=[Example("I will find you", label=True)],
    ),
    "topic": Choice(
        {"billing": "Invoices and payments", "yes": None, "2026-01-01": None},
        {"ask": "What is it about?", "of": ["subject", "body"]},
    ),
    "other": Choice({"on": None, "off": None, "1": None}),
    "mood": Score(["angry", None, "happy"], examples=[Example("Thanks", 1.5)]),
    "bare": Boolean(),
}


def test_yaml_declares_what_code_declares() -> None:
    assert parse_questions(YAML) == EXPECTED
    assert list(parse_questions(YAML)) == list(EXPECTED)


def test_json_declares_the_same() -> None:
    body = {
        "unsafe": {"type": "boolean", "instructions": "Is it \ud83d\ude00?", "true": "yes", "false": None},
        "topic": {"type": "choice", "options": {"a": "first", "b": None}},
        "mood": {"type": "score", "levels": ["low", None]},
    }
    expected = {
        "unsafe": Boolean("Is it \U0001f600?", true="yes"),
        "topic": Choice({"a": "first", "b": None}),
        "mood": Score(["low", None]),
    }
    assert parse_questions(json.dumps(body), source="q.json") == expected
    assert parse_questions(json.dumps(body), format="json") == expected


@pytest.mark.parametrize("text", ["", "# nothing", "[]", "{}", "text", "3"])
def test_a_file_without_a_map_of_questions_is_refused(text: str) -> None:
    with pytest.raises(ConfigurationError, match=r"^q\.yaml: .*at least one question"):
        parse_questions(text, source="q.yaml")


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("a: [1", "line 1 is not YAML"),
        ("a:\n  b: c: d", "line 2 is not YAML"),
        ("a: 1\nb: 2\na: 3", "line 3: the key 'a' is there twice"),
        ("a: {type: choice, options: {x: 1, x: 2}}", "the key 'x' is there twice"),
        ("? [a]\n: 1", "line 1: a key must be text"),
        ("a: &a [*a]", "not usable YAML"),
        ("a: 1\n---\nb: 2", "is not YAML"),
        ("a: \x07", "not usable YAML"),
    ],
)
def test_text_that_is_not_yaml_names_the_line(text: str, fault: str) -> None:
    with pytest.raises(ConfigurationError, match=rf"^q\.yaml: .*{fault}"):
        parse_questions(text, source="q.yaml")


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ('{\n"a": }', "line 2 is not JSON"),
        ('{"a": 1, "a": 2}', "the key 'a' is there twice"),
        ('{"a": NaN}', "NaN is not a number"),
        ("[" * 100_000, "not usable JSON"),
    ],
)
def test_text_that_is_not_json_says_why(text: str, fault: str) -> None:
    with pytest.raises(ConfigurationError, match=rf"^q\.json: .*{fault}"):
        parse_questions(text, source="q.json")


@pytest.mark.parametrize(
    ("body", "fault"),
    [
        ("Is it?", "must be a map"),
        ({}, "`type` must be boolean, choice or score"),
        ({"type": "noul"}, "`type` must be boolean, choice or score"),
        ({"type": ["boolean"]}, "`type` must be boolean, choice or score"),
        ({"type": "boolean", "options": []}, "a boolean has no field 'options'"),
        ({"type": "boolean", "instruction": "x"}, "'instruction'.*it has examples, false, instructions"),
        ({"type": "boolean", "instructions": 5}, "instructions must be text"),
        ({"type": "choice"}, "needs `options`"),
        ({"type": "choice", "options": "a, b"}, "needs `options`"),
        ({"type": "choice", "options": []}, "at least one option"),
        ({"type": "choice", "options": ["a", 1]}, "an option is not text"),
        ({"type": "choice", "options": ["a", "a"]}, "an option is named twice"),
        ({"type": "choice", "options": {"a": 1}}, "option 'a' must be text"),
        ({"type": "score"}, "needs `levels`"),
        ({"type": "score", "levels": ["a"]}, "at least two levels"),
        ({"type": "score", "levels": {"0": "a"}}, "needs `levels`"),
        ({"type": "boolean", "examples": {}}, "`examples` must be a list"),
        ({"type": "boolean", "examples": ["x"]}, "example 1 needs `text`"),
        ({"type": "boolean", "examples": [{"text": "t", "label": True, "by": "x"}]}, "nothing else"),
        ({"type": "boolean", "examples": [{"text": 1, "label": True}]}, "example 1 needs `text`"),
        ({"type": "boolean", "examples": [{"text": "t", "label": None}]}, "example 1 needs `text`"),
        ({"type": "boolean", "examples": [{"text": "t", "label": "yes"}]}, "true or false"),
        ({"type": "choice", "options": ["a"], "examples": [{"text": "t", "label": "b"}]}, "not an option"),
        ({"type": "score", "levels": ["a", "b"], "examples": [{"text": "t", "label": 2}]}, "outside 0 to 1"),
    ],
)
def test_a_malformed_question_names_file_question_and_fault(body: Any, fault: str) -> None:
    text = json.dumps({"good": {"type": "boolean"}, "topic": body})
    for source in ("q.json", "q.yaml"):
        with pytest.raises(QuestionError, match=rf"^question 'topic': .*{fault}.* \({source}\)$"):
            parse_questions(text, source=source)


def test_a_blank_id_is_refused() -> None:
    with pytest.raises(QuestionError, match="not blank"):
        parse_questions('" ": {type: boolean}')


def test_a_tag_makes_nothing() -> None:
    text = "a: !!python/object/apply:os.system ['true']"
    with pytest.raises(QuestionError, match="must be a map"):
        parse_questions(text)
