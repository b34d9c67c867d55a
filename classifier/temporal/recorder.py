"""What one activity records: the store where it answers, else along with the result."""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime

from classifier.audit.store import DecisionStore
from classifier.decision import Decision
from classifier.errors import StoreUnavailable

log = logging.getLogger(__name__)


class Recorder:
    """Records and finds the decisions of one activity.

    Args:
        store: Where decisions are kept.
        tenant: Whose they are.
        times: The times that they may carry; new ones carry the first.
        look_first: Whether an earlier attempt may have recorded some.
        may_travel: Whether somebody stores later what cannot be stored now; if not, an outage raises.
        count: Is told what was decided here, as opposed to found.
    """

    def __init__(
        self,
        store: DecisionStore,
        tenant: str,
        times: Sequence[datetime],
        *,
        look_first: bool,
        may_travel: bool,
        count: Callable[[Sequence[Decision]], None],
    ) -> None:
        self._store = store
        self._tenant = tenant
        self._times = times
        self._look_first = look_first
        self._may_travel = may_travel
        self._count = count
        self._known: dict[uuid.UUID, Decision] = {}
        self.pending: dict[uuid.UUID, Decision] = {}
        self.unsure = False

    def __getitem__(self, decision_id: uuid.UUID) -> Decision:
        """A decision that was found or recorded here."""
        return self._known[decision_id]

    async def find(self, decision_ids: Sequence[uuid.UUID]) -> Mapping[uuid.UUID, Decision]:
        """The stored ones among these; none on a first attempt, or while the store is away."""
        if not self._look_first:
            return {}
        found: dict[uuid.UUID, Decision] = {}
        try:
            for moment in self._times:
                found |= await self._store.find(self._tenant, moment, decision_ids)
        except StoreUnavailable:
            if not self._may_travel:
                raise
            log.warning("store away during look-up", extra={"decisions": len(decision_ids)})
            self.unsure = True
        self._known.update(found)
        return found

    async def record(self, decisions: Sequence[Decision]) -> Sequence[Decision]:
        """The stored ones in their place; the given ones while the store is away."""
        if not decisions:
            return ()
        stored = await self._stored(decisions)
        self._count([made for made, kept in zip(decisions, stored, strict=True) if kept is made])
        self._known.update({decision.decision_id: decision for decision in stored})
        return stored

    async def _stored(self, decisions: Sequence[Decision]) -> Sequence[Decision]:
        if not self.pending:  # one that is away is not waited for a second time
            try:
                return await self._store.record(decisions)
            except StoreUnavailable:
                if not self._may_travel:
                    raise
                log.warning("store away, decisions travel to the workflow")
        self.pending.update({decision.decision_id: decision for decision in decisions})
        return decisions
