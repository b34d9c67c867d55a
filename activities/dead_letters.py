"""The activities that keep what could not be handled, and what became of it. Thin."""

from __future__ import annotations

from datetime import UTC, datetime

from temporalio import activity

from activities.dead_letter_messages import ANSWER_DEAD_LETTER, KEEP_DEAD_LETTER, DeadLetter, DeadLetterAnswer
from activities.happened import happened, keep
from classifier.audit.records import AcceptedEvent, SourceEvent
from classifier.audit.store import EventStore
from classifier.errors import ClassifierError
from classifier.temporal.failures import as_application_error
from classifier.values import JSON


class DeadLetterActivities:
    """Writes dead letters, and what people make of them, into the history.

    Args:
        store: Where it is kept.
    """

    def __init__(self, store: EventStore) -> None:
        self._store = store

    @activity.defn(name=KEEP_DEAD_LETTER)
    async def keep(self, letter: DeadLetter) -> None:
        """Keeps that an event could not be handled, and why."""
        event = happened(
            "dead_letter",
            _facts(letter),
            tenant=letter.tenant,
            at=letter.at,
            actor=letter.decided_by,
            decision_id=letter.decision_id,
        )
        await keep(self._store, event)

    @activity.defn(name=ANSWER_DEAD_LETTER)
    async def answer(self, answer: DeadLetterAnswer) -> None:
        """Keeps who had it tried again or gave it up; what was given up stays known as an event."""
        letter = answer.letter
        event = happened(
            answer.answer,
            {"stage": letter.stage, "code": letter.code, "reason": answer.reason},
            tenant=letter.tenant,
            at=answer.at,
            actor=answer.by,
            decision_id=letter.decision_id,
        )
        await keep(self._store, event)
        if answer.answer == "drop":
            source = SourceEvent(letter.tenant, letter.source, letter.event)
            accepted = AcceptedEvent(source, event.workflow_id, event.run_id, datetime.now(UTC))
            try:
                await self._store.accept([accepted])
            except ClassifierError as error:
                raise as_application_error(error) from None


def _facts(letter: DeadLetter) -> dict[str, JSON]:
    return {
        "stage": letter.stage,
        "code": letter.code,
        "attempts": letter.attempts,
        "status": letter.status,
        "playbook": letter.playbook,
        "route": letter.route,
        "source": letter.source,
        "event": letter.event,
        "type": letter.type,
    }
