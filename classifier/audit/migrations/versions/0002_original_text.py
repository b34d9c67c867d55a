"""The text before normalising, beside the text that was judged.

Revision: 0002
Revises: 0001
"""

from __future__ import annotations

from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """To this version."""
    op.execute("ALTER TABLE classifier.decision_contents ADD COLUMN original TEXT")
    op.execute(
        "COMMENT ON COLUMN classifier.decision_contents.original IS "
        "'the text before normalising, where that changed it'"
    )


def downgrade() -> None:
    """To the version before; the texts are lost."""
    op.execute("ALTER TABLE classifier.decision_contents DROP COLUMN original")
