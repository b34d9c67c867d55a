"""A workflow as another project writes it, with names from the package itself; only loaded, never run."""

from __future__ import annotations

from temporalio import workflow

from classifier import Boolean, Questions
from classifier.questions import questions_of


class Spam(Questions):
    """What it would ask."""

    spam = Boolean("Is this spam?")


@workflow.defn(name="tests.sandboxed")
class SandboxedWorkflow:
    """Says what it would ask."""

    @workflow.run
    async def run(self) -> list[str]:
        """Ids of questions."""
        return list(questions_of(Spam))
