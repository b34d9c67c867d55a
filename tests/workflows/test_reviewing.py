"""A choice where nobody can take it: `review decide` gives up, although Temporal still knows a worker."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest
from temporalio.client import Client
from temporalio.envconfig import ClientConnectConfig

from classifier.audit.history import History
from classifier.audit.postgres import PostgresStore
from classifier.errors import ConfigurationError
from commands.reviews import decide_review
from tests.workflows.test_triage import KEY, waiting
from tests.workflows.tickets import always, app, event, says, start, triaging
from worker import Settings


async def test_a_choice_that_no_worker_takes_in_time_is_one_sentence(
    client: Client, queue: str, tmp_path: Path, database_url: str, temporal_address: str
) -> None:
    """Temporal lists a worker for five minutes after it last asked for work."""
    store = PostgresStore(database_url, hash_key=KEY)
    async with triaging(client, app(always(says("billing", 0.6))), store, queue, tmp_path):
        handle = await start(client, queue, event("1"))
        await waiting(handle)
    await store.aclose()
    async with History(database_url) as history:
        (one,) = await history.open_reviews("acme")
    settings = Settings(
        home=tmp_path,
        app="tests.apps.remote:app",
        task_queue=queue,
        temporal=ClientConnectConfig(target_host=temporal_address),
        database_url=database_url,
        hash_key=KEY,
    )
    with pytest.raises(ConfigurationError) as refused:
        await decide_review(
            settings,
            str(one.decision.decision_id),
            tenant="acme",
            route="billing",
            by="kim",
            reason=None,
            as_json=True,
            patience=timedelta(seconds=1),
        )
    await handle.terminate()
    assert str(refused.value) == (
        f"no worker on the queue {queue!r} took the choice in 1 s; start one with `classifier worker`, "
        "then see with `classifier review list` whether the event still waits"
    )
