"""Contents and answers are found by time before id, as they come: what is read together lies together.

Revision: 0006
Revises: 0005
"""

from __future__ import annotations

from alembic import op

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None


_BEFORE = {
    "decision_contents": "decision_id, decided_at",
    "decision_answers": "decision_id, question, decided_at",
}
_AFTER = {
    "decision_contents": "decided_at, decision_id",
    "decision_answers": "decided_at, decision_id, question",
}


_INDEXES = {
    "ix_decisions_run": ("run_id", "run_id <> ''"),
    "ix_decisions_message": ("message_id", "message_id IS NOT NULL"),
}


def upgrade() -> None:
    """To this version."""
    _key_by(_AFTER)
    _index(", decided_at")


def downgrade() -> None:
    """To the version before."""
    _key_by(_BEFORE)
    _index("")


def _index(then: str) -> None:
    """With the time behind it, an index of ids also has the newest of them."""
    for name, (column, present) in _INDEXES.items():
        op.execute(f"DROP INDEX classifier.{name}")
        op.execute(f"CREATE INDEX {name} ON classifier.decisions (tenant, {column}{then}) WHERE {present}")


def _key_by(keys: dict[str, str]) -> None:
    for table, columns in keys.items():
        op.execute(
            f"ALTER TABLE classifier.{table} DROP CONSTRAINT pk_{table}, "
            f"ADD CONSTRAINT pk_{table} PRIMARY KEY ({columns})"
        )
