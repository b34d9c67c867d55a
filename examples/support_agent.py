"""A support agent of a bank: a topic guard on input, a safety guard on the stream, a quality gate on output.

    CLASSIFIER_APP=examples.support_agent:app OPENAI_API_KEY=... classifier chat

The guards ask the embedded local model, so the only key that is needed is the agent's own. OPENAI_BASE_URL
takes it to any server that speaks chat completions.
"""

from __future__ import annotations

from typing import Any, Literal

from classifier import (
    Agent,
    App,
    Choice,
    Classifier,
    ClassifierProcessor,
    LanguageModel,
    LocalModel,
    PolicyContext,
    Questions,
    Tool,
)
from classifier.answers import ChoiceAnswer, Refusal
from classifier.processor import Coalesce
from classifier.values import JSON

SURE = 0.7
CARDS = {"1001": "active", "1002": "blocked"}


class TopicQuestions(Questions):
    """What a message is about."""

    topic: Choice[Literal["banking", "other"]] = Choice(
        {
            "banking": "my account, card, payment, transfer, balance, fees, cash, a bank's products",
            "other": "poems, homework, politics, recipes, programming, anything else",
        }
    )


class ReplyQuestions(Questions):
    """What a reply does to the customer."""

    tone: Choice[Literal["helpful", "hostile"]] = Choice(
        {
            "helpful": "polite, calm, explains, offers help, asks a question",
            "hostile": "insults, threatens, mocks or blames the customer, rude, swearing",
        }
    )


class QualityQuestions(Questions):
    """Whether a reply is fit to stand."""

    claim: Choice[Literal["promise", "advice"]] = Choice(
        {
            "promise": "I guarantee, I promise you, you will certainly get all your money back, no risk",
            "advice": "explains what can be done, asks for details, says what the status is, what is next",
        }
    )


def about_banking(answers: TopicQuestions, context: PolicyContext[TopicQuestions]) -> None:
    """Turns away what has nothing to do with a bank."""
    if answers.topic.choice_or("other") != "banking":
        context.abort("off_topic", {"say": "I can only help with your bank account."})


def civil(answers: ReplyQuestions, context: PolicyContext[ReplyQuestions]) -> None:
    """Ends a reply that turns against the customer."""
    if _surely(answers.tone, "hostile"):
        context.abort("hostile_reply")


def no_promises(answers: QualityQuestions, context: PolicyContext[QualityQuestions]) -> None:
    """Takes back a reply that promises what nobody can keep."""
    if _surely(answers.claim, "promise"):
        context.abort("it promises an outcome")


def _surely(answer: ChoiceAnswer[Any] | Refusal, option: str) -> bool:
    """Whether it is the option, with a probability that is worth stopping a reply for; a refusal is."""
    match answer:
        case ChoiceAnswer(choice=choice, probability=probability):
            return choice == option and (probability or 1.0) >= SURE
        case Refusal():
            return True


def card_status(arguments: dict[str, Any]) -> dict[str, str]:
    """Looks a card up."""
    return {"status": CARDS.get(arguments["card"], "unknown")}


def block_card(arguments: dict[str, Any]) -> dict[str, str]:
    """Blocks a card; a person approves it first."""
    return {"card": arguments["card"], "status": "blocked"}


CARD: dict[str, JSON] = {
    "type": "object",
    "properties": {"card": {"type": "string", "description": "The last four digits"}},
    "required": ["card"],
    "additionalProperties": False,
}

local = LocalModel()

app = App(
    models={"local": local},
    processors=[
        ClassifierProcessor(
            id="topic",
            classifier=Classifier("topic", "local", TopicQuestions),
            on_result=about_banking,
            phases=("input",),
        ),
        ClassifierProcessor(
            id="safety",
            classifier=Classifier("safety", "local", ReplyQuestions),
            on_result=civil,
            phases=("stream",),
            hold_back=80,
            coalesce=Coalesce(120, 0.5),
        ),
        ClassifierProcessor(
            id="quality",
            classifier=Classifier("quality", "local", QualityQuestions),
            on_result=no_promises,
            phases=("output",),
        ),
    ],
    agents=[
        Agent(
            "support",
            model=LanguageModel("gpt-6-luna"),
            instructions="You help customers of a bank. Be brief. Never promise an outcome.",
            input=["topic"],
            stream=["safety"],
            output=["quality"],
            max_retries=1,
            tools=[
                Tool("card_status", card_status, description="The state of a card", parameters=CARD),
                Tool(
                    "block_card",
                    block_card,
                    description="Blocks a card for good",
                    parameters=CARD,
                    needs_approval=True,
                ),
            ],
        )
    ],
)
