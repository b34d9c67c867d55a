"""A history to measure: many tenants of which one holds half, rare answers, long reasons, two months.

PostgreSQL makes the rows itself, as the restricted writer, in the order in which they would have come.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncEngine

from classifier.audit.engine import create_engine

TENANTS = 1000
LARGE = "large"
SMALL = "small-7"
SLICES = 20
AT_ONCE = 2
DAYS = 55

_SLICE = """
DO $made$
DECLARE number int; tenant text; rows int;
BEGIN
  FOR number IN 0 .. {tenants} - 1 LOOP
    tenant := CASE number WHEN 0 THEN 'large' ELSE 'small-' || number END;
    rows := CASE number WHEN 0 THEN {large} ELSE {small} END;
    PERFORM set_config('classifier.tenant', tenant, true);
    WITH counted AS (
      SELECT g, abs(hashint8extended(number * 10000000::bigint + g, 42) % 1000000) AS h
      FROM generate_series({slice} * rows + 1, ({slice} + 1) * rows) AS g
    ), made AS MATERIALIZED (
      SELECT g, h, md5(tenant || g)::uuid AS decision_id,
        now() - interval '{days} days' * (1 - (g - random()) / (rows * {slices})) AS decided_at,
        CASE WHEN h % 10000 = 7 THEN 'fraud' WHEN h % 3 = 0 THEN 'billing' ELSE 'other' END AS topic,
        (h % 100000) / 100000.0 AS unsafe, (h % 401) / 100.0 AS mood,
        h % 50 = 1 AS aborted, h % 2 = 0 AS guarded, h % 200 = 5 AS failed, h % 100 = 9 AS cut
      FROM counted
    ), contents AS (
      INSERT INTO classifier.decision_contents (decision_id, decided_at, tenant, resource_id, state,
        state_is_json, request_context)
      SELECT decision_id, decided_at, tenant, 'person-' || h % 9000, repeat('my card "has" not arrived; ', 8),
        false, jsonb_build_object('plan', 'free', 'seat', g)
      FROM made
    ), answers AS (
      INSERT INTO classifier.decision_answers
        (decision_id, decided_at, tenant, question, kind, choice, number)
      SELECT decision_id, decided_at, tenant, 'topic', 'choice', topic, 0.5 FROM made
      UNION ALL SELECT decision_id, decided_at, tenant, 'unsafe', 'boolean', NULL, unsafe FROM made
      UNION ALL SELECT decision_id, decided_at, tenant, 'mood', 'score', NULL, mood FROM made
    )
    INSERT INTO classifier.decisions (decision_id, decided_at, tenant, namespace, workflow_id, run_id,
      activity_id, ordinal, classifier_id, processor_id, playbook_id, phase, outcome, mode, answers,
      question_set, gates, duration_ms, attempts, failure_code, failure_message, tripwire_reason,
      branch_action, branch_route, branch_reasons, thread_id, message_id, trace_id, provider,
      requested_model, resolved_model, input_tokens, output_tokens, cost, warnings, truncated_from,
      truncated_to, truncated_by, normalised, metadata, refused, reason_text, state_hash, state_length,
      subject)
    SELECT decision_id, decided_at, tenant, 'default', 'w-' || g, 'r-' || g, '1', 0, 'safety-' || h % 4,
      CASE WHEN guarded THEN 'guard-' || h % 4 END, CASE WHEN NOT guarded THEN 'desk' END,
      CASE WHEN guarded THEN 'input' ELSE 'step' END, CASE WHEN aborted THEN 'aborted' ELSE 'allowed' END,
      'enforce',
      jsonb_build_object(
        'topic', jsonb_build_object('type', 'choice', 'choice', topic,
          'probabilities', jsonb_build_object('billing', 0.25, 'fraud', 0.25, 'other', 0.5)),
        'unsafe', jsonb_build_object('type', 'boolean', 'probability', unsafe, 'calibrated', true),
        'mood', jsonb_build_object('type', 'score', 'score', mood)),
      md5(''), '{{}}', 40 + h % 300, 1,
      CASE WHEN failed THEN 'MODEL_TIMEOUT' END, CASE WHEN failed THEN '' END,
      CASE WHEN aborted THEN 'unsafe' END,
      CASE WHEN NOT guarded THEN CASE WHEN h % 20 = 3 THEN 'review' ELSE 'route' END END,
      CASE WHEN NOT guarded THEN topic END, CASE WHEN NOT guarded THEN '[]'::jsonb END,
      't-' || h % 20000, 'm-' || g, md5('trace' || g), 'acme', 'jev',
      CASE WHEN h % 1000 = 0 THEN 'jev-2025' ELSE 'jev-2026' END, 120, 9, 0.0001, '[]',
      CASE WHEN cut THEN 9000 END, CASE WHEN cut THEN 4000 END, CASE WHEN cut THEN 'processor' END,
      '[]', '{{}}', h % 80 = 3,
      CASE WHEN aborted THEN 'unsafe: ' || repeat(md5(g::text) || ' ', 60)
        || CASE WHEN h % 10000 = 1 THEN 'zanzibar' ELSE '' END
        WHEN failed THEN 'model_timeout' END,
      md5(g::text), 200, md5('person-' || h % 9000)
    FROM made;
  END LOOP;
END $made$
"""


async def fill(database_url: str, rows: int, said: Callable[[int], None]) -> None:
    """Makes about `rows` decisions, and tells how many there are after each part."""
    large, small = rows // 2 // SLICES, max(1, rows // 2 // SLICES // (TENANTS - 1))
    engine = create_engine(database_url, role="classifier_writer", timeout=3600, pool_size=AT_ONCE)
    try:
        for index in range(0, SLICES, AT_ONCE):
            await asyncio.gather(
                *(_make_slice(engine, each, large, small) for each in range(index, index + AT_ONCE))
            )
            said((index + AT_ONCE) * (large + small * (TENANTS - 1)))
    finally:
        await engine.dispose()


async def _make_slice(engine: AsyncEngine, index: int, large: int, small: int) -> None:
    statement = _SLICE.format(
        tenants=TENANTS, large=large, small=small, slice=index, slices=SLICES, days=DAYS
    )
    async with engine.begin() as connection:
        await connection.exec_driver_sql(statement)


async def settle(database_url: str) -> None:
    """What autovacuum does in time."""
    engine = create_engine(database_url, role="classifier_owner", timeout=3600)
    async with engine.connect() as connection:
        await connection.execution_options(isolation_level="AUTOCOMMIT")
        for table in ("decisions", "decision_contents", "decision_answers"):
            await connection.execute(sa.text(f"VACUUM (ANALYZE) classifier.{table}"))
    await engine.dispose()
