"""An app whose model is a System One server at COUNTED_MODEL_URL, where a test counts the requests."""

from __future__ import annotations

from typing import Literal, get_args

from classifier.app import App
from classifier.classifier import Classifier
from classifier.models.systemone import Service, SystemOne
from classifier.playbook import Outbox, Playbook, Review
from classifier.questions import Choice, Questions

Shelf = Literal["a", "b", "c", "d", "review"]


class ShelfQuestions(Questions):
    shelf: Choice[Shelf] = Choice(dict.fromkeys(get_args(Shelf)), "Which shelf?")


def route(answers: ShelfQuestions) -> str | Review:
    shelf = answers.shelf.choice_or(None)
    return Review("asked_for") if shelf in {None, "review"} else str(shelf)


def shelves() -> App:
    """The app, anew: its model keeps the address that it was resolved with."""
    return App(
        models={
            "remote": SystemOne(
                "counted", service=Service("counted", base_url_variables=("COUNTED_MODEL_URL",))
            )
        },
        playbooks=[
            Playbook(
                id="shelves",
                classifier=Classifier("shelves", "remote", ShelfQuestions),
                routes=("a", "b", "c", "d"),
                route=route,
                gates={"shelf": 0.8},
                destinations={"*": Outbox("outbox.jsonl")},
            )
        ],
    )


app = shelves()
