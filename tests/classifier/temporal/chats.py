"""An app that guards messages, and what its models do in tests.

The model finds a text with "bad" in it to be spam and one with "dull" to be praise; the policy of `letters`
aborts on spam and drops praise.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

from temporalio.client import Client, WorkflowHandle

from classifier.answers import Answer as ModelAnswer
from classifier.answers import BooleanAnswer, ChoiceAnswer
from classifier.app import App
from classifier.classifier import Classifier
from classifier.messages import Message, message_to_json
from classifier.models.protocol import DecisionModel, DecisionRequest
from classifier.models.scripted import ScriptedModel
from classifier.models.systemone import SystemOne
from classifier.policy import PolicyContext
from classifier.processor import ClassifierProcessor
from classifier.questions import Boolean, Questions
from tests.classifier.temporal.letters import start
from tests.classifier.temporal.project.workflows import Guarded, GuardMessages, Letter
from tests.servers import Answer, Call, Server

SECRET = "a bad thing that jane said"
PROVIDER_TEXT = "the provider has an opinion"


class Tone(Questions):
    """What another processor asks."""

    rude = Boolean("Is it rude?")


def letters_policy(answers: Letter, context: PolicyContext[Letter]) -> None:
    """Spam ends the run, praise is dropped."""
    if answers.spam.probability_or(1.0) > 0.8:
        context.abort("spam", {"policy": "p1"})
    if answers.kind.choice_or("bug") == "praise":
        context.filter()


def tone_policy(answers: Tone, context: PolicyContext[Tone]) -> None:
    """Rude ends the run."""
    if answers.rude.probability_or(1.0) > 0.8:
        context.abort("rude")


def answers_to(text: str) -> Mapping[str, ModelAnswer]:
    """What the scripted model says."""
    kind, other = ("praise", "bug") if "dull" in text else ("bug", "praise")
    return {
        "spam": BooleanAnswer(0.95 if "bad" in text else 0.1),
        "kind": ChoiceAnswer(kind, {kind: 0.9, other: 0.1}),
        "rude": BooleanAnswer(0.95 if "rude" in text else 0.1),
    }


def scripted() -> ScriptedModel:
    """A model that answers whatever it is asked."""
    return ScriptedModel(_scripted)


def _scripted(request: DecisionRequest) -> Mapping[str, ModelAnswer]:
    known = answers_to(str(request.state))
    return {name: known[name] for name in request.questions}


def judged(call: Call) -> Answer:
    """What a server answers to the same."""
    text = call.json["state"]
    kind, other = ("praise", "bug") if "dull" in text else ("bug", "praise")
    known: dict[str, Any] = {
        "spam": {"type": "noul", "noul": 0.95 if "bad" in text else 0.1},
        "kind": {
            "type": "choice",
            "choice": kind,
            "confidence": 0.9,
            "probabilities": {kind: 0.9, other: 0.1},
        },
        "rude": {"type": "noul", "noul": 0.95 if "rude" in text else 0.1},
    }
    answers = {name: known[name] for name in call.json["questions"]}
    return Answer({"model": "m-1", "answers": answers, "opinion": PROVIDER_TEXT})


def processor(model: DecisionModel, **options: Any) -> ClassifierProcessor[Letter]:
    """The processor `letters`."""
    chosen: dict[str, Any] = {"on_result": letters_policy, "id": "letters", **options}
    return ClassifierProcessor(classifier=Classifier(chosen["id"], model, Letter), **chosen)


def tone(model: DecisionModel, **options: Any) -> ClassifierProcessor[Tone]:
    """The processor `tone`."""
    chosen: dict[str, Any] = {"on_result": tone_policy, "id": "tone", **options}
    return ClassifierProcessor(classifier=Classifier("tone", model, Tone), **chosen)


def guarded(model: DecisionModel, **options: Any) -> App:
    """An app with the processor `letters`."""
    return App(processors=[processor(model, **options)])


def over_http(server: Server, **options: Any) -> App:
    """The same over HTTP."""
    return guarded(SystemOne("m", base_url=server.url), **options)


def both(model: DecisionModel, **options: Any) -> App:
    """An app with `letters` and `tone` on one model."""
    return App(processors=[processor(model, **options), tone(model, **options)])


def given(*texts: str, processors: Sequence[str] = ("letters",), **options: Any) -> Guarded:
    """Messages to guard."""
    messages = [message_to_json(Message(text, id=f"m-{number}")) for number, text in enumerate(texts)]
    return Guarded(list(processors), messages, **options)


async def guarding(client: Client, queue: str, asked: Guarded) -> WorkflowHandle[Any, Any]:
    """Starts to guard messages."""
    return await start(client, queue, GuardMessages.run, asked)


async def asked_times(server: Server, count: int) -> None:
    """Returns when a server was asked that often."""
    async with asyncio.timeout(30):
        while len(server.calls) < count:
            server.asked.clear()
            await server.asked.wait()
