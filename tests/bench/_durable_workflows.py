"""Our workflows, in a module as small as the peer's."""

from __future__ import annotations

import asyncio

from temporalio import workflow

from classifier.questions import Boolean, Choice, Questions, Score
from classifier.temporal.messages import DecideRequest
from classifier.temporal.workflow import DecideOptions, decide, evaluate

BATCH = 50


class Message(Questions):
    """What is asked."""

    unsafe = Boolean("Is the message unsafe?")
    route = Choice({"billing": "Invoices", "technical": "Faults", "sales": "Offers"})
    urgency = Score(["can wait", "this week", "today"])


@workflow.defn
class Ask:
    """One decision, recorded."""

    @workflow.run
    async def run(self, state: str) -> str:
        """The route."""
        found = await evaluate("messages", state, Message)
        return str(found.answers.route.choice_or("refused"))


@workflow.defn
class AskLocally:
    """The same as a local activity."""

    @workflow.run
    async def run(self, state: str) -> str:
        """The route."""
        found = await evaluate("messages", state, Message, options=DecideOptions(local=True))
        return str(found.answers.route.choice_or("refused"))


@workflow.defn
class AskMany:
    """Many states, an activity for each batch of them, recorded."""

    @workflow.run
    async def run(self, states: list[str]) -> int:
        """How many went to billing."""
        batches = [states[start : start + BATCH] for start in range(0, len(states), BATCH)]
        results = await asyncio.gather(
            *(decide(DecideRequest(states=[*batch], classifier="messages")) for batch in batches)
        )
        made = [each for result in results for each in result.decisions]
        return sum((each.answers or {})["route"]["choice"] == "billing" for each in made)
