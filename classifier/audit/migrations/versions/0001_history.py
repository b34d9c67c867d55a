"""The audit history: tables, indexes, row-level security and what each role may do.

Revision: 0001
Revises: nothing
"""

from __future__ import annotations

from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

_TABLES = (
    """CREATE TABLE classifier.decisions (
    decision_id UUID NOT NULL,
    decided_at timestamptz NOT NULL,
    tenant TEXT NOT NULL,
    namespace TEXT NOT NULL,
    workflow_id TEXT NOT NULL,
    run_id TEXT NOT NULL,
    activity_id TEXT NOT NULL,
    ordinal BIGINT NOT NULL,
    classifier_id TEXT NOT NULL,
    processor_id TEXT,
    playbook_id TEXT,
    phase TEXT NOT NULL,
    outcome TEXT NOT NULL,
    mode TEXT NOT NULL,
    answers JSONB,
    question_set TEXT NOT NULL,
    gates JSONB NOT NULL,
    duration_ms DOUBLE PRECISION NOT NULL,
    attempts BIGINT NOT NULL,
    failure_code TEXT,
    failure_message TEXT,
    tripwire_reason TEXT,
    tripwire_metadata JSONB,
    branch_action TEXT,
    branch_route TEXT,
    branch_reasons JSONB,
    thread_id TEXT,
    message_id TEXT,
    trace_id TEXT,
    span_id TEXT,
    policy_version TEXT,
    provider TEXT,
    requested_model TEXT,
    resolved_model TEXT,
    provider_request_id TEXT,
    input_tokens BIGINT,
    output_tokens BIGINT,
    cost DOUBLE PRECISION,
    warnings JSONB NOT NULL,
    truncated_from BIGINT,
    truncated_to BIGINT,
    truncated_by TEXT,
    normalised JSONB NOT NULL,
    metadata JSONB NOT NULL,
    refused BOOLEAN NOT NULL,
    reason_text TEXT,
    state_hash TEXT NOT NULL,
    state_length BIGINT NOT NULL,
    subject TEXT,
    recorded_at timestamptz DEFAULT clock_timestamp() NOT NULL,
    transaction_id BIGINT DEFAULT CAST(CAST(pg_current_xact_id() AS text) AS bigint) NOT NULL,
    arrival BIGINT DEFAULT nextval('classifier.arrivals') NOT NULL,
    CONSTRAINT pk_decisions PRIMARY KEY (decision_id, decided_at)
)
 PARTITION BY RANGE (decided_at)""",
    """CREATE TABLE classifier.decision_contents (
    decision_id UUID NOT NULL,
    decided_at timestamptz NOT NULL,
    tenant TEXT NOT NULL,
    resource_id TEXT,
    state TEXT NOT NULL,
    state_is_json BOOLEAN NOT NULL,
    request_context JSONB NOT NULL,
    CONSTRAINT pk_decision_contents PRIMARY KEY (decision_id, decided_at)
)
 PARTITION BY RANGE (decided_at)""",
    """CREATE TABLE classifier.decision_answers (
    decision_id UUID NOT NULL,
    decided_at timestamptz NOT NULL,
    tenant TEXT NOT NULL,
    question TEXT NOT NULL,
    kind TEXT NOT NULL,
    choice TEXT,
    number DOUBLE PRECISION,
    CONSTRAINT pk_decision_answers PRIMARY KEY (decision_id, question, decided_at)
)
 PARTITION BY RANGE (decided_at)""",
    """CREATE TABLE classifier.history_events (
    event_id UUID NOT NULL,
    at timestamptz NOT NULL,
    tenant TEXT NOT NULL,
    kind TEXT NOT NULL,
    workflow_id TEXT NOT NULL,
    run_id TEXT NOT NULL,
    decision_id UUID,
    actor TEXT,
    body JSONB NOT NULL,
    recorded_at timestamptz DEFAULT clock_timestamp() NOT NULL,
    CONSTRAINT pk_history_events PRIMARY KEY (event_id)
)""",
    """CREATE TABLE classifier.accepted_events (
    tenant TEXT NOT NULL,
    source TEXT NOT NULL,
    event_id TEXT NOT NULL,
    workflow_id TEXT NOT NULL,
    run_id TEXT NOT NULL,
    accepted_at timestamptz NOT NULL,
    CONSTRAINT pk_accepted_events PRIMARY KEY (tenant, source, event_id)
)""",
    """CREATE TABLE classifier.quarantine (
    decision_id UUID NOT NULL,
    decided_at timestamptz NOT NULL,
    tenant TEXT NOT NULL,
    error TEXT NOT NULL,
    kept TEXT NOT NULL,
    recorded_at timestamptz DEFAULT clock_timestamp() NOT NULL,
    CONSTRAINT pk_quarantine PRIMARY KEY (decision_id, decided_at)
)""",
)
_INDEXES = (
    (
        "ix_decisions_branch",
        "decisions",
        "(tenant, branch_action, branch_route, decided_at) WHERE branch_action IS NOT NULL",
    ),
    ("ix_decisions_classifier", "decisions", "(tenant, classifier_id, outcome, decided_at)"),
    ("ix_decisions_failed", "decisions", "(tenant, decided_at) WHERE failure_code IS NOT NULL"),
    ("ix_decisions_message", "decisions", "(tenant, message_id) WHERE message_id IS NOT NULL"),
    ("ix_decisions_newest", "decisions", "(tenant, decided_at, decision_id)"),
    (
        "ix_decisions_processor",
        "decisions",
        "(tenant, processor_id, outcome, decided_at) WHERE processor_id IS NOT NULL",
    ),
    ("ix_decisions_reasons", "decisions", "(tenant, decided_at) WHERE reason_text IS NOT NULL"),
    ("ix_decisions_refused", "decisions", "(tenant, decided_at) WHERE refused"),
    ("ix_decisions_run", "decisions", "(tenant, run_id) WHERE run_id <> ''"),
    ("ix_decisions_thread", "decisions", "(tenant, thread_id, decided_at) WHERE thread_id IS NOT NULL"),
    ("ix_decisions_trace", "decisions", "(tenant, trace_id) WHERE trace_id IS NOT NULL"),
    ("ix_decisions_truncated", "decisions", "(tenant, decided_at) WHERE truncated_from IS NOT NULL"),
    ("ix_decisions_workflow", "decisions", "(tenant, workflow_id, decided_at)"),
    (
        "ix_decision_contents_resource",
        "decision_contents",
        "(tenant, resource_id, decided_at) WHERE resource_id IS NOT NULL",
    ),
    (
        "ix_decision_answers_choice",
        "decision_answers",
        "(tenant, question, choice, decided_at, decision_id) WHERE choice IS NOT NULL",
    ),
    (
        "ix_decision_answers_number",
        "decision_answers",
        "(tenant, question, number, decided_at) WHERE number IS NOT NULL",
    ),
    ("ix_history_events_newest", "history_events", "(tenant, kind, at)"),
    ("ix_history_events_workflow", "history_events", "(tenant, workflow_id, kind)"),
    ("ix_quarantine_error", "quarantine", "(error, decided_at)"),
)
_COMMENTS = (
    ("decisions.reason_text", "reasons and failure code, case folded, for free text search"),
    ("decisions.state_hash", "keyed: HMAC-SHA256"),
    ("decisions.subject", "keyed pseudonym of the resource id; stays after erasure"),
    ("decisions.transaction_id", "with arrival: the order in which rows became visible"),
    ("decision_answers.number", "P(true), the score, or the probability of the choice"),
    ("quarantine.error", "SQLSTATE; 23514 is a month without partitions"),
    ("quarantine.kept", "the rows of the three tables as JSON"),
)

_NAMES = (
    "decisions",
    "decision_contents",
    "decision_answers",
    "history_events",
    "accepted_events",
    "quarantine",
)

# No tenant set, or one set and reset since, is NULL here: no rows. Nobody but maintenance crosses tenants,
# and the owner, who has no policy, sees nothing at all.
_SECURITY = (
    "ALTER TABLE classifier.{table} ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY",
    """CREATE POLICY tenant ON classifier.{table} TO classifier_writer, classifier_reader
USING (tenant = NULLIF(current_setting('classifier.tenant', true), ''))""",
    "CREATE POLICY maintenance ON classifier.{table} TO classifier_maintenance USING (true)",
    "GRANT SELECT, INSERT ON classifier.{table} TO classifier_writer",
    "GRANT SELECT, INSERT, UPDATE, DELETE ON classifier.{table} TO classifier_maintenance",
)
_READABLE = tuple(name for name in _NAMES if name != "quarantine")


def upgrade() -> None:
    """To this version."""
    op.execute("CREATE SEQUENCE classifier.arrivals CACHE 1")
    for statement in _TABLES:
        op.execute(statement)
    for name, table, what in _INDEXES:
        op.execute(f"CREATE INDEX {name} ON classifier.{table} {what}")
    for column, comment in _COMMENTS:
        op.execute(f"COMMENT ON COLUMN classifier.{column} IS '{comment}'")
    for table in _NAMES:
        for statement in _SECURITY:
            op.execute(statement.format(table=table))
    for table in _READABLE:
        op.execute(f"GRANT SELECT ON classifier.{table} TO classifier_reader")
    _grant_the_rest()


def _grant_the_rest() -> None:
    users = "classifier_writer, classifier_reader, classifier_maintenance"
    op.execute(f"GRANT USAGE ON SCHEMA classifier TO {users}")
    op.execute(f"GRANT SELECT ON classifier.alembic_version TO {users}")
    op.execute("GRANT USAGE ON SEQUENCE classifier.arrivals TO classifier_writer, classifier_maintenance")


def downgrade() -> None:
    """To nothing."""
    for table in reversed(_NAMES):
        op.execute(f"DROP TABLE classifier.{table}")
    op.execute("DROP SEQUENCE classifier.arrivals")
