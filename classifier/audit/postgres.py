"""The audit store over PostgreSQL: acts as `classifier_writer`, which may INSERT and SELECT and no more."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncGenerator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import datetime
from itertools import groupby
from typing import TypeAlias, cast

import sqlalchemy as sa
from sqlalchemy.exc import DBAPIError
from sqlalchemy.ext.asyncio import AsyncConnection

from classifier.audit.batching import Batcher
from classifier.audit.contents import KEEP_ALL, ContentPolicy
from classifier.audit.engine import create_engine, is_about_data, set_tenant, sqlstate, store_errors
from classifier.audit.escape import bounded, decode, dumps, escape, escape_optional, unescape
from classifier.audit.inserts import (
    INSERT_ACCEPTED,
    INSERT_DECISIONS,
    INSERT_EVENTS,
    INSERT_QUARANTINE,
    SELECT_ERASED,
    parameters,
    quarantined,
)
from classifier.audit.lookup import Key, fetch
from classifier.audit.records import AcceptedEvent, EventKind, HistoryEvent, SourceEvent
from classifier.audit.rows import (
    Row,
    Rows,
    accepted_row,
    decision_of,
    event_row,
    keyed_hash,
    rows_of,
    utc,
)
from classifier.audit.tables import accepted_events, history_events
from classifier.decision import Decision
from classifier.errors import ConfigurationError, DecisionMismatch, StoreError
from classifier.values import JSON

_ROWS_AT_ONCE = 500
_CHARACTERS_AT_ONCE = 16_000_000
_WRITERS = 2

_Made: TypeAlias = tuple[Decision, Rows]


class PostgresStore:
    """Implements `classifier.audit.store.AuditStore`. Connects when first used, from one event loop.

    Calls that come together share a transaction, so that many at once cost few commits. No connection is
    held between statements' ends and the next call.

    Args:
        database_url: `postgresql://…`; the login must be allowed to SET ROLE classifier_writer.
        hash_key: Keys the hashes of states and persons; the same in every process, and kept.
        pool_size: Connections at most; further calls wait.
        timeout: Seconds after which a call raises `StoreUnavailable`.
        contents: How much of the decisions' content is kept.
    """

    def __init__(
        self,
        database_url: str,
        *,
        hash_key: bytes,
        pool_size: int = 5,
        timeout: float = 10.0,
        contents: ContentPolicy = KEEP_ALL,
    ) -> None:
        if not hash_key:
            raise ConfigurationError("the audit store needs a key for its hashes")
        self._hash_key = hash_key
        self._timeout = timeout
        self._contents = contents
        self._engine = create_engine(
            database_url, role="classifier_writer", timeout=timeout, pool_size=pool_size
        )
        writers = min(_WRITERS, pool_size)
        self._lookups = Batcher(self._look_up, limit=_ROWS_AT_ONCE, concurrency=writers)
        self._decisions = Batcher(self._flush, limit=_ROWS_AT_ONCE, concurrency=writers)
        self._events = Batcher(self._flush_events, limit=_ROWS_AT_ONCE, concurrency=writers)
        self._acceptances = Batcher(self._flush_acceptances, limit=_ROWS_AT_ONCE, concurrency=writers)

    async def aclose(self) -> None:
        """Finishes what is under way and closes the connections; the store can be used again."""
        await self._lookups.drained()
        await self._decisions.drained()
        await self._events.drained()
        await self._acceptances.drained()
        await self._engine.dispose()

    async def find(
        self, tenant: str, decided_at: datetime, decision_ids: Sequence[uuid.UUID]
    ) -> Mapping[uuid.UUID, Decision]:
        """The stored ones among `decision_ids`, quarantined ones included.

        Raises:
            StoreUnavailable: The store did not answer in time.
        """
        wanted = [(tenant, (utc(decided_at), decision_id)) for decision_id in decision_ids]
        async with store_errors("finding decisions"), asyncio.timeout(self._timeout):
            found = await self._lookups.submit(wanted)
        return {
            decision_id: decision_of(row)
            for decision_id, row in zip(decision_ids, found, strict=True)
            if row is not None
        }

    async def record(self, decisions: Sequence[Decision]) -> Sequence[Decision]:
        """Stores each decision unless its id is taken, and gives back what is stored, in the same order.

        A time without a zone is taken to be UTC. What PostgreSQL refuses to store goes to quarantine, where
        it counts as stored.

        Raises:
            DecisionMismatch: An id is taken by a decision of another processor, phase or state.
            StoreUnavailable: The store did not answer in time; some may be stored, calling again is safe.
        """
        made = await self._rows_of(decisions)
        async with store_errors("recording decisions"), asyncio.timeout(self._timeout):
            results = await self._decisions.submit(made)
        for result in results:
            if isinstance(result, StoreError):
                raise result
        return [result for result in results if isinstance(result, Decision)]

    async def record_events(self, events: Sequence[HistoryEvent]) -> None:
        """Stores each event unless its id is taken.

        Events have no quarantine: one that PostgreSQL refuses fails its own call, and no other.

        Raises:
            StoreError: PostgreSQL refuses the values of one of them; the others are stored.
            StoreUnavailable: The store did not answer in time; some may be stored, calling again is safe.
        """
        async with store_errors("recording events"), asyncio.timeout(self._timeout):
            _raise_first(await self._events.submit(events))

    async def accept(self, accepted: Sequence[AcceptedEvent]) -> None:
        """Remembers which run each source event got; the first one stays. Errors as for `record_events`."""
        async with store_errors("accepting events"), asyncio.timeout(self._timeout):
            _raise_first(await self._acceptances.submit(accepted))

    async def accepted(self, events: Sequence[SourceEvent]) -> Mapping[SourceEvent, AcceptedEvent]:
        """The already accepted ones among `events`; errors as for `find`."""
        wanted = {(escape(event.tenant), bounded(event.source), bounded(event.id)): event for event in events}
        found: dict[SourceEvent, AcceptedEvent] = {}
        async with self._transaction("looking events up") as connection:
            for tenant, group in groupby(sorted(wanted), key=lambda key: key[0]):
                await set_tenant(connection, tenant)
                for row in (await connection.execute(_select_accepted(list(group)))).mappings():
                    event = wanted.get((row["tenant"], row["source"], row["event_id"]))
                    if event is not None:
                        found[event] = _accepted_of(event, dict(row))
        return found

    async def last_facts(self, tenant: str, workflow_id: str, kind: EventKind) -> Mapping[str, JSON] | None:
        """The body of the newest event of this kind that happened to this workflow; errors as for `find`."""
        events = history_events.c
        select = (
            sa.select(events.body)
            .where(
                events.tenant == escape(tenant),
                events.workflow_id == escape(workflow_id),
                events.kind == kind,
            )
            .order_by(events.at.desc(), events.event_id)
            .limit(1)
        )
        async with self._transaction("looking events up") as connection:
            await set_tenant(connection, escape(tenant))
            body = (await connection.execute(select)).scalar()
        return None if body is None else cast("Mapping[str, JSON]", decode(body))

    @asynccontextmanager
    async def _transaction(self, what: str) -> AsyncGenerator[AsyncConnection]:
        async with (
            store_errors(what),
            asyncio.timeout(self._timeout),
            self._engine.begin() as connection,
        ):
            yield connection

    async def _look_up(self, wanted: Sequence[tuple[str, Key]]) -> Sequence[Row | None]:
        stored: dict[tuple[str, Key], Row] = {}
        async with self._transaction("finding decisions") as connection:
            for tenant, group in groupby(sorted(set(wanted)), key=lambda pair: pair[0]):
                rows = await fetch(connection, tenant, [key for _, key in group])
                stored |= {(tenant, key): row for key, row in rows.items()}
        return [stored.get(each) for each in wanted]

    async def _rows_of(self, decisions: Sequence[Decision]) -> list[_Made]:
        def make() -> list[_Made]:
            return [(one, rows_of(one, self._hash_key, self._contents)) for one in decisions]

        # A redactor may take its time, and has all of it.
        return make() if self._contents.redact is None else await asyncio.to_thread(make)

    async def _flush(self, batch: Sequence[_Made]) -> Sequence[Decision | StoreError]:
        try:
            async with store_errors("recording decisions"), asyncio.timeout(self._timeout):
                return await self._write(batch)
        except StoreError as error:
            return [error] * len(batch)

    async def _write(self, batch: Sequence[_Made]) -> list[Decision | StoreError]:
        first: dict[Key, Decision] = {}
        rows: dict[Key, Rows] = {}
        for decision, made in batch:
            first.setdefault(_key(decision), decision)
            rows.setdefault(_key(decision), made)
        new: set[Key] = set()
        # In one order everywhere, so that no two processes wait for each other's rows.
        for chunk in _chunks(sorted(rows.values(), key=_order)):
            new |= await self._insert(chunk)
        stored = await self._taken(rows, new)
        return [self._settled(decision, first, new, rows, stored) for decision, _ in batch]

    def _settled(
        self,
        decision: Decision,
        first: Mapping[Key, Decision],
        new: set[Key],
        rows: Mapping[Key, Rows],
        stored: Mapping[Key, Row],
    ) -> Decision | StoreError:
        key = _key(decision)
        if key in new and first[key] is decision:
            return decision
        row = rows[key].decision if key in new else stored.get(key)
        if row is None:
            return StoreError(
                f"decision {decision.decision_id} was neither stored nor found; it may be of another tenant"
            )
        same = (
            row["phase"] == decision.phase
            and row["processor_id"] == escape_optional(decision.processor_id)
            and row["state_hash"] == keyed_hash(self._hash_key, decision.state)
        )
        if not same:
            return DecisionMismatch(
                f"decision {decision.decision_id} is on record for another processor, phase or state"
            )
        return first[key] if key in new else decision_of(row)

    async def _taken(self, rows: Mapping[Key, Rows], new: set[Key]) -> dict[Key, Row]:
        taken = sorted((rows[key].decision["tenant"], key) for key in rows if key not in new)
        stored: dict[Key, Row] = {}
        if not taken:
            return stored
        async with self._engine.begin() as connection:
            for tenant, group in groupby(taken, key=lambda pair: pair[0]):
                stored |= await fetch(connection, unescape(tenant), [key for _, key in group])
        return stored

    async def _insert(self, rows: Sequence[Rows]) -> set[Key]:
        """Stores what it can, halving the batch around what is refused; the keys that were new."""
        try:
            return await self._insert_all(rows)
        except DBAPIError as error:
            if not is_about_data(error):
                raise
            refusal = sqlstate(error) or ""
        if len(rows) == 1:
            return await self._quarantine(rows[0], refusal)
        half = len(rows) // 2
        return await self._insert(rows[:half]) | await self._insert(rows[half:])

    async def _insert_all(self, rows: Sequence[Rows]) -> set[Key]:
        new: set[Key] = set()
        async with self._engine.begin() as connection:
            for tenant, group in groupby(rows, key=_tenant):
                await set_tenant(connection, tenant)
                inserted = await connection.execute(INSERT_DECISIONS, parameters(list(group)))
                new.update((utc(moment), decision_id) for moment, decision_id in inserted)
        return new

    async def _quarantine(self, rows: Rows, refusal: str) -> set[Key]:
        async with self._engine.begin() as connection:
            await set_tenant(connection, _tenant(rows))
            # Refused before, or refused now: with the row in neither place it is new.
            if await fetch(connection, unescape(_tenant(rows)), [_row_key(rows)]):
                return set()
            about = {"subject": rows.decision["subject"], "decided_at": _row_key(rows)[0]}
            if (await connection.execute(SELECT_ERASED, about)).first() is not None:
                rows = replace(rows, contents={})
            inserted = await connection.execute(INSERT_QUARANTINE, quarantined(rows, refusal))
            return {_row_key(rows)} if inserted.first() is not None else set()

    async def _flush_events(self, batch: Sequence[HistoryEvent]) -> Sequence[StoreError | None]:
        return await self._flush_rows(INSERT_EVENTS, [event_row(event, self._contents) for event in batch])

    async def _flush_acceptances(self, batch: Sequence[AcceptedEvent]) -> Sequence[StoreError | None]:
        return await self._flush_rows(INSERT_ACCEPTED, [accepted_row(item) for item in batch])

    async def _flush_rows(self, statement: sa.TextClause, rows: list[Row]) -> Sequence[StoreError | None]:
        try:
            async with store_errors("recording events"), asyncio.timeout(self._timeout):
                refused = await self._insert_rows(statement, sorted(enumerate(rows), key=_event_order))
        except StoreError as error:
            return [error] * len(rows)
        return [refused.get(place) for place in range(len(rows))]

    async def _insert_rows(
        self, statement: sa.TextClause, rows: Sequence[tuple[int, Row]]
    ) -> dict[int, StoreError]:
        """Stores what it can, halving the batch around what is refused; the errors, by place."""
        try:
            async with self._engine.begin() as connection:
                for tenant, group in groupby(rows, key=lambda item: str(item[1]["tenant"])):
                    await set_tenant(connection, tenant)
                    await connection.execute(statement, {"rows": dumps([row for _, row in group])})
        except DBAPIError as error:
            if not is_about_data(error):
                raise
            refusal = StoreError(f"recording events: PostgreSQL refuses the values ({sqlstate(error)})")
        else:
            return {}
        if len(rows) == 1:
            return {rows[0][0]: refusal}
        half = len(rows) // 2
        return await self._insert_rows(statement, rows[:half]) | await self._insert_rows(
            statement, rows[half:]
        )


def _raise_first(results: Iterable[StoreError | None]) -> None:
    for result in results:
        if result is not None:
            raise result


def _chunks(rows: Iterable[Rows]) -> Iterable[list[Rows]]:
    chunk: list[Rows] = []
    size = 0
    for item in rows:
        characters = len(item.contents["state"] or "") + len(item.contents["original"] or "")
        if chunk and size + characters > _CHARACTERS_AT_ONCE:
            yield chunk
            chunk, size = [], 0
        chunk.append(item)
        size += characters
    if chunk:
        yield chunk


def _key(decision: Decision) -> Key:
    return utc(decision.decided_at), decision.decision_id


def _tenant(rows: Rows) -> str:
    return str(rows.decision["tenant"])


def _order(rows: Rows) -> tuple[str, str, str]:
    return _tenant(rows), rows.decision["decision_id"], rows.decision["decided_at"]


def _row_key(rows: Rows) -> Key:
    return datetime.fromisoformat(rows.decision["decided_at"]), uuid.UUID(rows.decision["decision_id"])


def _event_order(item: tuple[int, Row]) -> tuple[str, str]:
    return item[1]["tenant"], item[1]["event_id"]


def _accepted_of(event: SourceEvent, row: Row) -> AcceptedEvent:
    return AcceptedEvent(event, unescape(row["workflow_id"]), unescape(row["run_id"]), row["accepted_at"])


def _select_accepted(keys: Sequence[tuple[str, str, str]]) -> sa.Select[tuple[object, ...]]:
    sources, ids = [sorted({key[index] for key in keys}) for index in (1, 2)]
    return sa.select(accepted_events).where(
        accepted_events.c.tenant == keys[0][0],
        accepted_events.c.source == sa.any_(sa.literal(sources, sa.ARRAY(sa.Text))),
        accepted_events.c.event_id == sa.any_(sa.literal(ids, sa.ARRAY(sa.Text))),
    )
