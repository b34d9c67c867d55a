# mypy: ignore-errors
# pyright: basic, reportMissingImports=false, reportAttributeAccessIssue=false
"""The peer's workflows, in a minimal module."""

from __future__ import annotations

import asyncio
from datetime import timedelta

from temporalio import workflow
from temporalio.typesafe.workflow import TemporalTypeSafe
from typesafe_sdk import Choice, Noul, Score

QUESTIONS = {
    "unsafe": Noul(instructions="Is the message unsafe?"),
    "route": Choice(criteria={"billing": "Invoices", "technical": "Faults", "sales": "Offers"}),
    "urgency": Score(criteria=["can wait", "this week", "today"]),
}


@workflow.defn
class Peer:
    """One decision, unrecorded."""

    @workflow.run
    async def run(self, state: str) -> str:
        """The route."""
        found = await TemporalTypeSafe().system_one(state=state, questions=QUESTIONS)
        return found.response.answers["route"].choice


@workflow.defn
class PeerRecorded:
    """One decision, and the insert."""

    @workflow.run
    async def run(self, state: str) -> str:
        """The route."""
        found = await TemporalTypeSafe().system_one(state=state, questions=QUESTIONS)
        answers = {name: each.model_dump(mode="json") for name, each in found.response.answers.items()}
        await workflow.execute_activity(
            "peer.insert",
            args=[state, answers, found.response.model],
            start_to_close_timeout=timedelta(seconds=30),
        )
        return found.response.answers["route"].choice


@workflow.defn
class PeerMany:
    """An activity for each of many states, unrecorded."""

    @workflow.run
    async def run(self, states: list[str]) -> int:
        """How many went to billing."""
        typesafe = TemporalTypeSafe()
        found = await asyncio.gather(
            *(typesafe.system_one(state=state, questions=QUESTIONS) for state in states)
        )
        return sum(each.response.answers["route"].choice == "billing" for each in found)
