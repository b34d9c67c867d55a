"""Many decisions at once, made by the database itself."""

from __future__ import annotations

import sqlalchemy as sa

from classifier.audit.engine import create_engine, set_tenant

_MADE = """
SELECT g, md5(:tenant || g)::uuid AS decision_id,
    now() - make_interval(secs => g) AS decided_at,
    CASE WHEN g % 100 = 0 THEN 'fraud' WHEN g % 3 = 0 THEN 'billing' ELSE 'other' END AS topic,
    (g % 1000) / 1000.0 AS unsafe
FROM generate_series(1, :rows) AS g
"""
_DECISIONS = f"""
INSERT INTO classifier.decisions (decision_id, decided_at, tenant, namespace, workflow_id, run_id,
    activity_id, ordinal, classifier_id, processor_id, phase, outcome, mode, answers, question_set, gates,
    duration_ms, attempts, failure_code, failure_message, tripwire_reason, thread_id, message_id, provider,
    requested_model, resolved_model, input_tokens, output_tokens, cost, warnings, normalised, metadata,
    refused, reason_text, state_hash, state_length)
SELECT decision_id, decided_at, :tenant, 'default', 'w-' || g, 'r-' || g,
    '1', 0, 'safety-' || g % 4, CASE WHEN g % 2 = 0 THEN 'guard-' || g % 4 END, 'input',
    CASE WHEN g % 50 = 0 THEN 'aborted' ELSE 'allowed' END, 'enforce',
    jsonb_build_object(
        'topic', jsonb_build_object('type', 'choice', 'choice', topic,
            'probabilities', jsonb_build_object('billing', 0.25, 'fraud', 0.25, 'other', 0.5)),
        'unsafe', jsonb_build_object('type', 'boolean', 'probability', unsafe, 'calibrated', true)),
    'q1', '{{}}', 40 + g % 300, 1, CASE WHEN g % 200 = 1 THEN 'MODEL_TIMEOUT' END,
    CASE WHEN g % 200 = 1 THEN '' END, CASE WHEN g % 50 = 0 THEN 'unsafe' END,
    't-' || g % 500, 'm-' || g, 'acme', 'jev', 'jev-2026', 120, 9, 0.0001, '[]', '[]', '{{}}', g % 80 = 3,
    CASE WHEN g % 50 = 0 THEN 'unsafe' WHEN g % 200 = 1 THEN 'model_timeout' END, md5(g::text), 200
FROM ({_MADE}) AS made
"""
_CONTENTS = f"""
INSERT INTO classifier.decision_contents (decision_id, decided_at, tenant, resource_id, state,
    state_is_json, request_context)
SELECT decision_id, decided_at, :tenant, 'person-' || g % 900, repeat('my card "has" not arrived; ', 8),
    false, jsonb_build_object('plan', 'free', 'seat', g)
FROM ({_MADE}) AS made
"""
_ANSWERS = f"""
INSERT INTO classifier.decision_answers (decision_id, decided_at, tenant, question, kind, choice, number)
SELECT decision_id, decided_at, :tenant, 'topic', 'choice', topic, 0.25 FROM ({_MADE}) AS made
UNION ALL
SELECT decision_id, decided_at, :tenant, 'unsafe', 'boolean', NULL, unsafe FROM ({_MADE}) AS made
"""


async def fill(database_url: str, tenant: str, rows: int) -> None:
    """Gives `tenant` so many decisions, a second apart, the newest from now."""
    engine = create_engine(database_url, role="classifier_writer", timeout=120)
    try:
        async with engine.begin() as connection:
            await set_tenant(connection, tenant)
            for statement in (_DECISIONS, _CONTENTS, _ANSWERS):
                await connection.execute(
                    sa.text(statement).bindparams(sa.bindparam("rows", type_=sa.Integer)),
                    {"tenant": tenant, "rows": rows},
                )
    finally:
        await engine.dispose()
