"""The activity behind housekeeping: partitions ahead, seals, and what is to be forgotten by its age."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import assert_never

from temporalio import activity

from activities.chores import DO_CHORE, Chore, ChoreDone
from classifier.audit.partitions import ensure_partitions
from classifier.audit.retention import drop_months, empty_contents
from classifier.audit.sealing import seal
from classifier.audit.signing import PublicKeys, SealKey
from classifier.audit.upkeep import Upkeep
from classifier.errors import ClassifierError
from classifier.temporal.failures import as_application_error
from classifier.temporal.heartbeat import earlier_progress, heartbeating
from classifier.values import JSON

ACTOR = "housekeeping"
"""Who does it, in the record."""


@dataclass(frozen=True, slots=True)
class Seal:
    """With what is sealed."""

    key: SealKey
    keys: PublicKeys
    hash_key: bytes


class HousekeepingActivities:
    """Does one chore at a time; each is safe to do again, and by several at once.

    Args:
        database_url: The history's database.
        upkeep: The ages.
        seal: With what is sealed; None leaves the seal to others, and retention without stubs.
        clock: Says what time it is.
    """

    def __init__(
        self,
        database_url: str,
        upkeep: Upkeep,
        seal: Seal | None = None,
        *,
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._database_url = database_url
        self._upkeep = upkeep
        self._seal = seal
        self._clock = clock

    @activity.defn(name=DO_CHORE)
    async def do(self, chore: Chore) -> ChoreDone:
        """Does one chore and says what came of it."""
        try:
            async with heartbeating(earlier_progress()):
                return ChoreDone(chore.name, await self._done(chore))
        except ClassifierError as error:
            raise as_application_error(error) from None

    async def _done(self, chore: Chore) -> dict[str, JSON]:
        match chore.name:
            case "partitions":
                return await self._partitions()
            case "seal":
                return await self._sealed()
            case "contents":
                return await self._emptied()
            case "months":
                return await self._dropped()
            case _:
                assert_never(chore.name)

    async def _partitions(self) -> dict[str, JSON]:
        report = await ensure_partitions(self._database_url, now=self._clock())
        return {"created": list(report.created), "moved": report.moved, "refused": report.refused}

    async def _sealed(self) -> dict[str, JSON]:
        if self._seal is None:
            return {}
        key, keys, hash_key = self._seal.key, self._seal.keys, self._seal.hash_key
        done = await seal(self._database_url, key, keys=keys, hash_key=hash_key)
        problems = [f"{one.tenant}: {one.problem}" for one in done if one.problem is not None]
        return {"rows": sum(one.rows for one in done), "problems": list(problems)}

    async def _emptied(self) -> dict[str, JSON]:
        emptied: dict[str, JSON] = {}
        for tenant, age in self._upkeep.content_ages.items():
            before = self._clock() - age
            done = await empty_contents(self._database_url, tenant=tenant, before=before, by=ACTOR)
            emptied[tenant] = done.contents
        return emptied

    async def _dropped(self) -> dict[str, JSON]:
        if self._upkeep.retention is None:
            return {}
        before = self._clock() - self._upkeep.retention
        key = None if self._seal is None else self._seal.key
        done = await drop_months(self._database_url, before=before, by=ACTOR, key=key)
        return {
            "months": list(done.months),
            "held": {month: [str(hold) for hold in holds] for month, holds in done.held.items()},
            "stubs": done.stubs,
        }
