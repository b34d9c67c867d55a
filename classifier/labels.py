"""Corrected decisions as examples: what people decided, for models that learn from it. Pure.

A file has one JSON object a line:

    {"question": "department", "text": "My card was stolen", "label": "security"}
    {"question": "urgent", "state": {"subject": "Hi", "body": "…"}, "label": false, "decision_id": "…"}

`question` is an id, `label` what a person answered: true or false, an option, or a position on the levels.
The text is `text`, or what is language in `state`, as the local model reads it. Other fields are let be:
an export may say where a line comes from. A later line about the same question and text replaces an earlier
one.

    labels = read_labels(Path("corrected.jsonl").open(encoding="utf-8"), source="corrected.jsonl")
    classifier = Classifier("tickets", "local", with_examples(TicketQuestions, labels))
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NoReturn, TypeVar, cast, overload

from classifier.errors import ConfigurationError, QuestionError
from classifier.questions import Example, Question, Questions, check_questions, questions_of
from classifier.values import JSON, language_of

Q = TypeVar("Q", bound=Questions)


@dataclass(frozen=True, slots=True)
class Label:
    """One answer of a person.

    Attributes:
        question: The question's id.
        text: What it was asked about.
        label: True or false, an option, or a position on the levels.
        where: File and line, for messages.
    """

    question: str
    text: str
    label: bool | str | float
    where: str


def read_labels(lines: Iterable[str], *, source: str = "labels") -> list[Label]:
    """Reads lines of JSON; empty lines are let be.

    Args:
        lines: An open file, or any lines.
        source: The file's name, for messages.

    Raises:
        ConfigurationError: Names the line and what is wrong with it, never its text.
    """
    return [_label(line, f"{source}, line {number}") for number, line in enumerate(lines, 1) if line.strip()]


@overload
def with_examples(questions: type[Q], labels: Iterable[Label]) -> type[Q]: ...
@overload
def with_examples(questions: Mapping[str, Question], labels: Iterable[Label]) -> dict[str, Question]: ...
def with_examples(
    questions: type[Questions] | Mapping[str, Question], labels: Iterable[Label]
) -> type[Questions] | dict[str, Question]:
    """The same questions with `labels` as examples, after those they have; a class gives a subclass.

    Raises:
        ConfigurationError: Names the line whose question is not there, or whose label does not fit it.
    """
    declared = questions_of(questions)
    learned: dict[str, dict[str, Label]] = {}
    for label in labels:
        if label.question not in declared:
            known = ", ".join(declared)
            raise ConfigurationError(
                f"{label.where}: there is no question {label.question!r}; there is {known}"
            )
        learned.setdefault(label.question, {})[label.text] = label
    taught = {name: _taught(name, declared[name], list(own.values())) for name, own in learned.items()}
    if isinstance(questions, type):
        return type(questions.__name__, (questions,), {"__doc__": questions.__doc__, **taught})
    return {**declared, **taught}


def _taught(name: str, question: Question, labels: Sequence[Label]) -> Question:
    for label in labels:
        try:
            check_questions({name: _with(question, [label])})
        except QuestionError as error:
            raise ConfigurationError(f"{label.where}: {error}") from error
    return _with(question, labels)


def _with(question: Question, labels: Sequence[Label]) -> Question:
    texts = {label.text for label in labels}
    kept = [example for example in question.examples if example.text not in texts]
    learned = [Example(label.text, cast("Any", label.label)) for label in labels]
    return replace(question, examples=cast("Any", (*kept, *learned)))


def _label(line: str, where: str) -> Label:
    try:
        body: Any = json.loads(line, parse_constant=_refuse)
    except (ValueError, RecursionError):
        body = None
    if not isinstance(body, dict):
        raise ConfigurationError(f"{where}: it is not a JSON object")
    fields = cast("dict[str, JSON]", body)
    question, label = fields.get("question"), fields.get("label")
    if not isinstance(question, str) or not question:
        raise ConfigurationError(f"{where}: `question` must be the id of a question")
    if not isinstance(label, bool | str | int | float):
        raise ConfigurationError(f"{where}: `label` must be true or false, an option, or a number")
    return Label(question, _text(fields, where), label, where)


def _text(fields: Mapping[str, JSON], where: str) -> str:
    if ("text" in fields) == ("state" in fields):
        raise ConfigurationError(f"{where}: it needs either `text` or `state`")
    given = fields.get("text", fields.get("state"))
    if not isinstance(given, str if "text" in fields else str | list | dict):
        kind = "text" if "text" in fields else "state"
        raise ConfigurationError(f"{where}: `{kind}` has a type that a {kind} does not have")
    text = language_of(given)
    if not text.strip():
        raise ConfigurationError(f"{where}: its text is blank")
    return text


def _refuse(token: str) -> NoReturn:
    raise ValueError(token)
