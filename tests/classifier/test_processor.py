"""Declaring a processor: rows P01 to P07 of the contract, and every option's bounds."""

from __future__ import annotations

import math
from typing import Any

import pytest

from classifier.answers import Answers
from classifier.app import App
from classifier.classifier import Classifier
from classifier.errors import ConfigurationError
from classifier.models.scripted import ScriptedModel
from classifier.policy import PolicyContext
from classifier.processor import ClassifierProcessor, Coalesce
from classifier.questions import Boolean, Choice, Questions, Score
from classifier.testing import try_messages
from tests.classifier.conformance import Case, Form, SafetyQuestions, abort_unsafe, answering
from tests.classifier.conformance_rows import ROWS
from tests.classifier.plain import run_plain

EVERY = [pytest.param(case, form, id=f"{case.name}-{form}") for case in ROWS for form in case.forms]


class Other(Questions):
    topic = Choice({"billing": None, "other": None})


def safety() -> Classifier[SafetyQuestions]:
    return Classifier("safety", ScriptedModel(answering), SafetyQuestions)


def processor(**options: Any) -> ClassifierProcessor[SafetyQuestions]:
    given: dict[str, Any] = {"classifier": safety(), "on_result": abort_unsafe}
    return ClassifierProcessor(**given | options)


def silent(answers: Answers, context: PolicyContext[Answers]) -> None:
    return


@pytest.mark.parametrize(("case", "form"), EVERY)
async def test_conformance(case: Case, form: Form) -> None:
    await case.hold(run_plain, form)


def test_every_row_that_is_run_has_a_case() -> None:
    rows = {case.row for case in ROWS}
    assert rows == {f"P{number:02}" for number in range(8, 38)} - {"P35"}


def test_p01_the_default_id_is_classifier_and_the_name_is_classifier() -> None:
    assert processor().id == "classifier"
    assert processor().name == "Classifier"


@pytest.mark.parametrize("window", [-1, 1.5, math.nan, math.inf, True, "3"])
def test_p02_a_chunk_window_is_a_whole_number_that_is_not_negative(window: Any) -> None:
    with pytest.raises(ConfigurationError, match="chunk_window"):
        processor(chunk_window=window)


@pytest.mark.parametrize("limit", [-1, 1.5, math.nan, math.inf, False, "3"])
def test_p03_a_max_input_length_is_a_whole_number_that_is_not_negative(limit: Any) -> None:
    with pytest.raises(ConfigurationError, match="max_input_length"):
        processor(max_input_length=limit)


def test_p04_a_classifier_without_questions_is_refused_when_the_processor_is_built() -> None:
    with pytest.raises(ConfigurationError, match="needs a classifier with questions"):
        processor(classifier=Classifier("bare", ScriptedModel(answering)))


async def test_p05_a_name_resolves_to_the_registered_classifier_in_every_app() -> None:
    for _ in range(2):
        registered = safety()
        app = App(classifiers=[registered], processors=[processor(classifier="safety")]).resolve({})
        found = app.processors["classifier"]
        assert found is app.processors["classifier"]
        assert found.classifier is app.classifiers["safety"]
        tried = await try_messages([found], ["bad"])
        assert tried.verdict.outcome == "aborted"


def test_p05_a_name_resolves_by_key_too() -> None:
    app = App(classifiers={"guard": safety()}, processors={"entry": processor(classifier="guard")})
    assert app.resolve({}).processors["entry"].classifier_id == "safety"


@pytest.mark.parametrize("strategy", ["strict", "warn"])
async def test_p06_p07_a_name_without_an_app_raises_under_every_strategy(strategy: str) -> None:
    with pytest.raises(ConfigurationError, match="names the classifier 'safety'; only an App can look it up"):
        await try_messages([processor(classifier="safety", error_strategy=strategy)], ["hello"])


@pytest.mark.parametrize("strategy", ["strict", "warn"])
def test_p06_p07_an_unknown_name_stops_the_app_and_is_named(strategy: str) -> None:
    app = App(classifiers=[safety()], processors=[processor(classifier="toxicty", error_strategy=strategy)])
    with pytest.raises(
        ConfigurationError, match="'classifier' names the classifier 'toxicty'; registered: safety"
    ):
        app.resolve({})


@pytest.mark.parametrize("strategy", ["strict", "warn"])
def test_p06_p07_a_registered_classifier_without_questions_stops_the_app(strategy: str) -> None:
    bare = Classifier("bare", ScriptedModel(answering))
    app = App(classifiers=[bare], processors=[processor(classifier="bare", error_strategy=strategy)])
    with pytest.raises(ConfigurationError, match="needs a classifier with questions; 'bare' has none"):
        app.resolve({})


@pytest.mark.parametrize("strategy", ["strict", "warn"])
async def test_p07_a_model_that_is_only_a_name_raises_under_every_strategy(strategy: str) -> None:
    unresolved = Classifier("safety", "main", SafetyQuestions)
    with pytest.raises(ConfigurationError, match="names the model 'main'"):
        await try_messages([processor(classifier=unresolved, error_strategy=strategy)], ["hello"])


def test_declared_questions_that_differ_from_the_registered_stop_the_app_and_are_named() -> None:
    wrong: ClassifierProcessor[Other] = ClassifierProcessor[Other](classifier="safety", on_result=silent)
    with pytest.raises(ConfigurationError, match="they differ in topic, unsafe"):
        App(classifiers=[safety()], processors=[wrong]).resolve({})


def test_the_type_argument_and_the_questions_argument_both_declare() -> None:
    by_type = ClassifierProcessor[SafetyQuestions](classifier="safety", on_result=abort_unsafe)
    by_argument = processor(classifier="safety", questions=SafetyQuestions)
    assert by_type.declared is by_argument.declared is SafetyQuestions


async def test_a_named_classifier_declared_as_a_dictionary_gives_answers_of_the_declared_class() -> None:
    plain = Classifier("safety", ScriptedModel(answering), {"unsafe": Boolean("Another wording?")})
    named = ClassifierProcessor[SafetyQuestions](classifier="safety", on_result=abort_unsafe)
    app = App(classifiers=[plain], processors=[named]).resolve({})
    tried = await try_messages([app.processors["classifier"]], ["bad"])
    assert tried.verdict.outcome == "aborted"
    (answers,) = tried.verdict.answers(named)
    assert answers.unsafe.probability_or(0.0) == 0.9


@pytest.mark.parametrize(
    ("registered", "declared", "differ"),
    [
        ({"q": Choice({"a": None})}, {"q": Choice({"b": None})}, True),
        ({"q": Choice({"a": None})}, {"q": Choice({"a": "words"}, "more words")}, False),
        ({"q": Score(["low", "high"])}, {"q": Score(["1", "2", "3"])}, True),
        ({"q": Score(["low", "high"])}, {"q": Boolean()}, True),
    ],
)
def test_questions_differ_in_type_options_or_levels_not_in_words(
    registered: Any, declared: Any, differ: bool
) -> None:
    named: Any = ClassifierProcessor(classifier="c", on_result=silent, questions=declared)
    app = App(
        classifiers=[Classifier("c", ScriptedModel(answering), registered)],
        processors=[named],
    )
    assert bool([problem for problem in app.problems({}) if "differ in q" in problem]) is differ


def test_two_processors_with_one_id_stop_the_app_and_both_places_are_named() -> None:
    app = App(processors={"entry": processor(), "exit": processor()})
    with pytest.raises(
        ConfigurationError, match=r"two processors answer to 'classifier': key 'entry'.*key 'exit'"
    ):
        app.resolve({})


def test_two_inline_classifiers_with_one_id_stop_the_app() -> None:
    app = App(processors=[processor(id="one"), processor(id="two")])
    with pytest.raises(ConfigurationError, match="two classifiers answer to 'safety'"):
        app.resolve({})


async def test_two_processors_with_one_id_cannot_run_in_one_chain() -> None:
    with pytest.raises(ConfigurationError, match="two processors of a chain have the id 'classifier'"):
        await try_messages([processor(), processor()], ["hello"])


def test_pol_o04_a_mistyped_option_is_refused_and_named() -> None:
    with pytest.raises(TypeError, match="classifer"):
        processor(classifer="toxicity")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"error_strategy": "close"}, "error_strategy is 'strict' or 'warn', not 'close'"),
        ({"mode": "shadow"}, "mode is 'enforce' or 'monitor', not 'shadow'"),
        ({"id": "  "}, "id must be text"),
        ({"classifier": ""}, "classifier must be"),
        ({"classifier": None}, "classifier must be"),
        ({"on_result": None}, "on_result must be a function"),
        ({"on_decision": "log"}, "on_decision must be a function"),
        ({"max_in_flight": 0}, "max_in_flight must be"),
        ({"hold_back": -1}, "hold_back must be"),
        ({"hold_back": 8, "max_input_length": 8}, "larger than hold_back"),
        ({"coalesce": Coalesce(0, 1.0)}, "coalesce must gather"),
        ({"coalesce": Coalesce(10, math.inf)}, "coalesce must wait"),
        ({"normalise": "nfkc"}, "normalise is True, False or a function"),
        ({"provider_options": {"x": object()}}, "provider_options"),
    ],
)
def test_pol_o04_a_mistyped_value_is_refused_and_named(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        processor(**options)


@pytest.mark.parametrize("phases", [(), ("inptu",), "input", ("step",), ("input", "reply")])
def test_phases_are_known_ones_or_left_out(phases: Any) -> None:
    with pytest.raises(ConfigurationError, match="phases are some of input, output, stream"):
        processor(phases=phases)


async def test_a_processor_is_used_in_the_phases_it_declares_and_in_no_other() -> None:
    declared = processor(phases=["input"])
    assert (await try_messages([declared], ["hello"])).verdict.outcome == "allowed"
    with pytest.raises(
        ConfigurationError, match="'classifier' is declared for input, and is used for output"
    ):
        await try_messages([declared], ["hello"], phase="output")


def test_a_bound_processor_keeps_its_phases() -> None:
    assert processor(phases=("input", "stream")).bound(safety()).phases == ("input", "stream")
