"""The project's worker: the plugin, and its own workflows loaded once for all runs."""

from __future__ import annotations

from typing import Any

from temporalio.client import Client
from temporalio.worker import Worker

from classifier.app import App
from classifier.audit.store import DecisionStore
from classifier.temporal.plugin import ClassifierPlugin, with_passthrough
from tests.classifier.temporal.project.activities import file_away
from tests.classifier.temporal.project.workflows import (
    Decide,
    GuardChild,
    GuardInTime,
    GuardMessages,
    GuardOneByOne,
    SortLetter,
    SortLong,
    SortMany,
)

WORKFLOWS = [Decide, GuardChild, GuardInTime, GuardMessages, GuardOneByOne, SortLetter, SortLong, SortMany]
ONCE = (file_away.__module__, Decide.__module__)
"""Loaded once for all runs, and not anew for each."""


def worker(client: Client, app: App, store: DecisionStore, queue: str, **options: Any) -> Worker:
    """A worker for the queue; given `SandboxedWorkflowRunner()` it has what the plugin makes, and no more."""
    options.setdefault("workflow_runner", with_passthrough(ONCE)(None))
    return Worker(
        client,
        task_queue=queue,
        workflows=WORKFLOWS,
        activities=[file_away],
        plugins=[ClassifierPlugin(app.resolve({}), store)],
        **options,
    )
