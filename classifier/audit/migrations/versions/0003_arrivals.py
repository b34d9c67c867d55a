"""Indexes: the order of arrival for `tail` and `seal`, common answers by time, and rare kinds of decisions.

Revision: 0003
Revises: 0002
"""

from __future__ import annotations

from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None


_MODEL = "CASE WHEN resolved_model IS NOT NULL THEN resolved_model ELSE requested_model END"
_INDEXES = (
    ("ix_decisions_arrival", "decisions (tenant, transaction_id, arrival)"),
    ("ix_decisions_kind", f"decisions (tenant, phase, playbook_id, branch_route, ({_MODEL}))"),
    ("ix_decision_answers_newest", "decision_answers (tenant, question, decided_at, decision_id)"),
)


def upgrade() -> None:
    """To this version."""
    for name, where in _INDEXES:
        op.execute(f"CREATE INDEX {name} ON classifier.{where}")


def downgrade() -> None:
    """To the version before."""
    for name, _ in _INDEXES:
        op.execute(f"DROP INDEX classifier.{name}")
