"""Stored decisions by their keys, those in quarantine included."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from datetime import datetime
from typing import TypeAlias

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from classifier.audit.engine import set_tenant
from classifier.audit.escape import escape
from classifier.audit.inserts import released
from classifier.audit.rows import Row, utc
from classifier.audit.sql import SELECT_DECISIONS
from classifier.audit.tables import decisions, quarantine

Key: TypeAlias = tuple[datetime, uuid.UUID]
"""When it was decided, in UTC, and its id."""


async def fetch(connection: AsyncConnection, tenant: str, keys: Sequence[Key]) -> dict[Key, Row]:
    """The rows of those that are there, in a transaction that is about `tenant` from here on."""
    await set_tenant(connection, escape(tenant))
    moments, ids = [sorted(set(column)) for column in zip(*keys, strict=True)]
    wanted = set(keys)
    query = SELECT_DECISIONS.where(
        decisions.c.tenant == escape(tenant),
        decisions.c.decision_id == sa.any_(sa.literal(ids, sa.ARRAY(sa.Uuid))),
        decisions.c.decided_at == sa.any_(sa.literal(moments, sa.ARRAY(sa.DateTime(timezone=True)))),
    )
    found: dict[Key, Row] = {}
    for row in (await connection.execute(query)).mappings():
        found[utc(row["decided_at"]), row["decision_id"]] = dict(row)
    missing = [key[1] for key in wanted if key not in found]
    if missing:
        query_kept = sa.select(quarantine.c.decided_at, quarantine.c.decision_id, quarantine.c.kept).where(
            quarantine.c.decision_id == sa.any_(sa.literal(missing, sa.ARRAY(sa.Uuid)))
        )
        for moment, decision_id, kept in await connection.execute(query_kept):
            rows = released(kept)
            found[utc(moment), decision_id] = rows.decision | rows.contents
    return {key: row for key, row in found.items() if key in wanted}
