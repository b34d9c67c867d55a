"""`classifier history reconcile`: what terminated runs had decided, out of Temporal's histories."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from rich.console import Console
from temporalio.api.common.v1 import Payload
from temporalio.client import WorkflowExecution

from activities.chat_messages import CHAT, PUBLISH, RECORDS
from classifier.temporal.reconcile import Carriers, Reconciled, Reconciler, pending_of
from classifier.values import JSON
from commands.reading import grouped
from commands.show import print_json, progress, say, table
from worker import Settings, opened
from workflows.messages import TRIAGE

_AT_ONCE = 20


def _published(batch: Any) -> Iterator[Mapping[str, Any]]:
    """The decisions in a batch that a model call published to its thread."""
    for entry in batch["items"]:
        if entry["topic"] == RECORDS:
            yield from json.loads(Payload.FromString(base64.b64decode(entry["data"])).data)


def _tenant_of(request: Any) -> str:
    return str(request["tenant"])


CARRIERS = Carriers(results={CHAT: pending_of}, signals={PUBLISH: _published}, stops={TRIAGE: _tenant_of})
"""Model calls of agents: decisions on what they streamed go with the batch, or with the result. And triage
runs, which people wait for."""


@dataclass(slots=True)
class Summary:
    """What was found in all runs.

    Attributes:
        runs: How many were looked at.
        found: Decisions that they held as not yet recorded.
        recovered: Those that the store did not have, with their run.
        lost: Failures that were not recorded.
        stopped: Runs whose end was not on record.
        problems: Runs that could not be reconciled.
    """

    runs: int = 0
    found: int = 0
    recovered: list[Reconciled] = field(default_factory=list[Reconciled])
    lost: int = 0
    stopped: list[Reconciled] = field(default_factory=list[Reconciled])
    problems: list[Reconciled] = field(default_factory=list[Reconciled])

    def add(self, one: Reconciled) -> None:
        """Counts a run."""
        self.runs += 1
        self.found += one.found
        self.lost += one.lost
        if one.missing:
            self.recovered.append(one)
        if one.stopped:
            self.stopped.append(one)
        if one.problem is not None:
            self.problems.append(one)

    @property
    def count(self) -> int:
        """How many decisions were recovered, or would be."""
        return sum(len(one.missing) for one in self.recovered)


async def reconcile(settings: Settings, *, since: datetime | None, dry_run: bool, as_json: bool) -> bool:
    """Stores what runs that ended early left in their histories; whether all of them could be read."""
    console = Console(stderr=True)
    summary = Summary()
    async with opened(settings) as service:
        reconciler = Reconciler(
            service.client, service.store, CARRIERS, events=service.store, dry_run=dry_run
        )
        total = await reconciler.count(since)
        with progress(console, total, what="runs") as shown:
            async for runs in grouped(reconciler.runs(since), _AT_ONCE):
                for one in await asyncio.gather(*(_reconciled(reconciler, run) for run in runs)):
                    summary.add(one)
                shown.advance(len(runs))
    if as_json:
        print_json(_as_json(summary, since, dry_run=dry_run))
    else:
        _show(Console(), summary, dry_run=dry_run)
    return not summary.problems


async def _reconciled(reconciler: Reconciler, run: WorkflowExecution) -> Reconciled:
    return await reconciler.reconcile(run.id, run.run_id)


def _show(console: Console, summary: Summary, *, dry_run: bool) -> None:
    become = "are missing" if dry_run else "were missing and are stored now"
    say(
        console,
        f"{summary.runs} runs that ended early held {summary.found} decisions; {summary.count} {become}",
    )
    if summary.recovered:
        rows = [
            (one.workflow_id, one.run_id, "\n".join(str(each) for each in one.missing))
            for one in summary.recovered
        ]
        console.print(table("Missing" if dry_run else "Recovered", ["workflow", "run", "decisions"], rows))
    if summary.lost:
        say(
            console,
            f"{summary.lost} calls had failed for good, and their runs ended before that was recorded; "
            "nothing was decided in them",
        )
    if summary.stopped:
        become = "is to be recorded" if dry_run else "is on record now"
        say(console, f"{len(summary.stopped)} triage runs were ended; that nobody waits for them {become}")
    for one in summary.problems:
        say(console, f"cannot be read ({one.problem}): {one.workflow_id} {one.run_id}")


def _as_json(summary: Summary, since: datetime | None, *, dry_run: bool) -> dict[str, JSON]:
    return {
        "dry_run": dry_run,
        "since": None if since is None else since.isoformat(),
        "runs": summary.runs,
        "found": summary.found,
        "recovered": summary.count,
        "lost": summary.lost,
        "stopped": [{"workflow_id": one.workflow_id, "run_id": one.run_id} for one in summary.stopped],
        "decisions": [
            {"decision_id": str(each), "workflow_id": one.workflow_id, "run_id": one.run_id}
            for one in summary.recovered
            for each in one.missing
        ],
        "problems": [
            {"workflow_id": one.workflow_id, "run_id": one.run_id, "code": one.problem}
            for one in summary.problems
        ],
    }
