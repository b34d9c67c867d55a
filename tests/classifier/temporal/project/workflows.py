"""The project's workflows: no passthrough, no settings, only what `classifier.temporal.workflow` offers."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Literal

from temporalio import workflow
from temporalio.common import RetryPolicy

from classifier.decision import Ids
from classifier.messages import message_from_json
from classifier.questions import Boolean, Choice, Questions
from classifier.temporal.messages import DecideRequest, DecideResult
from classifier.temporal.workflow import DecideOptions, Processors, decide, evaluate
from tests.classifier.temporal.project.activities import file_away


class Letter(Questions):
    """What is asked about a letter."""

    spam = Boolean("Is this spam?")
    kind = Choice({"bug": None, "praise": None})


@workflow.defn
class SortLetter:
    """Files a letter by typed answers."""

    @workflow.run
    async def run(self, text: str) -> list[str]:
        """Where it went, and the decision it rests on."""
        found = await evaluate("letters", text, Letter)
        folder = (
            "spam"
            if found.answers.spam.at_least(0.5, unsure=True)
            else found.answers.kind.choice_or("refused")
        )
        filed = await workflow.execute_activity(
            file_away, folder, start_to_close_timeout=timedelta(seconds=10)
        )
        return [filed, found.decision_id]


@workflow.defn
class SortLong:
    """Asks about a text of a given length, made inside."""

    @workflow.run
    async def run(self, length: int) -> str:
        """The decision's id."""
        return (await evaluate("letters", "x" * length, Letter)).decision_id


@workflow.defn
class SortMany:
    """Asks about one letter after another."""

    @workflow.run
    async def run(self, count: int) -> int:
        """How many it asked about."""
        for number in range(count):
            await evaluate("letters", f"letter {number}", Letter)
        return count


@dataclass(frozen=True)
class Asked:
    """A request and how to run it."""

    request: DecideRequest
    required: bool = False
    attempt_seconds: float = 60.0
    overall_seconds: float = 600.0


@workflow.defn
class Decide:
    """Runs `decide` as it is, and says when it has moved on."""

    def __init__(self) -> None:
        self._moved_on = False

    @workflow.run
    async def run(self, asked: Asked) -> DecideResult:
        """What came of it."""
        options = DecideOptions(
            attempt=timedelta(seconds=asked.attempt_seconds),
            overall=timedelta(seconds=asked.overall_seconds),
            audit="required" if asked.required else "deferred",
        )
        result = await decide(asked.request, options)
        self._moved_on = True
        return result

    @workflow.query
    def moved_on(self) -> bool:
        """Whether it goes on with what was decided."""
        return self._moved_on


@dataclass(frozen=True)
class Guarded:
    """Messages and the processors that guard them."""

    processors: list[str]
    messages: list[dict[str, Any]]
    phase: Literal["input", "output"] = "input"
    context: dict[str, Any] = field(default_factory=dict[str, Any])
    ids: Ids = Ids()
    required: bool = False
    failures_allowed: int = 3
    local: bool = False
    finish: bool = False
    attempt_seconds: float = 60.0
    overall_seconds: float = 600.0
    acts: bool = False
    task_queue: str | None = None


@dataclass(frozen=True)
class Passed:
    """What came through."""

    texts: list[str]
    decision_ids: list[str]
    outcome: str
    spam: list[float]


@workflow.defn
class GuardMessages:
    """Goes on with the messages that pass."""

    def __init__(self) -> None:
        self._moved_on = False

    @workflow.run
    async def run(self, given: Guarded) -> Passed:
        """What came through; an abort fails the run."""
        options = DecideOptions(
            attempt=timedelta(seconds=given.attempt_seconds),
            overall=timedelta(seconds=given.overall_seconds),
            audit="required" if given.required else "deferred",
            failures_allowed=given.failures_allowed,
            local=given.local,
            on_stop="finish" if given.finish else "cancel",
            task_queue=given.task_queue,
        )
        guards = Processors(*given.processors, options=options)
        messages = [message_from_json(message) for message in given.messages]
        side = guards.input if given.phase == "input" else guards.output
        verdict = await side(messages, ids=given.ids, context=given.context)
        self._moved_on = True
        texts = [message.text for message in verdict.messages]
        if given.acts:
            await workflow.execute_activity(file_away, "x", start_to_close_timeout=timedelta(seconds=10))
        spam = [answers.spam.probability_or(-1.0) for answers in verdict.answers("letters", Letter)]
        return Passed(texts, [str(each) for each in verdict.decision_ids], verdict.outcome, spam)

    @workflow.query
    def moved_on(self) -> bool:
        """Whether it goes on with what was decided."""
        return self._moved_on


@workflow.defn
class GuardChild:
    """Leaves the guarding to a child that may be retried."""

    @workflow.run
    async def run(self, given: Guarded) -> Passed:
        """What came through."""
        passed: Passed = await workflow.execute_child_workflow(
            GuardMessages.run,
            given,
            id=f"{workflow.info().workflow_id}-child",
            retry_policy=RetryPolicy(maximum_attempts=5, initial_interval=timedelta(milliseconds=10)),
        )
        return passed


@workflow.defn
class GuardInTime:
    """Does without a verdict that takes too long, and asks once more."""

    def __init__(self) -> None:
        self._late = 0

    @workflow.run
    async def run(self, given: Guarded) -> list[str]:
        """What came through at last."""
        options = DecideOptions(on_stop="finish" if given.finish else "cancel")
        guards = Processors(*given.processors, options=options)
        messages = [message_from_json(message) for message in given.messages]
        try:
            async with asyncio.timeout(given.attempt_seconds):
                await guards.input(messages)
        except TimeoutError:
            self._late += 1
        verdict = await guards.input(messages)
        return [*(message.text for message in verdict.messages), f"late {self._late}"]


@workflow.defn
class GuardOneByOne:
    """Guards one message after another, and keeps at it."""

    @workflow.run
    async def run(self, given: Guarded) -> list[str]:
        """What came through."""
        guards = Processors(*given.processors, options=DecideOptions(local=given.local))
        texts: list[str] = []
        for message in given.messages:
            verdict = await guards.input([message_from_json(message)])
            texts += [each.text for each in verdict.messages]
        return texts
