"""Processors over messages, as one activity runs them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any, Literal

from classifier.decision import Decision
from classifier.engine import run_messages
from classifier.errors import ActivityLost, ModelError
from classifier.messages import Message
from classifier.ports import AskAgain, Call, Ports
from classifier.processor import ClassifierProcessor
from classifier.result import ClassifierResult
from classifier.temporal.heartbeat import Progress
from classifier.temporal.recorder import Recorder
from classifier.verdict import Run


@dataclass(frozen=True, slots=True)
class Guard:
    """A chain of processors over messages.

    Attributes:
        processors: In list order.
        messages: In conversation order.
        phase: Which side of the model the messages are on.
        run: Where this happens and for whom.
        failures_allowed: How many failed model calls are one too many, for each decision.
    """

    processors: Sequence[ClassifierProcessor[Any]]
    messages: Sequence[Message]
    phase: Literal["input", "output"]
    run: Run
    failures_allowed: int

    async def run_once(self, recorder: Recorder, progress: Progress) -> list[Decision]:
        """The decisions that were made, in order; errors as for `run_messages`.

        Raises:
            ModelError: Retryable; asking again can still help.
        """

        async def evaluate(call: Call) -> ClassifierResult[Any]:
            began = datetime.now(UTC)
            try:
                return await call.evaluate()
            except ModelError as error:
                if not error.retryable or progress.attempt(call.decision_id) >= self.failures_allowed:
                    raise
                for decision_id in (call.decision_id, *call.others):
                    progress.fail(decision_id, began)
                raise AskAgain(error) from error

        try:
            run = replace(self.run, earlier=progress.earlier)
            return await self._decided(Ports(recorder.record, evaluate, recorder.find), recorder, run)
        except AskAgain as again:
            raise again.reason from None

    async def run_lost(self, recorder: Recorder, code: str) -> list[Decision]:
        """The decisions of an activity that ended without a result; those it recorded stay as they are."""

        async def evaluate(call: Call) -> ClassifierResult[Any]:
            del call
            raise ActivityLost(code)

        async def record(decisions: Sequence[Decision]) -> Sequence[Decision]:
            unmeasured = [replace(decision, attempts=0, duration_ms=0.0) for decision in decisions]
            return await recorder.record(unmeasured)

        return await self._decided(Ports(record, evaluate, recorder.find), recorder, self.run)

    async def _decided(self, ports: Ports, recorder: Recorder, run: Run) -> list[Decision]:
        verdict = await run_messages(self.processors, self.messages, phase=self.phase, run=run, ports=ports)
        return [recorder[decision_id] for decision_id in verdict.decision_ids]
