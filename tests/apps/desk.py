"""An app that takes tickets, states of things, bursts and GitHub's issues; a text decides where it goes."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Any, cast

from classifier.answers import Answer, ChoiceAnswer
from classifier.app import App
from classifier.classifier import Classifier
from classifier.models.protocol import DecisionRequest
from classifier.models.scripted import ScriptedModel
from classifier.playbook import Coalescing, Outbox, Playbook, Review
from classifier.questions import Choice, Questions
from classifier.values import JSON, State

BOT = "triage-bot"


class Ticket(Questions):
    """What is asked about everything."""

    department = Choice({"billing": None, "technical": None})


def answer(request: DecisionRequest) -> Mapping[str, Answer]:
    """Sure of everything but what says that it is not."""
    sure = 0.55 if "unsure" in str(request.state) else 0.95
    return {"department": ChoiceAnswer("billing", {"billing": sure, "technical": 1 - sure})}


def by_department(answers: Ticket) -> str | Review:
    """Where the answer leads."""
    return answers.department.choice_or(Review("refused"))


def issue_text(data: JSON) -> State:
    """What a GitHub delivery about an issue says."""
    issue = cast("Mapping[str, Any]", data)["issue"]
    return f"{issue['title']}\n\n{issue['body'] or ''}"


def playbook(name: str, **more: Any) -> Playbook[Ticket]:
    """One of four that differ in what they take."""
    return Playbook(
        id=name,
        classifier="tickets",
        routes=("billing", "technical"),
        route=by_department,
        gates={"department": 0.8},
        destinations={"*": Outbox("outbox.jsonl")},
        own_actors=(BOT,),
        **more,
    )


GITHUB = tuple(f"com.github.issues.{action}" for action in ("opened", "edited", "labeled", "reopened"))

app = App(
    classifiers=[Classifier("tickets", ScriptedModel(answer), Ticket)],
    playbooks=[
        playbook("tickets"),
        playbook("states", event_types=("state",), ordered=True),
        playbook(
            "bursts",
            event_types=("burst",),
            coalescing=Coalescing(timedelta(seconds=1), timedelta(seconds=10)),
        ),
        playbook("issues", event_types=GITHUB, state=issue_text, ordered=True),
    ],
)
