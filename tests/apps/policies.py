"""Policies to try on old decisions: processors and a playbook, some of which only an app can complete."""

from __future__ import annotations

from classifier.app import App
from classifier.classifier import Classifier
from classifier.models.systemone import SystemOne
from classifier.playbook import Outbox, Playbook
from classifier.policy import PolicyContext
from classifier.processor import ClassifierProcessor
from classifier.questions import Boolean, Choice, Questions


class Looks(Questions):
    topic = Choice({"billing": None, "other": None})
    unsafe = Boolean("Is it unsafe?")


def abort_unsafe(answers: Looks, context: PolicyContext[Looks]) -> None:
    if answers.unsafe.probability_or(1.0) >= 0.05:
        context.abort("unsafe")


def broken(answers: Looks, context: PolicyContext[Looks]) -> None:
    raise ValueError("jane@example.test")


looks = Classifier("looks", SystemOne(), Looks)
"""Its key is in no environment of the tests: whoever asks it does not start."""

guard = ClassifierProcessor[Looks](id="guard", classifier="looks", on_result=abort_unsafe)
untyped = ClassifierProcessor(id="untyped", classifier="looks", on_result=abort_unsafe)
failing = ClassifierProcessor[Looks](id="guard", classifier="looks", on_result=broken)
desk: Playbook[Looks] = Playbook(
    id="desk",
    classifier="looks",
    routes=("billing", "other"),
    route=lambda answers: answers.topic.choice_or("other"),
    gates={},
    destinations={"*": Outbox("out.jsonl")},
)
app = App(classifiers=[looks], processors=[guard, untyped], playbooks=[desk])
