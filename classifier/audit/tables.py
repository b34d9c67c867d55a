"""The tables of the audit history, in a schema of their own. Describes; does no I/O.

`decisions`, `decision_contents` and `decision_answers` are partitioned by month of `decided_at`, the time
that all attempts at a decision share. Facts are append-only; what may have to be erased (the text, the
request context, the person's id) is in `decision_contents` alone. `decision_answers` repeats the answers as
columns, because the planner does not use conditions on JSONB expressions under row-level security.
"""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import JSONB

SCHEMA = "classifier"
TENANT_SETTING = "classifier.tenant"
ARRIVALS = "arrivals"

NAMING_CONVENTION = {
    "pk": "pk_%(table_name)s",
    "ck": "ck_%(table_name)s_%(constraint_name)s",
    "uq": "uq_%(table_name)s_%(column_0_N_name)s",
    "ix": "ix_%(table_name)s_%(column_0_N_name)s",
    "fk": "fk_%(table_name)s_%(column_0_N_name)s",
}

MODEL = "(\nCASE\nWHEN resolved_model IS NOT NULL THEN resolved_model\nELSE requested_model\nEND)"
"""As PostgreSQL gives it back. Not coalesce(), which row-level security keeps from using an index."""

metadata = sa.MetaData(schema=SCHEMA, naming_convention=NAMING_CONVENTION)


def _text(name: str, **options: Any) -> sa.Column[str]:
    return sa.Column(name, sa.Text, nullable=False, **options)


def _optional(name: str, **options: Any) -> sa.Column[str]:
    return sa.Column(name, sa.Text, **options)


def _json(name: str, *, nullable: bool = False) -> sa.Column[Any]:
    return sa.Column(name, JSONB(none_as_null=True), nullable=nullable)


def _moment(name: str, **options: Any) -> sa.Column[Any]:
    return sa.Column(name, sa.DateTime(timezone=True), nullable=False, **options)


def _number(name: str) -> sa.Column[int]:
    return sa.Column(name, sa.BigInteger, nullable=False)


def _bytes(name: str, *, nullable: bool = False, **options: Any) -> sa.Column[bytes]:
    return sa.Column(name, sa.LargeBinary, nullable=nullable, **options)


def _arrival() -> tuple[sa.Column[int], sa.Column[int]]:
    """The order in which rows became visible."""
    transaction = sa.text("CAST(CAST(pg_current_xact_id() AS text) AS bigint)")
    return (
        sa.Column(
            "transaction_id",
            sa.BigInteger,
            server_default=transaction,
            nullable=False,
            comment="with arrival: the order in which rows became visible",
        ),
        sa.Column(
            "arrival",
            sa.BigInteger,
            server_default=sa.text(f"nextval('{SCHEMA}.{ARRIVALS}')"),
            nullable=False,
        ),
    )


def _present(column: str) -> sa.TextClause:
    return sa.text(f"{column} IS NOT NULL")


decisions = sa.Table(
    "decisions",
    metadata,
    sa.Column("decision_id", sa.Uuid, nullable=False),
    _moment("decided_at"),
    _text("tenant"),
    _text("namespace"),
    _text("workflow_id"),
    _text("run_id"),
    _text("activity_id"),
    sa.Column("ordinal", sa.BigInteger, nullable=False),
    _text("classifier_id"),
    _optional("processor_id"),
    _optional("playbook_id"),
    _text("phase"),
    _text("outcome"),
    _text("mode"),
    _json("answers", nullable=True),
    _text("question_set"),
    _json("gates"),
    sa.Column("duration_ms", sa.Double, nullable=False),
    sa.Column("attempts", sa.BigInteger, nullable=False),
    _optional("failure_code"),
    _optional("failure_message"),
    _optional("tripwire_reason"),
    _json("tripwire_metadata", nullable=True),
    _optional("branch_action"),
    _optional("branch_route"),
    _json("branch_reasons", nullable=True),
    _optional("thread_id"),
    _optional("message_id"),
    _optional("trace_id"),
    _optional("span_id"),
    _optional("policy_version"),
    _optional("provider"),
    _optional("requested_model"),
    _optional("resolved_model"),
    _optional("provider_request_id"),
    sa.Column("input_tokens", sa.BigInteger),
    sa.Column("output_tokens", sa.BigInteger),
    sa.Column("cost", sa.Double),
    _json("warnings"),
    sa.Column("truncated_from", sa.BigInteger),
    sa.Column("truncated_to", sa.BigInteger),
    _optional("truncated_by"),
    _json("normalised"),
    _json("metadata"),
    sa.Column("refused", sa.Boolean, nullable=False),
    sa.Column("reason_text", sa.Text, comment="reasons and failure code, case folded, for free text search"),
    _text("state_hash", comment="keyed: HMAC-SHA256"),
    sa.Column("state_length", sa.BigInteger, nullable=False),
    sa.Column("subject", sa.Text, comment="keyed pseudonym of the resource id; stays after erasure"),
    _moment("recorded_at", server_default=sa.text("clock_timestamp()")),
    *_arrival(),
    sa.PrimaryKeyConstraint("decision_id", "decided_at"),
    sa.Index("ix_decisions_newest", "tenant", "decided_at", "decision_id"),
    sa.Index("ix_decisions_arrival", "tenant", "transaction_id", "arrival"),
    # For what is rare among them, whichever is asked for: PostgreSQL 18 skips over the columns in front.
    sa.Index(
        "ix_decisions_kind",
        "tenant",
        "phase",
        "playbook_id",
        "branch_route",
        sa.text(MODEL),
    ),
    sa.Index("ix_decisions_classifier", "tenant", "classifier_id", "outcome", "decided_at"),
    sa.Index(
        "ix_decisions_processor",
        "tenant",
        "processor_id",
        "outcome",
        "decided_at",
        postgresql_where=_present("processor_id"),
    ),
    sa.Index("ix_decisions_workflow", "tenant", "workflow_id", "decided_at"),
    sa.Index("ix_decisions_run", "tenant", "run_id", "decided_at", postgresql_where=sa.text("run_id <> ''")),
    sa.Index(
        "ix_decisions_thread", "tenant", "thread_id", "decided_at", postgresql_where=_present("thread_id")
    ),
    sa.Index(
        "ix_decisions_message", "tenant", "message_id", "decided_at", postgresql_where=_present("message_id")
    ),
    sa.Index("ix_decisions_subject", "tenant", "subject", postgresql_where=_present("subject")),
    sa.Index("ix_decisions_trace", "tenant", "trace_id", postgresql_where=_present("trace_id")),
    sa.Index(
        "ix_decisions_branch",
        "tenant",
        "branch_action",
        "branch_route",
        "decided_at",
        postgresql_where=_present("branch_action"),
    ),
    sa.Index("ix_decisions_failed", "tenant", "decided_at", postgresql_where=_present("failure_code")),
    sa.Index("ix_decisions_refused", "tenant", "decided_at", postgresql_where=sa.text("refused")),
    sa.Index("ix_decisions_truncated", "tenant", "decided_at", postgresql_where=_present("truncated_from")),
    sa.Index("ix_decisions_reasons", "tenant", "decided_at", postgresql_where=_present("reason_text")),
    postgresql_partition_by="RANGE (decided_at)",
)

decision_contents = sa.Table(
    "decision_contents",
    metadata,
    sa.Column("decision_id", sa.Uuid, nullable=False),
    _moment("decided_at"),
    _text("tenant"),
    _optional("resource_id"),
    _optional("state", comment="NULL where content is not kept"),
    sa.Column("state_is_json", sa.Boolean, nullable=False),
    _json("request_context"),
    _optional("original", comment="the text before normalising, where that changed it"),
    sa.PrimaryKeyConstraint("decided_at", "decision_id"),
    sa.Index(
        "ix_decision_contents_resource",
        "tenant",
        "resource_id",
        "decided_at",
        postgresql_where=_present("resource_id"),
    ),
    postgresql_partition_by="RANGE (decided_at)",
)

decision_answers = sa.Table(
    "decision_answers",
    metadata,
    sa.Column("decision_id", sa.Uuid, nullable=False),
    _moment("decided_at"),
    _text("tenant"),
    _text("question"),
    _text("kind"),
    _optional("choice"),
    sa.Column("number", sa.Double, comment="P(true), the score, or the probability of the choice"),
    sa.PrimaryKeyConstraint("decided_at", "decision_id", "question"),
    sa.Index("ix_decision_answers_newest", "tenant", "question", "decided_at", "decision_id"),
    sa.Index(
        "ix_decision_answers_choice",
        "tenant",
        "question",
        "choice",
        "decided_at",
        "decision_id",
        postgresql_where=_present("choice"),
    ),
    sa.Index(
        "ix_decision_answers_number",
        "tenant",
        "question",
        "number",
        "decided_at",
        postgresql_where=_present("number"),
    ),
    postgresql_partition_by="RANGE (decided_at)",
)

history_events = sa.Table(
    "history_events",
    metadata,
    sa.Column("event_id", sa.Uuid, nullable=False),
    _moment("at"),
    _text("tenant"),
    _text("kind"),
    _text("workflow_id"),
    _text("run_id"),
    sa.Column("decision_id", sa.Uuid),
    _optional("actor"),
    _json("body"),
    _moment("recorded_at", server_default=sa.text("clock_timestamp()")),
    *_arrival(),
    sa.Column("content", JSONB(none_as_null=True), comment="what people wrote; erasable, and never sealed"),
    sa.PrimaryKeyConstraint("event_id"),
    sa.Index("ix_history_events_arrival", "tenant", "transaction_id", "arrival"),
    sa.Index("ix_history_events_workflow", "tenant", "workflow_id", "kind"),
    sa.Index("ix_history_events_newest", "tenant", "kind", "at"),
)

accepted_events = sa.Table(
    "accepted_events",
    metadata,
    _text("tenant"),
    _text("source"),
    _text("event_id"),
    _text("workflow_id"),
    _text("run_id"),
    _moment("accepted_at"),
    sa.PrimaryKeyConstraint("tenant", "source", "event_id"),
)

quarantine = sa.Table(
    "quarantine",
    metadata,
    sa.Column("decision_id", sa.Uuid, nullable=False),
    _moment("decided_at"),
    _text("tenant"),
    _text("error", comment="SQLSTATE; 23514 is a month without partitions"),
    _text("kept", comment="the rows of the three tables as JSON"),
    _moment("recorded_at", server_default=sa.text("clock_timestamp()")),
    sa.PrimaryKeyConstraint("decision_id", "decided_at"),
    sa.Index("ix_quarantine_error", "error", "decided_at"),
)

seal_leaves = sa.Table(
    "seal_leaves",
    metadata,
    _text("tenant"),
    _number("sequence"),
    _text("kind", comment="decision or event"),
    sa.Column("row_id", sa.Uuid, nullable=False),
    _moment("moment", comment="when it was decided or happened"),
    _number("transaction_id"),
    _number("arrival"),
    sa.Column("format", sa.SmallInteger, nullable=False),
    _bytes("row_hash"),
    _bytes("contents_hash", nullable=True, comment="keyed: HMAC-SHA256"),
    _bytes("chain_hash"),
    sa.PrimaryKeyConstraint("tenant", "sequence"),
)

seal_checkpoints = sa.Table(
    "seal_checkpoints",
    metadata,
    _text("tenant"),
    _number("number"),
    _number("leaves"),
    _number("transaction_id"),
    _number("arrival"),
    _bytes("chain_hash"),
    _bytes("previous", nullable=True),
    _moment("sealed_at"),
    _text("key_id"),
    _bytes("signature"),
    sa.PrimaryKeyConstraint("tenant", "number"),
)

seal_stubs = sa.Table(
    "seal_stubs",
    metadata,
    _text("tenant"),
    _text("kind", comment="decision or event"),
    _moment("since"),
    _moment("until"),
    _number("through"),
    _number("leaves"),
    _bytes("digest"),
    _moment("made_at"),
    _text("key_id"),
    _bytes("signature"),
    sa.PrimaryKeyConstraint("tenant", "kind", "since", "until", "through"),
)

erased_subjects = sa.Table(
    "erased_subjects",
    metadata,
    _text("tenant"),
    _text("subject", comment="as in decisions; what was decided about them before is stored without content"),
    _moment("erased_at"),
    sa.PrimaryKeyConstraint("tenant", "subject"),
)

legal_holds = sa.Table(
    "legal_holds",
    metadata,
    sa.Column("hold_id", sa.Uuid, nullable=False),
    _text("tenant"),
    sa.Column("subject", sa.Text, comment="as in decisions; NULL holds everything of the tenant"),
    _text("reason", comment="what somebody wrote; erasable"),
    _text("placed_by"),
    _moment("placed_at"),
    _optional("released_by"),
    sa.Column("released_at", sa.DateTime(timezone=True)),
    sa.PrimaryKeyConstraint("hold_id"),
    sa.Index("ix_legal_holds_open", "tenant", "subject", postgresql_where=sa.text("released_at IS NULL")),
)

PARTITIONED = (decisions, decision_contents, decision_answers)
SEALS = (seal_leaves, seal_checkpoints, seal_stubs)
EVERY_TABLE = (
    *PARTITIONED,
    history_events,
    accepted_events,
    quarantine,
    *SEALS,
    erased_subjects,
    legal_holds,
)
