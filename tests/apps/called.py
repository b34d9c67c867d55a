"""An app that drops spam: what a project calls by name."""

from __future__ import annotations

from classifier.answers import BooleanAnswer
from classifier.app import App
from classifier.classifier import Classifier
from classifier.models.protocol import DecisionRequest
from classifier.models.scripted import Reply, ScriptedModel
from classifier.policy import PolicyContext
from classifier.processor import ClassifierProcessor
from classifier.questions import Boolean, Questions


class Letter(Questions):
    spam = Boolean("Is this spam?")


def reply(request: DecisionRequest) -> Reply:
    """Whoever says "buy" sells."""
    return {"spam": BooleanAnswer(0.97 if "buy" in str(request.state).lower() else 0.02)}


def drop_spam(answers: Letter, context: PolicyContext[Letter]) -> None:
    if answers.spam.at_least(0.5, unsure=True):
        context.filter()


letters = Classifier("letters", ScriptedModel(reply), Letter)
app = App(
    classifiers=[letters],
    processors=[ClassifierProcessor(id="letters", classifier=letters, on_result=drop_spam)],
)
