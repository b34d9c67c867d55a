"""The statements that write rows: one per batch, each taking its rows as one JSON text."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import sqlalchemy as sa

from classifier.audit.escape import dumps
from classifier.audit.rows import Rows
from classifier.audit.tables import (
    SCHEMA,
    accepted_events,
    decision_answers,
    decision_contents,
    decisions,
    erased_subjects,
    history_events,
    quarantine,
)


def _columns(table: sa.Table) -> str:
    return ", ".join(column.name for column in table.columns if column.server_default is None)


def _insert(table: sa.Table, parameter: str, condition: str = "") -> str:
    columns = _columns(table)
    return (
        f"INSERT INTO {SCHEMA}.{table.name} ({columns}) SELECT {columns} FROM "  # noqa: S608 - names of our own
        f"jsonb_populate_recordset(CAST(NULL AS {SCHEMA}.{table.name}), CAST(:{parameter} AS jsonb))"
        f"{condition} ON CONFLICT DO NOTHING"
    )


_ONLY_NEW = " WHERE (decision_id, decided_at) IN (SELECT decision_id, decided_at FROM new)"
_NOT_ERASED = (
    f"{_ONLY_NEW[:-1]} WHERE NOT EXISTS (SELECT FROM {SCHEMA}.{erased_subjects.name} AS erased "
    "WHERE erased.tenant = new.tenant AND erased.subject = new.subject "
    "AND new.decided_at <= erased.erased_at))"
)
INSERT_DECISIONS = sa.text(
    f"WITH new AS ({_insert(decisions, 'decisions')} "  # noqa: S608 - names of our own
    "RETURNING decision_id, decided_at, tenant, subject), "
    f"contents AS ({_insert(decision_contents, 'contents', _NOT_ERASED)}), "
    f"answers AS ({_insert(decision_answers, 'answers', _ONLY_NEW)}) "
    "SELECT decided_at, decision_id FROM new"
)
"""Contents and answers go in only with their decision: a late retry never brings erased text back.

Nor does a decision that arrives late: what was decided about a person before they were erased goes in
without its contents.
"""

INSERT_QUARANTINE = sa.text(f"{_insert(quarantine, 'rows')} RETURNING decision_id")
INSERT_EVENTS = sa.text(_insert(history_events, "rows"))
INSERT_ACCEPTED = sa.text(_insert(accepted_events, "rows"))

SELECT_ERASED = sa.text(
    f"SELECT 1 FROM {SCHEMA}.{erased_subjects.name} "  # noqa: S608 - names of our own
    "WHERE subject = :subject AND erased_at >= :decided_at"
)
"""Whether what was decided then about this person is stored without content; of the tenant that is set."""


def parameters(batch: Sequence[Rows]) -> dict[str, str]:
    """What `INSERT_DECISIONS` takes."""
    return {
        "decisions": dumps([rows.decision for rows in batch]),
        "contents": dumps([rows.contents for rows in batch if rows.contents]),
        "answers": dumps([answer for rows in batch for answer in rows.answers]),
    }


def quarantined(rows: Rows, error: str) -> dict[str, str]:
    """What `INSERT_QUARANTINE` takes."""
    identity = {name: rows.decision[name] for name in ("decision_id", "decided_at", "tenant")}
    return {"rows": dumps([identity | {"error": error, "kept": kept_text(rows)}])}


def kept_text(rows: Rows) -> str:
    """Rows as quarantine keeps them."""
    return dumps({"decision": rows.decision, "contents": rows.contents, "answers": rows.answers})


def released(kept: str) -> Rows:
    """The rows that `kept_text` wrote."""
    body: dict[str, Any] = json.loads(kept)
    return Rows(body["decision"], body["contents"], body["answers"])
