"""Classification steps over one or many states, as one activity runs them."""

from __future__ import annotations

import asyncio
import logging
import traceback
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from classifier.decision import Decision, DecisionFailure
from classifier.errors import ClassifierError, ModelError, PolicyError
from classifier.judging import to_its_end
from classifier.step import Step
from classifier.temporal.failures import as_failure
from classifier.temporal.heartbeat import Progress
from classifier.temporal.recorder import Recorder
from classifier.values import State

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Steps:
    """A step over many states, one decision each.

    Attributes:
        step: What is asked, and where decisions belong.
        states: What it is asked about; the index is the ordinal.
        failures_allowed: How many failed model calls are one too many, for each state.
        concurrency: Model calls at a time.
    """

    step: Step
    states: Sequence[State]
    failures_allowed: int
    concurrency: int

    async def run(self, recorder: Recorder, progress: Progress) -> list[Decision]:
        """Decides on every state that is not decided yet.

        Raises:
            ModelError: Retryable; asking again can still help, and what could be decided is recorded.
            ClassifierError: As for `Step`; what could be decided is recorded.
        """
        ids = [self.step.coordinates.decision_id(ordinal) for ordinal in range(len(self.states))]
        found = await recorder.find(ids)
        missing = {ordinal: self.states[ordinal] for ordinal, each in enumerate(ids) if each not in found}
        began = datetime.now(UTC)
        asked = await self._ask_all(missing, progress)
        again = self._settle_failures(asked, progress)
        made = [each for each in asked.values() if isinstance(each, Decision)]
        await to_its_end(recorder.record(made))
        for outcome in asked.values():
            if not isinstance(outcome, Decision | ModelError):
                raise outcome
        for ordinal in again:
            progress.fail(ids[ordinal], began)
        for error in again.values():
            raise error
        return [recorder[each] for each in ids]

    def lost(self, code: str) -> list[Decision]:
        """The decisions of an activity that ended without a result."""
        failure = DecisionFailure(code, "the activity ended without a result")
        return [
            self.step.failed(ordinal, self._state_or_blank(state), failure, duration_ms=0.0, attempts=0)
            for ordinal, state in enumerate(self.states)
        ]

    def _settle_failures(
        self, asked: dict[int, Decision | ClassifierError], progress: Progress
    ) -> dict[int, ModelError]:
        """Turns failures that are final into decisions; the others are given back."""
        again: dict[int, ModelError] = {}
        for ordinal, error in asked.items():
            if not isinstance(error, ModelError):
                continue
            attempt = progress.attempt(self.step.coordinates.decision_id(ordinal))
            if error.retryable and attempt < self.failures_allowed:
                again[ordinal] = error
            else:
                asked[ordinal] = self._failed(ordinal, error, progress)
        return again

    async def _ask_all(
        self, states: Mapping[int, State], progress: Progress
    ) -> dict[int, Decision | ClassifierError]:
        slots = asyncio.Semaphore(self.concurrency)

        async def ask(ordinal: int, state: State) -> Decision | ClassifierError:
            async with slots:
                return await self._ask(ordinal, state, progress)

        async with asyncio.TaskGroup() as group:
            tasks = {ordinal: group.create_task(ask(ordinal, state)) for ordinal, state in states.items()}
        return {ordinal: task.result() for ordinal, task in tasks.items()}

    async def _ask(self, ordinal: int, data: State, progress: Progress) -> Decision | ClassifierError:
        step = self.step
        try:
            state, result = await step.evaluate(ordinal, data)
            attempts = progress.attempt(step.coordinates.decision_id(ordinal))
            return await step.answered(
                ordinal, state, result, duration_ms=progress.milliseconds, attempts=attempts
            )
        except ClassifierError as error:
            return error
        except Exception as error:  # noqa: BLE001 - a model or transform of the application's; its text may hold the state
            kind = type(error).__name__
            log.error("asking raised", extra={"error": kind, "where": _where(error)})  # noqa: TRY400 - no text
            return PolicyError(f"asking classifier {step.classifier.id!r} raised {kind}")

    def _failed(self, ordinal: int, error: ModelError, progress: Progress) -> Decision:
        return self.step.failed(
            ordinal,
            self.step.state_of(self.states[ordinal]),
            as_failure(error),
            duration_ms=progress.milliseconds,
            attempts=progress.attempt(self.step.coordinates.decision_id(ordinal)),
        )

    def _state_or_blank(self, data: State) -> State:
        try:
            return self.step.state_of(data)
        except PolicyError:
            return ""


def _where(error: Exception) -> str:
    last = traceback.extract_tb(error.__traceback__)[-1]
    return f"{last.filename}:{last.lineno}"
