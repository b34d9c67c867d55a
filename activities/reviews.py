"""The activity that keeps who took a review on and for how long, and what its deadlines did. Thin."""

from __future__ import annotations

from temporalio import activity

from activities.happened import happened, keep
from activities.review_messages import NOTE_REVIEW, ReviewNote
from classifier.audit.store import EventStore


class ReviewActivities:
    """Keeps what happens to events that wait for a person.

    Args:
        store: Where it is kept.
    """

    def __init__(self, store: EventStore) -> None:
        self._store = store

    @activity.defn(name=NOTE_REVIEW)
    async def note(self, note: ReviewNote) -> None:
        """Writes it into the history."""
        event = happened(
            note.kind, note.facts, tenant=note.tenant, at=note.at, actor=note.by, decision_id=note.decision_id
        )
        await keep(self._store, event)
