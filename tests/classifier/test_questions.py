"""Declaring questions: two ways with one meaning, and every fault named."""

from __future__ import annotations

import math
from typing import Any, Literal, cast

import pytest

from classifier.answers import BooleanAnswer, ChoiceAnswer, ScoreAnswer
from classifier.errors import QuestionError
from classifier.questions import (
    Boolean,
    Choice,
    Example,
    Question,
    Questions,
    Score,
    check_questions,
    instructions_of,
    question_set_hash,
    question_to_json,
    questions_of,
)


class Ticket(Questions):
    unsafe = Boolean("Is it unsafe?", true="It threatens", false={"is": "harmless"})
    topic: Choice[Literal["billing", "other"]] = Choice({"billing": "Invoices", "other": None})
    severity = Score(["low", None, {"level": "high"}], ["How", "bad?"])


DECLARED: dict[str, Question] = {
    "unsafe": Boolean("Is it unsafe?", true="It threatens", false={"is": "harmless"}),
    "topic": Choice({"billing": "Invoices", "other": None}),
    "severity": Score(["low", None, {"level": "high"}], ["How", "bad?"]),
}


def test_a_class_and_a_dictionary_declare_the_same() -> None:
    assert questions_of(Ticket) == questions_of(DECLARED)
    assert list(questions_of(Ticket)) == ["unsafe", "topic", "severity"]
    assert question_set_hash(questions_of(Ticket)) == question_set_hash(DECLARED)


def test_a_class_holds_questions_and_its_instance_answers() -> None:
    answers = Ticket(
        {"unsafe": BooleanAnswer(0.1), "topic": ChoiceAnswer("other"), "severity": ScoreAnswer(2)}
    )
    assert Ticket.topic.options == {"billing": "Invoices", "other": None}
    assert (answers.unsafe, answers.topic, answers.severity) == tuple(answers.values())


def test_a_generic_question_may_be_built_by_its_type() -> None:
    assert Choice[Literal["a"]]({"a": None}) == Choice({"a": None})
    assert Example[bool]("text", True) == Example("text", True)
    assert ChoiceAnswer[str]("a") == ChoiceAnswer("a")


def test_subclasses_add_and_replace_questions() -> None:
    class Longer(Ticket):
        unsafe = Boolean("Is it really unsafe?")
        spam = Boolean("Is it spam?")

    assert set(questions_of(Longer)) == {"unsafe", "topic", "severity", "spam"}
    assert Longer({"unsafe": BooleanAnswer(1)}).unsafe == BooleanAnswer(1)
    assert questions_of(Longer)["unsafe"].instructions == "Is it really unsafe?"


def test_several_bases_bring_all_their_questions() -> None:
    class Tone(Questions):
        rude = Boolean("Is it rude?")

    class Both(Ticket, Tone):
        pass

    assert set(questions_of(Both)) == {"unsafe", "topic", "severity", "rude"}
    assert Both({"rude": BooleanAnswer(0.5)}).rude == BooleanAnswer(0.5)


def test_one_object_cannot_be_two_questions() -> None:
    shared = Boolean("Is it unsafe?")
    with pytest.raises(QuestionError, match=r"'second'.*same object as 'first'"):

        class Twice(Questions):  # pyright: ignore[reportUnusedClass] - declaring it is the test
            first = shared
            second = shared


@pytest.mark.parametrize("name", ["get", "items", "keys", "values", "boolean", "choice", "score"])
def test_a_name_that_every_answer_set_has_is_refused(name: str) -> None:
    with pytest.raises(QuestionError, match=name):
        type("Clash", (Questions,), {name: Boolean("?")})


def test_a_literal_that_differs_from_its_options_is_refused() -> None:
    with pytest.raises(QuestionError, match=r"'topic'.*'spam'"):

        class Wrong(Questions):  # pyright: ignore[reportUnusedClass] - declaring it is the test
            topic: Choice[Literal["billing", "spam"]] = cast("Any", Choice({"billing": None}))


FAULTS: list[tuple[dict[Any, Any], str]] = [
    ({}, "at least one question"),
    ({"": Boolean("?")}, "not blank"),
    ({" ": Boolean("?")}, "not blank"),
    ({7: Boolean("?")}, "'7'"),
    ({"q": "Is it unsafe?"}, "'q': a str is not"),
    ({"q": None}, "'q': a NoneType is not"),
    ({"q": Choice({})}, "'q': a choice needs at least one option"),
    ({"q": Choice(cast("Any", {"": None}))}, "'q': every option"),
    ({"q": Choice(cast("Any", {True: None}))}, "'q': every option"),
    ({"q": Choice({"a": None}, examples=[Example("text", "b")])}, "'q': an example is labelled 'b'"),
    ({"q": Choice({"a": None}, examples=[Example("text", cast("Any", ["a"]))])}, "'q': an example"),
    ({"q": Score(["only"])}, "'q': a score needs at least two levels"),
    ({"q": Score(["a", "b"], examples=[Example("text", 1.5)])}, "'q': an example is labelled 1.5"),
    (
        {"q": Score(["a", "b"], examples=[Example("text", cast("Any", "1"))])},
        "'q': an example is labelled '1'",
    ),
    ({"q": Score(["a", "b"], examples=[Example("text", True)])}, "'q': an example is labelled True"),
    ({"q": Score(["a", "b"], examples=[Example("text", math.nan)])}, "'q': an example is labelled nan"),
    ({"q": Boolean("?", examples=[Example("text", cast("Any", "false"))])}, "'q': an example"),
    ({"q": Boolean("?", examples=[Example("text", cast("Any", 1))])}, "'q': an example"),
]


@pytest.mark.parametrize(("questions", "fault"), FAULTS, ids=[fault for _, fault in FAULTS])
def test_a_fault_names_its_question(questions: dict[Any, Any], fault: str) -> None:
    with pytest.raises(QuestionError, match=fault):
        check_questions(questions)


@pytest.mark.parametrize(
    ("make", "fault"),
    [
        (lambda: Boolean({"deep": [1, math.nan]}), r"instructions.deep\[1\] is not a finite number"),
        (lambda: Boolean("?", true=cast("Any", {1: "x"})), "true has a key of type int"),
        (lambda: Boolean("?", false=cast("Any", {"x": object()})), "false.x is of type object"),
        (lambda: Boolean(cast("Any", 5)), "instructions must be text"),
        (lambda: Choice({"a": cast("Any", False)}), "option 'a' must be text"),
        (lambda: Score(["low", cast("Any", math.inf)]), "level 1 is not a finite number"),
        (lambda: Score("low"), "levels must be a list"),
    ],
)
def test_what_is_not_json_is_refused_when_built(make: Any, fault: str) -> None:
    with pytest.raises(QuestionError, match=fault):
        make()


def test_a_cycle_is_refused() -> None:
    cycle: list[Any] = []
    cycle.append(cycle)
    with pytest.raises(QuestionError, match="contains itself"):
        Boolean(cycle)


def test_questions_keep_copies_of_their_own() -> None:
    instructions: dict[str, Any] = {"ask": ["is it"]}
    options: dict[str, Any] = {"a": {"means": "x"}}
    levels: list[Any] = ["low", {"is": "high"}]
    questions: dict[str, Question] = {
        "b": Boolean(instructions),
        "c": Choice(options),
        "s": Score(levels),
    }
    before = question_set_hash(questions)
    instructions["ask"].append("not")
    options["a"]["means"] = "y"
    options["b"] = None
    levels[1]["is"] = "low"
    assert question_set_hash(questions) == before


@pytest.mark.parametrize(
    "other",
    [
        {**DECLARED, "unsafe": Boolean("Is it unsafe??", true="It threatens", false={"is": "harmless"})},
        {**DECLARED, "unsafe": Boolean("Is it unsafe?", true="It threatens", false={"is": "safe"})},
        {**DECLARED, "topic": Choice({"billing": "Invoices", "others": None})},
        {**DECLARED, "topic": Choice({"other": None, "billing": "Invoices"})},
        {**DECLARED, "severity": Score(["low", "", {"level": "high"}], ["How", "bad?"])},
        {
            **DECLARED,
            "topic": Choice({"billing": "Invoices", "other": None}, examples=[Example("x", "other")]),
        },
        {"unsafe": DECLARED["unsafe"], "topic": DECLARED["topic"]},
        {**{k: v for k, v in DECLARED.items() if k != "unsafe"}, "unsafe2": DECLARED["unsafe"]},
    ],
)
def test_one_word_another_option_or_example_is_another_set(other: dict[str, Question]) -> None:
    assert question_set_hash(other) != question_set_hash(DECLARED)


def test_the_hash_is_the_same_in_every_release() -> None:
    # Stored decisions are compared by it: a change here is a change of every record's meaning.
    known = "ba72508b"
    assert question_set_hash({"q": Boolean("Is it unsafe?")})[:8] == known


def test_without_instructions_the_id_is_asked() -> None:
    assert instructions_of("is_it_spam", Boolean()) == "is_it_spam"
    assert instructions_of("is_it_spam", Boolean("")) == ""
    assert question_to_json(Boolean()) == {
        "type": "boolean",
        "instructions": None,
        "criteria": {"true": None, "false": None},
    }
