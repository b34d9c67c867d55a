"""The helpers that ship for users' own tests."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest

from classifier.answers import Answers, BooleanAnswer, ChoiceAnswer, Refusal
from classifier.classifier import Classifier
from classifier.decision import Branch
from classifier.errors import ConfigurationError, InvalidAnswer, PolicyError
from classifier.messages import DataPart, Message, TextPart, message_from_json, message_to_json
from classifier.models.scripted import ScriptedModel
from classifier.playbook import Outbox, Playbook
from classifier.policy import Ruling
from classifier.processor import ClassifierProcessor
from classifier.questions import Boolean
from classifier.testing import (
    MemoryStore,
    outcomes,
    try_messages,
    try_playbook,
    try_policy,
    try_stream,
    with_model,
)
from classifier.verdict import Run
from tests.classifier.conformance import SafetyQuestions, abort_unsafe, answering, broken, filter_unsafe

named = ClassifierProcessor[SafetyQuestions](classifier="safety", on_result=abort_unsafe)
safety = Classifier("safety", "main", SafetyQuestions)


def processor(policy: Any = abort_unsafe, **options: Any) -> ClassifierProcessor[SafetyQuestions]:
    classifier = Classifier("safety", ScriptedModel(answering), SafetyQuestions)
    return ClassifierProcessor(classifier=classifier, on_result=policy, **options)


async def test_a_policy_is_tried_on_answers_alone() -> None:
    aborted = await try_policy(processor(), {"unsafe": BooleanAnswer(0.9)})
    assert aborted.outcome == "aborted"
    assert aborted.tripwire is not None
    assert aborted.tripwire.reason == "unsafe"
    assert await try_policy(processor(), {"unsafe": BooleanAnswer(0.2)}) == Ruling("allowed")
    assert await try_policy(processor(filter_unsafe), {"unsafe": Refusal()}) == Ruling("filtered")


async def test_a_policy_of_a_named_classifier_is_tried_by_its_type_argument() -> None:
    assert (await try_policy(named, {"unsafe": BooleanAnswer(0.9)})).outcome == "aborted"


async def test_answers_that_do_not_fit_the_questions_are_found() -> None:
    with pytest.raises(InvalidAnswer, match="missing=unsafe"):
        await try_policy(processor(), {"unsaf": BooleanAnswer(0.9)})
    with pytest.raises(InvalidAnswer, match="a boolean was asked"):
        await try_policy(processor(), {"unsafe": ChoiceAnswer("x")})


async def test_a_broken_policy_is_found() -> None:
    with pytest.raises(PolicyError, match="raised ValueError"):
        await try_policy(processor(broken), {"unsafe": BooleanAnswer(0.9)})


async def test_a_processor_is_tried_with_another_model() -> None:
    model = ScriptedModel([{"unsafe": BooleanAnswer(0.95)}])
    tried = await try_messages([with_model(named, model, safety)], ["anything"])
    assert tried.verdict.outcome == "aborted"
    assert tried.decisions[0].tripwire == tried.verdict.tripwire
    assert model.requests[0].state == "anything"


async def test_a_processor_that_only_names_its_classifier_needs_to_be_given_it() -> None:
    with pytest.raises(ConfigurationError, match="hand it over as `classifier`"):
        with_model(named, ScriptedModel([]))


async def test_a_table_of_examples_gives_its_outcomes() -> None:
    assert await outcomes([processor()], ["hello", "bad", "secret"]) == ["allowed", "aborted", "aborted"]


async def test_a_run_is_repeated_over_one_store() -> None:
    store, run = MemoryStore(), Run.here("key", context={"tenant_id": "acme"})
    first = await try_messages([processor()], ["hello"], store=store, run=run)
    again = await try_messages([processor()], ["hello"], store=store, run=run)
    assert first.decisions == again.decisions
    assert first.decisions[0].tenant == "acme"


async def test_a_stream_is_tried_with_text_and_other_parts() -> None:
    tried = await try_stream([processor()], ["hello ", {"tool": 1}, "bad"], context={"thread_id": "t1"})
    assert (tried.text, tried.end.outcome) == ("hello ", "aborted")
    assert {decision.ids.thread for decision in tried.decisions} == {"t1"}


def is_a_bug(answers: Answers) -> str:
    return "bug"


def by_a_question_that_is_not_asked(answers: Answers) -> str:
    return str(answers["ham"])


def letters(route: Any = is_a_bug, classifier: Any = None) -> Playbook[Any]:
    return Playbook(
        id="letters",
        classifier=classifier or Classifier("letters", "main", {"spam": Boolean("?")}),
        routes=("bug",),
        route=route,
        gates={"spam": 0.8},
        destinations={"*": Outbox("x")},
    )


async def test_a_playbook_is_tried_on_answers_with_its_gates() -> None:
    sure, unsure = BooleanAnswer(0.05, calibrated=True), BooleanAnswer(0.4, calibrated=True)
    assert await try_playbook(letters(), {"spam": sure}) == Branch("route", "bug")
    branch = await try_playbook(letters(), {"spam": unsure})
    assert branch == Branch("review", "bug", ("low_probability:spam",))


async def test_answers_that_do_not_fit_the_playbook_are_refused() -> None:
    with pytest.raises(InvalidAnswer, match="missing=spam"):
        await try_playbook(letters(), {})
    with pytest.raises(PolicyError, match="KeyError"):
        await try_playbook(letters(by_a_question_that_is_not_asked), {"spam": BooleanAnswer(0.05)})
    with pytest.raises(ConfigurationError, match="give it its classifier"):
        await try_playbook(letters(classifier="named"), {"spam": BooleanAnswer(0.05)})


def test_a_message_travels_as_json() -> None:
    message = Message((TextPart("hello"), DataPart({"type": "image", "n": 1})), "assistant", "m1", "t1")
    assert message_from_json(message_to_json(message)) == message
    assert message_from_json({"role": "user", "content": "x"}) == Message("x")
    assert message_from_json({"content": ["a", {"type": "text", "text": "b"}]}).text == "a b"


@pytest.mark.parametrize(
    "body",
    [{}, {"content": 3}, {"content": "x", "rol": "user"}, {"content": "x", "id": 7}, {"content": [{1}]}],
)
def test_a_message_that_is_none_is_refused(body: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError):
        message_from_json(body)


def test_it_needs_nothing_but_the_standard_library() -> None:
    script = "import sys, classifier.testing; print(*sys.modules)"
    ran = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    loaded = set(ran.stdout.split())
    assert "classifier.testing" in loaded
    assert not loaded & {"httpx", "sqlalchemy", "alembic", "numpy", "temporalio", "pydantic"}
