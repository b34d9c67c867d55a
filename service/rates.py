"""How much of each: events a second by tenant and actor, events at the same time. Pure; in this process.

Several processes each count for themselves, so what is let through is at most that many times the cap.
"""

from __future__ import annotations

import contextlib
from collections import Counter, OrderedDict
from collections.abc import Callable, Generator, Hashable

from service.problems import too_many

MAX_KEYS = 100_000
_ROUNDING = 1e-6


class Rate:
    """Lets so many through a second for each key, some of them at once.

    Args:
        per_second: How many, in the long run.
        at_once: How many may come together after a pause.
        clock: Seconds that only grow.
    """

    def __init__(self, per_second: float, at_once: int, clock: Callable[[], float]) -> None:
        self._interval = 1 / per_second
        self._tolerance = self._interval * (at_once - 1)
        self._clock = clock
        self._due: OrderedDict[Hashable, float] = OrderedDict()

    def take(self, key: Hashable) -> float:
        """Zero where one more is let through; else the seconds to wait, and nothing is counted."""
        now = self._clock()
        due = max(self._due.pop(key, now), now)
        early = due - now - self._tolerance
        is_full = early > _ROUNDING
        self._due[key] = due if is_full else due + self._interval
        self._forget(now)
        return early if is_full else 0.0

    def _forget(self, now: float) -> None:
        """Drops keys that are as good as new; past the bound, the one unused for longest."""
        while self._due:
            key, due = next(iter(self._due.items()))
            if due > now and len(self._due) <= MAX_KEYS:
                return
            del self._due[key]


class InFlight:
    """Bounds what is under way; no tenant has more than half of it.

    Args:
        limit: How many events.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._by_tenant: Counter[str] = Counter()

    @contextlib.contextmanager
    def of(self, tenant: str, events: int) -> Generator[None]:
        """Counts these for as long as the block lasts.

        Raises:
            Problem: 429, where there are too many already.
        """
        share = max(1, self._limit // 2)
        if self._by_tenant.total() >= self._limit or self._by_tenant[tenant] >= share:
            raise too_many("BUSY", "too many events are being accepted right now", 1)
        self._by_tenant[tenant] += events
        try:
            yield
        finally:
            self._by_tenant[tenant] -= events
            self._by_tenant += Counter()  # drops what is zero
