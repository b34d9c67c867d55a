"""The guards of the two examples for agents of other frameworks, on the embedded local model."""

from __future__ import annotations

from classifier import App, Classifier, ClassifierProcessor, LocalModel, PolicyContext
from classifier.answers import ChoiceAnswer
from examples.support_agent import (
    SURE,
    QualityQuestions,
    ReplyQuestions,
    TopicQuestions,
    about_banking,
    no_promises,
)


def drop_hostile(answers: ReplyQuestions, context: PolicyContext[ReplyQuestions]) -> None:
    """Drops a note that insults the customer; the agent goes on without it."""
    tone = answers.tone
    if not isinstance(tone, ChoiceAnswer) or (tone.choice == "hostile" and (tone.probability or 1.0) >= SURE):
        context.filter()


app = App(
    models={"local": LocalModel()},
    processors=[
        ClassifierProcessor(
            id="topic",
            classifier=Classifier("topic", "local", TopicQuestions),
            on_result=about_banking,
            phases=("input",),
        ),
        ClassifierProcessor(
            id="quality",
            classifier=Classifier("quality", "local", QualityQuestions),
            on_result=no_promises,
            phases=("output",),
        ),
        ClassifierProcessor(
            id="civil",
            classifier=Classifier("civil", "local", ReplyQuestions),
            on_result=drop_hostile,
            phases=("output",),
        ),
    ],
)
