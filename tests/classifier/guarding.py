"""Short ways to build processors over scripted models, for the tests beside."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from classifier.answers import Answer, BooleanAnswer
from classifier.classifier import Classifier
from classifier.models.protocol import DecisionRequest
from classifier.models.scripted import ScriptedModel
from classifier.policy import PolicyContext
from classifier.processor import ClassifierProcessor
from tests.classifier.conformance import (
    SafetyQuestions,
    abort_unsafe,
    answering,
)

Processor = ClassifierProcessor[Any]


def silent(answers: Any, context: PolicyContext[Any]) -> None:
    return


def guarding(model: ScriptedModel | None = None, *, policy: Any = abort_unsafe, **options: Any) -> Processor:
    classifier = Classifier("safety", model or ScriptedModel(answering), SafetyQuestions)
    return ClassifierProcessor(classifier=classifier, on_result=policy, **options)


def asking(model: ScriptedModel, name: str, questions: Mapping[str, Any], **options: Any) -> Processor:
    classifier = Classifier(name, model, questions)
    return ClassifierProcessor(classifier=classifier, id=name, on_result=silent, **options)


def yes_to_all(request: DecisionRequest) -> Mapping[str, Answer]:
    return {name: BooleanAnswer(0.9) for name in request.questions}
