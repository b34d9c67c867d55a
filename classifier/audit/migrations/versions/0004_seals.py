"""Seals: leaves, signed checkpoints and the stubs of retention; events get their order of arrival.

Revision: 0004
Revises: 0003
"""

from __future__ import annotations

from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None

_TABLES = (
    """CREATE TABLE classifier.seal_leaves (
    tenant TEXT NOT NULL,
    sequence BIGINT NOT NULL,
    kind TEXT NOT NULL,
    row_id UUID NOT NULL,
    moment timestamptz NOT NULL,
    transaction_id BIGINT NOT NULL,
    arrival BIGINT NOT NULL,
    format SMALLINT NOT NULL,
    row_hash BYTEA NOT NULL,
    contents_hash BYTEA,
    chain_hash BYTEA NOT NULL,
    CONSTRAINT pk_seal_leaves PRIMARY KEY (tenant, sequence)
)""",
    """CREATE TABLE classifier.seal_checkpoints (
    tenant TEXT NOT NULL,
    number BIGINT NOT NULL,
    leaves BIGINT NOT NULL,
    transaction_id BIGINT NOT NULL,
    arrival BIGINT NOT NULL,
    chain_hash BYTEA NOT NULL,
    previous BYTEA,
    sealed_at timestamptz NOT NULL,
    key_id TEXT NOT NULL,
    signature BYTEA NOT NULL,
    CONSTRAINT pk_seal_checkpoints PRIMARY KEY (tenant, number)
)""",
    """CREATE TABLE classifier.seal_stubs (
    tenant TEXT NOT NULL,
    kind TEXT NOT NULL,
    since timestamptz NOT NULL,
    until timestamptz NOT NULL,
    through BIGINT NOT NULL,
    leaves BIGINT NOT NULL,
    digest BYTEA NOT NULL,
    made_at timestamptz NOT NULL,
    key_id TEXT NOT NULL,
    signature BYTEA NOT NULL,
    CONSTRAINT pk_seal_stubs PRIMARY KEY (tenant, kind, since, until, through)
)""",
)
_NAMES = ("seal_leaves", "seal_checkpoints", "seal_stubs")
_COMMENTS = (
    ("history_events.transaction_id", "with arrival: the order in which rows became visible"),
    ("seal_leaves.kind", "decision or event"),
    ("seal_leaves.moment", "when it was decided or happened"),
    ("seal_leaves.contents_hash", "keyed: HMAC-SHA256"),
    ("seal_stubs.kind", "decision or event"),
)

# Nobody may change or delete a seal; the writer has no business with them at all.
_SECURITY = (
    "ALTER TABLE classifier.{table} ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY",
    """CREATE POLICY tenant ON classifier.{table} TO classifier_reader
USING (tenant = NULLIF(current_setting('classifier.tenant', true), ''))""",
    "CREATE POLICY maintenance ON classifier.{table} TO classifier_maintenance USING (true)",
    "GRANT SELECT ON classifier.{table} TO classifier_reader",
    "GRANT SELECT, INSERT ON classifier.{table} TO classifier_maintenance",
)


def upgrade() -> None:
    """To this version; events that are there already count as having arrived now."""
    op.execute(
        "ALTER TABLE classifier.history_events "
        "ADD COLUMN transaction_id BIGINT "
        "DEFAULT CAST(CAST(pg_current_xact_id() AS text) AS bigint) NOT NULL, "
        "ADD COLUMN arrival BIGINT DEFAULT nextval('classifier.arrivals') NOT NULL"
    )
    op.execute(
        "CREATE INDEX ix_history_events_arrival "
        "ON classifier.history_events (tenant, transaction_id, arrival)"
    )
    for statement in _TABLES:
        op.execute(statement)
    for column, comment in _COMMENTS:
        op.execute(f"COMMENT ON COLUMN classifier.{column} IS '{comment}'")
    for table in _NAMES:
        for statement in _SECURITY:
            op.execute(statement.format(table=table))


def downgrade() -> None:
    """To the version before; the seals are lost."""
    for table in reversed(_NAMES):
        op.execute(f"DROP TABLE classifier.{table}")
    op.execute("DROP INDEX classifier.ix_history_events_arrival")
    op.execute("ALTER TABLE classifier.history_events DROP COLUMN transaction_id, DROP COLUMN arrival")
