"""Timeouts and retries of every activity the workflows run, named once. Pure."""

from __future__ import annotations

from datetime import timedelta

from temporalio.common import RetryPolicy

DELIVERY_ATTEMPT = timedelta(minutes=5)
"""Longer than a webhook may take and the store may be away meanwhile."""
DELIVERY_SILENCE = timedelta(seconds=10)
"""A worker that says nothing for so long is taken for dead."""
DELIVERY_OVERALL = timedelta(hours=24)
DELIVERY_RETRY = RetryPolicy(
    initial_interval=timedelta(seconds=1), backoff_coefficient=2, maximum_interval=timedelta(minutes=5)
)

RECORD_ATTEMPT = timedelta(seconds=30)
RECORD_RETRY = RetryPolicy(
    initial_interval=timedelta(seconds=1), backoff_coefficient=2, maximum_interval=timedelta(minutes=1)
)
