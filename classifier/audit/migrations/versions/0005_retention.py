"""What can be forgotten: texts of events in a column of their own, erased persons, legal holds.

Revision: 0005
Revises: 0004
"""

from __future__ import annotations

from alembic import op

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None

_TABLES = (
    """CREATE TABLE classifier.erased_subjects (
    tenant TEXT NOT NULL,
    subject TEXT NOT NULL,
    erased_at timestamptz NOT NULL,
    CONSTRAINT pk_erased_subjects PRIMARY KEY (tenant, subject)
)""",
    """CREATE TABLE classifier.legal_holds (
    hold_id UUID NOT NULL,
    tenant TEXT NOT NULL,
    subject TEXT,
    reason TEXT NOT NULL,
    placed_by TEXT NOT NULL,
    placed_at timestamptz NOT NULL,
    released_by TEXT,
    released_at timestamptz,
    CONSTRAINT pk_legal_holds PRIMARY KEY (hold_id)
)""",
    "CREATE INDEX ix_legal_holds_open ON classifier.legal_holds (tenant, subject) WHERE released_at IS NULL",
    "CREATE INDEX ix_decisions_subject ON classifier.decisions (tenant, subject) WHERE subject IS NOT NULL",
)
_COMMENTS = (
    ("decision_contents.state", "NULL where content is not kept"),
    ("history_events.content", "what people wrote; erasable, and never sealed"),
    (
        "erased_subjects.subject",
        "as in decisions; what was decided about them before is stored without content",
    ),
    ("legal_holds.subject", "as in decisions; NULL holds everything of the tenant"),
    ("legal_holds.reason", "what somebody wrote; erasable"),
)
_SECURITY = (
    "ALTER TABLE classifier.{table} ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY",
    """CREATE POLICY tenant ON classifier.{table} TO classifier_writer, classifier_reader
USING (tenant = NULLIF(current_setting('classifier.tenant', true), ''))""",
    "CREATE POLICY maintenance ON classifier.{table} TO classifier_maintenance USING (true)",
    "GRANT SELECT ON classifier.{table} TO classifier_writer, classifier_reader",
    "GRANT SELECT, INSERT, UPDATE, DELETE ON classifier.{table} TO classifier_maintenance",
)


def upgrade() -> None:
    """To this version."""
    op.execute("ALTER TABLE classifier.decision_contents ALTER COLUMN state DROP NOT NULL")
    op.execute("ALTER TABLE classifier.history_events ADD COLUMN content JSONB")
    for statement in _TABLES:
        op.execute(statement)
    for column, comment in _COMMENTS:
        op.execute(f"COMMENT ON COLUMN classifier.{column} IS '{comment}'")
    for table in ("erased_subjects", "legal_holds"):
        for statement in _SECURITY:
            op.execute(statement.format(table=table))
    # The owner of the tables has no policy, and so sees no rows.
    op.execute("SET LOCAL ROLE classifier_maintenance")
    op.execute(
        "UPDATE classifier.history_events SET body = body - 'reason', "
        "content = jsonb_build_object('reason', body->'reason') WHERE kind = 'review' AND body ? 'reason'"
    )
    op.execute("SET LOCAL ROLE classifier_owner")


def downgrade() -> None:
    """To the version before; holds are lost, and so is who was erased. Texts go back into their bodies."""
    op.execute("SET LOCAL ROLE classifier_maintenance")
    op.execute("UPDATE classifier.history_events SET body = body || content WHERE content IS NOT NULL")
    op.execute("UPDATE classifier.decision_contents SET state = '' WHERE state IS NULL")
    op.execute("SET LOCAL ROLE classifier_owner")
    for table in ("legal_holds", "erased_subjects"):
        op.execute(f"DROP TABLE classifier.{table}")
    op.execute("DROP INDEX classifier.ix_decisions_subject")
    op.execute("ALTER TABLE classifier.history_events DROP COLUMN content")
    op.execute("ALTER TABLE classifier.decision_contents ALTER COLUMN state SET NOT NULL")
