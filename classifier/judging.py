"""One judgement at a time: ask the classifier, ask the policy, keep the record. Pure.

The engine for messages and the stream guard decide what is judged when; what a judgement is, they share.
How a model is reached and where records go, the caller says (`classifier.ports`).
"""

from __future__ import annotations

import asyncio
import copy
import logging
import time
import uuid
from collections.abc import Coroutine, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from classifier.context import RESOURCE_ID_KEY, THREAD_ID_KEY, TRACE_ID_KEY, checked_context, text_of
from classifier.decision import (
    MAX_PROCESSORS,
    Decision,
    DecisionFailure,
    Ids,
    Phase,
    Tripwire,
    ordinal_of,
)
from classifier.errors import ClassifierError, ConfigurationError, PolicyError, StoreError
from classifier.messages import Message
from classifier.policy import PolicyContext, Ruling, call, rule
from classifier.ports import AskAgain, Call, Ports
from classifier.processor import ClassifierProcessor, Prepared
from classifier.questions import typed_answers
from classifier.result import ClassifierResult, DecisionResponse, Truncation
from classifier.sharing import Group, MemberModel
from classifier.tracing import Judging
from classifier.values import JSON
from classifier.verdict import Earlier, Judgement, Run

T = TypeVar("T")
log = logging.getLogger("classifier")

FAILED_REASON = "classification_failed"
FAILED_CODE = "CLASSIFIER_FAILED"
UNEXPECTED_CODE = "UNEXPECTED_ERROR"
LONGEST_END = 30.0
"""Seconds that policy, record and `on_decision` of an answer may take once a stop waits for them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """A classifier call that answered or failed, before policy has spoken."""

    processor: ClassifierProcessor[Any]
    position: int
    message: Message | None
    prepared: Prepared
    model: MemberModel
    duration_ms: float
    span: Judging
    result: ClassifierResult[Any] | None = None
    failure: DecisionFailure | None = None


class Desk:
    """Makes the judgements of one run of processors.

    Raises:
        ConfigurationError: Two processors share an id, one is not ready or not for this phase, or the context
            is too large.
    """

    def __init__(
        self, processors: Sequence[ClassifierProcessor[Any]], phase: Phase, run: Run, ports: Ports
    ) -> None:
        self.phase: Phase = phase
        self.run = replace(run, context=checked_context(run.context))
        self.ports = ports
        self._places = _places(processors)
        self._by_id = {processor.id: processor for processor in processors}
        for processor in processors:
            processor.check_phase(phase)
        self._classifiers = {processor.id: processor.ready() for processor in processors}

    def ordinal(self, position: int, processor: ClassifierProcessor[Any]) -> int:
        """The number of a decision: (position, processor) in one integer, the same in every attempt."""
        return ordinal_of(position, self._places[processor.id])

    def decision_id(self, position: int, processor: ClassifierProcessor[Any]) -> uuid.UUID:
        """The id of the decision of `processor` at `position`."""
        return self.run.coordinates.decision_id(self.ordinal(position, processor))

    async def ask(
        self,
        group: Group,
        member: int,
        prepared: Prepared,
        position: int,
        *,
        others: Sequence[int] = (),
        message: Message | None = None,
    ) -> Asked:
        """Asks the classifier of a member of `group`.

        Raises:
            ConfigurationError: What is declared cannot work; never fail-open.
        """
        processor = group.members[member]
        model = group.view(member, others)
        classifier = copy.copy(self._classifiers[processor.id])
        classifier.model = model
        decision_id = self.decision_id(position, processor)
        shared = [self.decision_id(position, group.members[other]) for other in others]
        sent = Call(decision_id, processor.id, classifier, prepared.text, processor.provider_options, shared)
        span = classifier.tracer.judging(processor.id, self.phase, str(decision_id))
        started = time.perf_counter()
        try:
            with span.asking():
                result, failure = await self._evaluated(sent)
        except BaseException:
            span.end(None)
            raise
        elapsed = max((time.perf_counter() - started) * 1000, model.milliseconds)
        return Asked(
            processor=processor,
            position=position,
            message=message,
            prepared=prepared,
            model=model,
            duration_ms=elapsed,
            span=span,
            result=result,
            failure=failure,
        )

    async def _evaluated(
        self, sent: Call
    ) -> tuple[ClassifierResult[Any], None] | tuple[None, DecisionFailure]:
        try:
            return await self.ports.evaluate(sent), None
        except (ConfigurationError, PolicyError, StoreError, AskAgain):
            raise
        except Exception as error:  # noqa: BLE001 - a failed call, whatever a model raises
            failure = _failure(error)
        log.warning(
            "classifier failed",
            extra={
                "processor_id": sent.processor_id,
                "classifier_id": sent.classifier.id,
                "decision_id": str(sent.decision_id),
                "code": failure.code,
            },
        )
        return None, failure

    async def decide(self, asked: Asked) -> Decision | None:
        """The decision on a call; None where a monitored policy raised, which changes nothing.

        Raises:
            PolicyError: The policy raised instead of deciding.
        """
        try:
            ruling = await self._ruled(asked)
        except PolicyError:
            if asked.processor.mode == "enforce":
                raise
            log.error("monitored policy raised", extra={"processor_id": asked.processor.id})  # noqa: TRY400 - its text may hold content
            return None
        return self._decision(asked, ruling)

    async def _ruled(self, asked: Asked) -> Ruling:
        """What policy makes of it; the judgement's span ends here."""
        outcome: str | None = None
        try:
            ruling = await self._ruling(asked)
            outcome = ruling.outcome
            return ruling
        finally:
            asked.span.end(outcome)

    async def _ruling(self, asked: Asked) -> Ruling:
        processor = asked.processor
        if asked.result is None:
            return _failed_ruling(processor)
        result = replace(asked.result, answers=processor.typed(asked.result.answers))
        message_id = None if asked.message is None else asked.message.id
        context = PolicyContext(self.phase, result, self.run.context, message_id)
        return await rule(processor.on_result, context, processor=processor.id)

    async def settle(self, asked: Asked) -> Decision | None:
        """The recorded decision on a call, `on_decision` told; errors as for `decide` and `keep`."""
        decision = await self.decide(asked)
        return None if decision is None else (await self.keep([decision]))[0]

    async def keep(self, decisions: Sequence[Decision]) -> Sequence[Decision]:
        """Records decisions, then tells `on_decision`; gives back the ones to act on.

        Raises:
            StoreError: They could not be recorded, so nothing may move.
        """
        if not decisions:
            return ()
        stored = await self.ports.record(decisions)
        if [decision.decision_id for decision in stored] != [decision.decision_id for decision in decisions]:
            raise StoreError("the recorder gave back other decisions than it was given")
        for decision in stored:
            await self.tell(decision)
        return stored

    async def tell(self, decision: Decision) -> None:
        """Calls `on_decision`; what it raises is logged and changes nothing."""
        listener = self._by_id[decision.processor_id or ""].on_decision
        raised = None if listener is None else await call(listener, decision)
        if raised is not None:
            log.error(
                "on_decision raised %s",
                type(raised).__name__,
                extra={"processor_id": decision.processor_id, "decision_id": str(decision.decision_id)},
            )

    def judgement(self, decision: Decision, position: int, message_id: str | None = None) -> Judgement:
        """A recorded decision as the caller sees it."""
        processor_id = decision.processor_id or ""
        return Judgement(
            processor_id=processor_id,
            position=position,
            message_id=message_id,
            decision_id=decision.decision_id,
            outcome=decision.outcome,
            answers=self._typed(processor_id, decision),
            failure=decision.failure,
            tripwire=decision.tripwire,
            mode=decision.mode,
        )

    def _typed(self, processor_id: str, decision: Decision) -> Any:
        declared = self._classifiers[processor_id].declared
        if decision.answers is None or declared is None:
            return None
        return self._by_id[processor_id].typed(typed_answers(declared, decision.answers))

    def _decision(self, asked: Asked, ruling: Ruling) -> Decision:
        processor, response = asked.processor, asked.model.response
        decision_id = self.decision_id(asked.position, processor)
        earlier = self.run.earlier.get(decision_id, Earlier())
        return Decision(
            decision_id=decision_id,
            decided_at=self.run.decided_at,
            coordinates=self.run.coordinates,
            ordinal=self.ordinal(asked.position, processor),
            processor_id=processor.id,
            classifier_id=processor.classifier_id,
            phase=self.phase,
            outcome=ruling.outcome,
            tripwire=ruling.tripwire,
            state=asked.prepared.text,
            answers=None if asked.result is None else asked.result.answers,
            failure=asked.failure,
            question_set=self._classifiers[processor.id].question_set,
            duration_ms=earlier.milliseconds + asked.duration_ms,
            attempts=earlier.attempts + 1,
            ids=self._ids(asked.message, asked.span.ids),
            request_context=self.run.context,
            policy_version=processor.policy_version,
            normalised=asked.prepared.normalised,
            original=asked.prepared.original,
            mode=processor.mode,
            **_provenance(asked, response),
        )

    def _ids(self, message: Message | None, traced: tuple[str, str] | None) -> Ids:
        ids, context = self.run.ids, self.run.context
        trace, span = traced or (None, None)
        thread = None if message is None else message.thread
        resource = None if message is None else message.resource
        return Ids(
            thread=ids.thread or thread or text_of(context, THREAD_ID_KEY),
            resource=ids.resource or resource or text_of(context, RESOURCE_ID_KEY),
            message=None if message is None else message.id,
            trace=trace or ids.trace or text_of(context, TRACE_ID_KEY),
            span=span or ids.span,
        )


async def to_its_end(work: Coroutine[Any, Any, T]) -> T:
    """Lets an answered call be recorded although a cancel arrives meanwhile; then the cancel goes on."""
    task = asyncio.ensure_future(work)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        await asyncio.wait({task}, timeout=LONGEST_END)
        if not task.done():  # a callback of the application's that never returns
            task.cancel()
            await asyncio.wait({task})
        raised = None if task.cancelled() else task.exception()
        if raised is not None:  # its text may hold content
            log.error("a stop found a failing record: %s", type(raised).__name__)  # noqa: TRY400
        raise


def _places(processors: Sequence[ClassifierProcessor[Any]]) -> dict[str, int]:
    places: dict[str, int] = {}
    for place, processor in enumerate(processors):
        if places.setdefault(processor.id, place) != place:
            raise ConfigurationError(f"two processors of a chain have the id {processor.id!r}; rename one")
    if len(places) > MAX_PROCESSORS:
        raise ConfigurationError(f"a chain has at most {MAX_PROCESSORS} processors")
    return places


def _failed_ruling(processor: ClassifierProcessor[Any]) -> Ruling:
    if processor.error_strategy == "warn":
        return Ruling("allowed")
    metadata: dict[str, JSON] = {
        "processor_id": processor.id,
        "classifier_id": processor.classifier_id,
        "code": FAILED_CODE,
    }
    return Ruling("aborted", Tripwire(FAILED_REASON, metadata))


def _failure(error: Exception) -> DecisionFailure:
    if isinstance(error, ClassifierError):
        return DecisionFailure(error.code, str(error))
    return DecisionFailure(UNEXPECTED_CODE, f"the decision model raised {type(error).__name__}")


def _provenance(asked: Asked, response: DecisionResponse | None) -> dict[str, Any]:
    if response is None:
        return {
            "provider": asked.model.provider,
            "requested_model": asked.model.name,
            "truncation": asked.prepared.truncation,
        }
    info = response.response
    return {
        "provider": info.provider,
        "requested_model": info.requested_model,
        "resolved_model": info.model,
        "provider_request_id": info.request_id or info.id,
        "usage": response.usage,
        "warnings": response.warnings,
        "truncation": _truncation(asked.prepared.truncation, response.truncation),
        "metadata": response.provider_metadata,
    }


def _truncation(by_processor: Truncation | None, by_model: Truncation | None) -> Truncation | None:
    if by_processor is None or by_model is None:
        return by_model or by_processor
    return Truncation(by_processor.original, by_model.sent, by_model.by)
