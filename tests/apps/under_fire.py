"""The app of the chaos run: events that one remote model sends to a webhook, and an agent that is guarded.

All of it is asked over HTTP, at the addresses in CHAOS_MODEL_URL, CHAOS_HOOK_URL and CHAOS_LLM_URL.
"""

from __future__ import annotations

import os
from typing import Literal, get_args

from classifier.agent import Agent, LanguageModel
from classifier.app import App
from classifier.classifier import Classifier
from classifier.models.http import Timeouts
from classifier.models.systemone import Service, SystemOne
from classifier.playbook import Playbook, Review, Webhook
from classifier.policy import PolicyContext
from classifier.processor import ClassifierProcessor
from classifier.questions import Boolean, Choice, Questions

Shelf = Literal["a", "b", "c", "d"]
SHELVES: tuple[Shelf, ...] = get_args(Shelf)
AGENT = "helper"
PLAYBOOK = "shelves"
LLM_KEY = "CHAOS_LLM_KEY"
HOOK_TOKEN = "CHAOS_HOOK_TOKEN"


class ShelfQuestions(Questions):
    shelf: Choice[Shelf] = Choice(dict.fromkeys(SHELVES), "Which shelf?")


class SafetyQuestions(Questions):
    unsafe = Boolean("Is it unsafe?")


def route(answers: ShelfQuestions) -> str | Review:
    """The shelf; a refusal is for a person."""
    return answers.shelf.choice_or(None) or Review("refused")


def stop_unsafe(answers: SafetyQuestions, context: PolicyContext[SafetyQuestions]) -> None:
    """What may be unsafe does not pass."""
    if answers.unsafe.probability_or(1.0) > 0.5:
        context.abort("unsafe")


def guard(name: str) -> ClassifierProcessor[SafetyQuestions]:
    """A processor with a classifier of its own."""
    return ClassifierProcessor(
        id=name, classifier=Classifier(name, model, SafetyQuestions), on_result=stop_unsafe
    )


model = SystemOne(
    "chaos-1",
    service=Service("chaos", base_url_variables=("CHAOS_MODEL_URL",)),
    timeouts=Timeouts(read=3.0, total=6.0),
)
app = App(
    processors=[guard("topic"), guard("safety"), guard("quality")],
    agents=[
        Agent(
            AGENT,
            model=LanguageModel("tested", base_url_variable="CHAOS_LLM_URL", key_variable=LLM_KEY),
            instructions="You help.",
            input=["topic"],
            stream=["safety"],
            output=["quality"],
        )
    ],
    playbooks=[
        Playbook(
            id=PLAYBOOK,
            classifier=Classifier("shelves", model, ShelfQuestions),
            routes=SHELVES,
            route=route,
            gates={"shelf": 0.8},
            destinations={"*": Webhook(os.environ.get("CHAOS_HOOK_URL", ""), token_variable=HOOK_TOKEN)},
        )
    ],
)
