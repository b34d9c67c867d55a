"""A message under processors, in a module as light as a user's."""

from __future__ import annotations

from temporalio import workflow

from classifier.temporal.workflow import Processors


@workflow.defn
class Guarded:
    """One message, judged by so many processors."""

    @workflow.run
    async def run(self, text: str, names: list[str]) -> str:
        """What became of it."""
        return (await Processors(*names).input([text])).outcome
