"""Erasing a person: what was said goes, from every table; that it was judged, and how, stays countable.

Facts are sealed and stay: the pseudonym, the keyed hash and the length of the text, outcome and answers.
Content goes: texts, request contexts and the person's id, in the tables and in quarantine, and what people
wrote about these decisions. A mark by pseudonym remains, so that what was decided before and arrives later,
by a retry, a pending record or out of quarantine, arrives without content.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import AsyncGenerator, AsyncIterator, Collection, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import TypeAlias

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql
from sqlalchemy.ext.asyncio import AsyncConnection

from classifier.audit.escape import escape, unescape
from classifier.audit.holds import Hold, holds_on
from classifier.audit.inserts import kept_text, released
from classifier.audit.keeping import checked_name, keeping, put_on_record
from classifier.audit.rows import Rows, subject_of, utc
from classifier.audit.tables import (
    SCHEMA,
    decision_contents,
    decisions,
    erased_subjects,
    history_events,
    legal_holds,
    quarantine,
)
from classifier.errors import ConfigurationError
from classifier.values import JSON

_Key: TypeAlias = tuple[uuid.UUID, datetime]

# Whoever writes now has written when this is granted, and whoever writes later sees the mark.
_NO_WRITERS = sa.text(
    f"LOCK TABLE ONLY {SCHEMA}.{decision_contents.name}, ONLY {SCHEMA}.{quarantine.name} "
    "IN SHARE ROW EXCLUSIVE MODE"
)


@dataclass(frozen=True, slots=True, order=True)
class Run:
    """A run of a workflow that decided about a person."""

    namespace: str
    workflow_id: str
    run_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Person:
    """What the history holds of a person, or held before their erasure.

    Attributes:
        subject: The pseudonym.
        decisions: Facts, which stay.
        contents: Decisions with text, context or the person's id.
        quarantined: The same in quarantine.
        events: Events with something that people wrote.
        runs: Runs of workflows in which something was decided about them.
        holds: Open legal holds that forbid to erase them.
    """

    subject: str
    decisions: int
    contents: int
    quarantined: int
    events: int
    runs: tuple[Run, ...]
    holds: tuple[Hold, ...]

    def check_holds(self) -> None:
        """Refuses to go on while there is a hold.

        Raises:
            ConfigurationError: Names the holds.
        """
        if self.holds:
            named = ", ".join(
                f"{hold.hold_id} of {hold.placed_at:%Y-%m-%d} by {hold.placed_by}" for hold in self.holds
            )
            raise ConfigurationError(
                f"the person is under legal hold ({named}), nothing was erased; release the hold first"
            )


async def look(database_url: str, *, hash_key: bytes, tenant: str, resource: str) -> Person:
    """What there is to erase; changes nothing.

    Raises:
        StoreUnavailable: The database cannot be reached, is not migrated, or was too busy.
    """
    async with _searching(database_url, hash_key, tenant, resource) as search:
        return await search.counted()


async def erase(
    database_url: str,
    *,
    hash_key: bytes,
    tenant: str,
    resource: str,
    by: str,
    runs: Mapping[str, int] | None = None,
    now: datetime | None = None,
) -> Person:
    """Erases a person of a tenant, in one transaction and on the record; to do it again is safe.

    Args:
        database_url: `postgresql://…`; the login must be allowed to SET ROLE classifier_maintenance.
        hash_key: The store's.
        tenant: Whose decisions.
        resource: The person's id.
        by: Who erases.
        runs: What became of their workflow runs elsewhere, as counts for the record.
        now: When; the present by default. What was decided up to then has no content any more.

    Returns:
        What was erased, and the runs of which Temporal may still know.

    Raises:
        ConfigurationError: They are under legal hold, or `by` names nobody or the person.
        StoreUnavailable: The database cannot be reached, is not migrated, or was too busy; nothing is erased.
    """
    by, at = checked_name(by, resource), utc(now or datetime.now(UTC))
    async with _searching(database_url, hash_key, tenant, resource) as search:
        person = await search.counted()
        person.check_holds()
        erased = await search.erased(person, at)
        body: dict[str, JSON] = {
            "subject": erased.subject,
            "decisions": erased.decisions,
            "contents": erased.contents,
            "quarantined": erased.quarantined,
            "events": erased.events,
            "runs": dict(runs or {}),
        }
        await put_on_record(search.connection, "erasure", tenant=tenant, at=at, by=by, body=body)
    return erased


@asynccontextmanager
async def _searching(
    database_url: str, hash_key: bytes, tenant: str, resource: str
) -> AsyncGenerator[_Search]:
    if not resource:
        raise ConfigurationError("a person has an id: --resource ID")
    async with keeping(database_url, "erasing a person") as connection:
        search = _Search(connection, tenant, resource, subject_of(hash_key, tenant, resource))
        await search.find_older_pseudonyms()
        yield search


class _Search:
    """Finds a person's rows, by id where it stands and by pseudonym where it does not."""

    def __init__(self, connection: AsyncConnection, tenant: str, resource: str, subject: str) -> None:
        self.connection = connection
        self._tenant = tenant
        self._resource = resource
        self._subject = subject
        self._subjects = {subject}

    async def find_older_pseudonyms(self) -> None:
        """A hash key that was replaced has left others, beside the id."""
        facts, contents = decisions.c, decision_contents.c
        same = sa.and_(contents.decision_id == facts.decision_id, contents.decided_at == facts.decided_at)
        select = sa.select(facts.subject).distinct().join_from(decision_contents, decisions, same)
        found = await self.connection.scalars(select.where(self._named, facts.subject.is_not(None)))
        self._subjects |= {subject for subject in found if subject is not None}
        async for _, rows in self._quarantined():
            if rows.decision["subject"] is not None:
                self._subjects.add(rows.decision["subject"])

    async def counted(self) -> Person:
        """What there is now."""
        decided, runs = await self._decided()
        return Person(
            subject=self._subject,
            decisions=decided,
            contents=await self._count(decision_contents, self._contents()),
            quarantined=len([key async for key, rows in self._quarantined() if rows.contents]),
            events=await self._count(history_events, self._events(runs)),
            runs=tuple(sorted(runs)),
            holds=await holds_on(self.connection, self._tenant, self._subjects),
        )

    async def erased(self, person: Person, at: datetime) -> Person:
        """What there was, which is gone."""
        await self._mark(at)
        await self.connection.execute(_NO_WRITERS)
        gone = await self.connection.execute(sa.delete(decision_contents).where(self._contents()))
        emptied = await self.connection.execute(
            sa.update(history_events).where(self._events(person.runs)).values(content=sa.null())
        )
        await self.connection.execute(
            sa.update(legal_holds)
            .where(legal_holds.c.tenant == escape(self._tenant), legal_holds.c.subject.in_(self._subjects))
            .values(reason="")
        )
        quarantined = [(key, rows) async for key, rows in self._quarantined() if rows.contents]
        for (decision_id, decided_at), rows in quarantined:
            await self.connection.execute(
                sa.update(quarantine)
                .where(quarantine.c.decision_id == decision_id, quarantine.c.decided_at == decided_at)
                .values(kept=kept_text(replace(rows, contents={})))
            )
        return replace(person, contents=gone.rowcount, events=emptied.rowcount, quarantined=len(quarantined))

    async def _mark(self, at: datetime) -> None:
        rows = [
            {"tenant": escape(self._tenant), "subject": subject, "erased_at": at}
            for subject in sorted(self._subjects)
        ]
        insert = postgresql.insert(erased_subjects).values(rows)
        await self.connection.execute(
            insert.on_conflict_do_update(
                index_elements=["tenant", "subject"],
                set_={"erased_at": sa.func.greatest(erased_subjects.c.erased_at, insert.excluded.erased_at)},
            )
        )

    async def _decided(self) -> tuple[int, set[Run]]:
        facts = decisions.c
        columns = (facts.namespace, facts.workflow_id, facts.run_id)
        select = sa.select(*columns, sa.func.count()).where(self._pseudonymous).group_by(*columns)
        count, runs = 0, set[Run]()
        for namespace, workflow_id, run_id, number in await self.connection.execute(select):
            count += number
            runs.add(Run(unescape(namespace), unescape(workflow_id), unescape(run_id)))
        async for _, rows in self._quarantined():
            count += 1
            runs.add(Run(*(unescape(rows.decision[name]) for name in ("namespace", "workflow_id", "run_id"))))
        return count, {run for run in runs if run.workflow_id}

    async def _count(self, table: sa.Table, condition: sa.ColumnElement[bool]) -> int:
        select = sa.select(sa.func.count()).select_from(table).where(condition)
        return int((await self.connection.execute(select)).scalar_one())

    @property
    def _named(self) -> sa.ColumnElement[bool]:
        columns = decision_contents.c
        return sa.and_(columns.tenant == escape(self._tenant), columns.resource_id == escape(self._resource))

    @property
    def _pseudonymous(self) -> sa.ColumnElement[bool]:
        return sa.and_(
            decisions.c.tenant == escape(self._tenant), decisions.c.subject.in_(sorted(self._subjects))
        )

    def _contents(self) -> sa.ColumnElement[bool]:
        columns = decision_contents.c
        by_name = sa.select(columns.decision_id, columns.decided_at).where(self._named)
        by_pseudonym = sa.select(decisions.c.decision_id, decisions.c.decided_at).where(self._pseudonymous)
        place = sa.tuple_(columns.decision_id, columns.decided_at)
        return sa.and_(columns.tenant == escape(self._tenant), place.in_(by_name.union(by_pseudonym)))

    def _events(self, runs: Collection[Run]) -> sa.ColumnElement[bool]:
        """What people wrote in these runs, about these decisions, or about the person."""
        columns = history_events.c
        workflows = [escape(run.workflow_id) for run in runs]
        theirs = sa.select(decisions.c.decision_id).where(self._pseudonymous)
        return sa.and_(
            columns.tenant == escape(self._tenant),
            columns.content.is_not(None),
            sa.or_(
                columns.workflow_id == sa.any_(sa.literal(workflows, sa.ARRAY(sa.Text))),
                columns.decision_id.in_(theirs),
                columns.body["subject"].astext.in_(sorted(self._subjects)),
            ),
        )

    async def _quarantined(self) -> AsyncIterator[tuple[_Key, Rows]]:
        columns = quarantine.c
        needles = [*self._subjects, json.dumps(escape(self._resource), ensure_ascii=False)]
        holding = sa.or_(*(sa.func.strpos(columns.kept, needle) > 0 for needle in needles))
        keys = sa.select(columns.decision_id, columns.decided_at)
        found = await self.connection.execute(
            keys.where(columns.tenant == escape(self._tenant), holding).order_by(*keys.selected_columns)
        )
        for decision_id, decided_at in found.all():
            kept = await self.connection.scalar(
                sa.select(columns.kept).where(
                    columns.decision_id == decision_id, columns.decided_at == decided_at
                )
            )
            rows = released(kept or "")
            if rows.decision["subject"] in self._subjects or rows.contents.get("resource_id") == escape(
                self._resource
            ):
                yield (decision_id, decided_at), rows
