"""An app with processors as an operator would have them listed."""

from __future__ import annotations

from typing import Any

from classifier.answers import BooleanAnswer
from classifier.app import App
from classifier.classifier import Classifier
from classifier.models.scripted import ScriptedModel
from classifier.policy import PolicyContext
from classifier.processor import ClassifierProcessor, Coalesce
from classifier.questions import Boolean, Questions


class Safety(Questions):
    unsafe = Boolean("Is it unsafe?")


def allow(answers: Safety, context: PolicyContext[Safety]) -> None:
    """Everything passes."""


safety = Classifier("safety", ScriptedModel(lambda request: {"unsafe": BooleanAnswer(0.1)}), Safety)


def guard(name: str, **options: Any) -> ClassifierProcessor[Safety]:
    return ClassifierProcessor(id=name, classifier=safety, on_result=allow, **options)


app = App(
    processors=[
        guard("front", phases=("input",)),
        guard("flow", phases=("output", "stream"), hold_back=40, coalesce=Coalesce(200, 0.5)),
        guard("drip", phases=("stream",), error_strategy="warn", mode="monitor"),
        guard("any"),
    ],
    require_guard=("input", "stream"),
)

unguarded = App(processors=[guard("any")], require_guard=("input",))
