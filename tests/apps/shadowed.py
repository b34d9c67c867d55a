"""Two playbooks by event type, one of them with a stricter shadow; a text says how sure the model is."""

from __future__ import annotations

from collections.abc import Mapping

from classifier.answers import Answer, ChoiceAnswer
from classifier.app import App
from classifier.classifier import Classifier
from classifier.models.protocol import DecisionRequest
from classifier.models.scripted import ScriptedModel
from classifier.playbook import Outbox, Playbook, Review
from classifier.questions import Choice, Questions
from classifier.shadow import Shadow


class Letter(Questions):
    """What is asked about every letter."""

    topic = Choice({"invoice": None, "other": None})


def reply(request: DecisionRequest) -> Mapping[str, Answer]:
    """The number in the text is the probability of an invoice."""
    sure = float(str(request.state).split()[-1])
    return {"topic": ChoiceAnswer("invoice", {"invoice": sure, "other": 1 - sure})}


def route(answers: Letter) -> str | Review:
    """By topic."""
    return answers.topic.choice_or(Review("refused"))


letters = Classifier("letters", ScriptedModel(reply), Letter)
bills = Playbook(
    id="bills",
    classifier=letters,
    routes=("invoice", "other"),
    route=route,
    gates={"topic": 0.6},
    destinations={"*": Outbox("bills.jsonl")},
    event_types=("bill",),
    policy_version="1",
    shadow=Shadow[Letter](policy_version="2", gates={"topic": 0.8}),
)
mail = Playbook(
    id="mail",
    classifier=letters,
    routes=("invoice", "other"),
    route=route,
    gates={},
    destinations={"*": Outbox("mail.jsonl")},
    event_types=("mail",),
)
app = App(playbooks=[bills, mail])
