"""What a type checker knows about answers. Never executed: mypy and pyright read it like any other file."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, assert_never, assert_type

from classifier.answers import Answers, BooleanAnswer, ChoiceAnswer, Refusal, ScoreAnswer
from classifier.classifier import Classifier
from classifier.models.protocol import DecisionModel
from classifier.playbook import Outbox, Playbook, Review
from classifier.processor import ClassifierProcessor
from classifier.questions import Boolean, Choice, Question, Questions, Score
from classifier.result import ClassifierResult
from classifier.temporal.requests import Evaluation
from classifier.temporal.workflow import Processors, evaluate
from classifier.verdict import Verdict

Topic = Literal["billing", "outage", "other"]


class Ticket(Questions):
    """The questions of every example here."""

    unsafe = Boolean("Is it unsafe?")
    topic: Choice[Topic] = Choice({"billing": "Invoices", "outage": "Nothing works", "other": None})
    severity = Score(["low", "high"])


def questions_on_the_class() -> None:
    assert_type(Ticket.unsafe, Boolean)
    assert_type(Ticket.topic, Choice[Topic])
    assert_type(Ticket.severity, Score)


def answers_on_an_instance(answers: Ticket) -> None:
    assert_type(answers.unsafe, BooleanAnswer | Refusal)
    assert_type(answers.topic, ChoiceAnswer[Topic] | Refusal)
    assert_type(answers.severity, ScoreAnswer | Refusal)


def a_choice_is_a_literal_once_the_refusal_is_out(answers: Ticket) -> Topic:
    topic = answers.topic
    if isinstance(topic, Refusal):
        return "other"
    assert_type(topic, ChoiceAnswer[Topic])
    assert_type(topic.choice, Topic)
    return topic.choice


def what_stands_in_for_a_refusal_keeps_its_type(answers: Ticket) -> None:
    assert_type(answers.topic.choice_or(None), Topic | None)
    assert_type(answers.severity.score_or(None), float | None)
    assert_type(answers.unsafe.probability_or(1.0), float)
    assert_type(answers.unsafe.at_least(0.5, unsure=True), bool)


def a_complete_match_needs_no_default(answers: Ticket) -> Topic:
    match answers.topic:
        case Refusal():
            return "other"
        case ChoiceAnswer(choice=topic):
            assert_type(topic, Topic)
            return topic


def a_match_on_the_option_is_complete_with_every_option(topic: ChoiceAnswer[Topic]) -> int:
    match topic.choice:
        case "billing":
            return 1
        case "outage":
            return 2
        case "other":
            return 3
        case _:
            assert_never(topic.choice)


def any_match_on_the_kind_of_answer(answers: Ticket) -> float:
    match answers.severity:
        case ScoreAnswer(score=score):
            return score
        case Refusal():
            return 1.0


async def a_class_gives_its_own_answers(model: DecisionModel) -> None:
    classifier = Classifier("tickets", model, Ticket)
    assert_type(classifier, Classifier[Ticket])
    result = await classifier.evaluate("text")
    assert_type(result, ClassifierResult[Ticket])
    assert_type(result.answers.topic, ChoiceAnswer[Topic] | Refusal)


async def a_dictionary_gives_plain_answers(model: DecisionModel, questions: Mapping[str, Question]) -> None:
    result = await Classifier("tickets", model, questions).evaluate("text")
    assert_type(result, ClassifierResult[Answers])
    assert_type(result.answers.choice("topic"), ChoiceAnswer[str] | Refusal)
    assert_type(result.answers.boolean("unsafe"), BooleanAnswer | Refusal)


async def questions_of_a_call_decide_its_answers(model: DecisionModel) -> None:
    classifier = Classifier("any", model)
    assert_type(await classifier.evaluate("text", Ticket), ClassifierResult[Ticket])
    assert_type(await classifier.evaluate({"a": [1]}, {"q": Boolean("?")}), ClassifierResult[Answers])


def _route(answers: Ticket) -> str | Review:
    return answers.topic.choice_or(Review("refused"))


PLAYBOOK = Playbook(
    id="tickets",
    classifier=Classifier("tickets", "fast", Ticket),
    routes=("billing", "outage", "other"),
    route=_route,
    destinations={"*": Outbox("delivered.jsonl")},
    gates={"topic": 0.6},
)
assert_type(PLAYBOOK, Playbook[Ticket])


def from_a_processor_come_its_own_answers(processor: ClassifierProcessor[Ticket], verdict: Verdict) -> None:
    assert_type(verdict.answers(processor), tuple[Ticket, ...])
    assert_type(verdict.answers("tickets", Ticket), tuple[Ticket, ...])
    for answers in verdict.answers("tickets", Ticket):
        assert_type(answers.topic.choice_or(None), Topic | None)


def a_match_on_the_outcome_is_complete(verdict: Verdict) -> int:
    match verdict.outcome:
        case "allowed":
            return 1
        case "filtered":
            return 2
        case "aborted":
            return 3
        case _:
            assert_never(verdict.outcome)


def a_match_that_forgets_an_option_does_not_compile(verdict: Verdict) -> str:
    (answers,) = verdict.answers("tickets", Ticket)
    match answers.topic.choice_or("other"):
        case "billing":
            return "one"
        case "outage":
            return "two"
        case missing:
            assert_never(missing)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


def a_topic_that_nobody_declared_does_not_compile(verdict: Verdict) -> bool:
    (answers,) = verdict.answers("tickets", Ticket)
    return answers.topic.choice_or(None) == "biling"  # type: ignore[comparison-overlap]  # pyright: ignore[reportUnnecessaryComparison]


def an_answer_that_is_not_declared_does_not_compile(verdict: Verdict) -> object:
    (answers,) = verdict.answers("tickets", Ticket)
    return answers.mood  # type: ignore[attr-defined]  # pyright: ignore[reportAttributeAccessIssue,reportUnknownMemberType,reportUnknownVariableType]


async def a_verdict_in_a_workflow_is_the_same(guards: Processors) -> None:
    assert_type(await guards.input(["hello"]), Verdict)
    assert_type(await evaluate("tickets", "hello", Ticket), Evaluation[Ticket])
