"""`classifier history erase`: a person, in the history and in Temporal, and what is out of reach."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from rich.console import Console
from temporalio.api.common.v1 import WorkflowExecution
from temporalio.api.workflowservice.v1 import DeleteWorkflowExecutionRequest
from temporalio.client import Client, WorkflowExecutionStatus
from temporalio.service import RPCError, RPCStatusCode

from classifier.audit.erasure import Person, Run, erase, look
from classifier.errors import ConfigurationError
from classifier.values import JSON
from commands.show import print_json, say
from worker import Service, Settings, connect, hash_key, opened

Fate: TypeAlias = Literal["deleted", "gone", "open", "out_of_reach"]
"""Of a run in Temporal: deleted now, not there any more, still open, or not reachable from here."""

_AT_ONCE = 20
_OUT_OF_REACH = (
    "what was exported (files of `classifier history export`) and backups of the database",
    "what was delivered: outbox files and the systems behind webhooks",
    "what Temporal keeps of activities without a workflow, until its own retention",
    "what decision models and their providers keep of what they were asked",
)


@dataclass(frozen=True, slots=True)
class Runs:
    """A person's runs in Temporal.

    Attributes:
        fates: What became of each, or would.
        reached: Whether Temporal answered.
    """

    fates: dict[Run, Fate] = field(default_factory=dict[Run, Fate])
    reached: bool = True

    def of(self, fate: Fate) -> list[Run]:
        """The runs that met this fate."""
        return [run for run, met in self.fates.items() if met == fate]

    @property
    def counts(self) -> dict[str, int]:
        """How many met which."""
        return dict(sorted(Counter(self.fates.values()).items()))


async def erase_person(
    settings: Settings, *, tenant: str, resource: str, by: str, dry_run: bool, as_json: bool
) -> None:
    """Deletes their closed runs in Temporal, then erases them in the history; says what is left where.

    Runs go first: they are found by what the history knows, and the record of the erasure counts them.

    Raises:
        ConfigurationError: They are under legal hold, or nobody erases.
    """
    key = hash_key(settings)
    async with opened(settings, temporal=settings.embeds_temporal) as service:
        url = service.database_url
        person = await look(url, hash_key=key, tenant=tenant, resource=resource)
        if not dry_run:
            person.check_holds()
        runs = await _runs(service, person.runs, delete=not dry_run)
        if not dry_run:
            person = await erase(url, hash_key=key, tenant=tenant, resource=resource, by=by, runs=runs.counts)
    if as_json:
        print_json(_json(person, runs, dry_run=dry_run))
    else:
        _say(Console(), person, runs, dry_run=dry_run)


async def _runs(service: Service, runs: Iterable[Run], *, delete: bool) -> Runs:
    found = tuple(run for run in runs if run.namespace)  # else it was decided without Temporal
    client = await _client(service) if found else None
    if client is None:
        return Runs(dict.fromkeys(found, "out_of_reach"), reached=not found)
    slots = asyncio.Semaphore(_AT_ONCE)

    async def fate_of(run: Run) -> Fate:
        async with slots:
            return await _fate(client, run, delete=delete)

    return Runs(dict(zip(found, await asyncio.gather(*map(fate_of, found)), strict=True)))


async def _client(service: Service) -> Client | None:
    if service.temporal is not None:
        return service.temporal
    try:
        return await connect(service.settings, service.addresses)
    except ConfigurationError:
        return None


async def _fate(client: Client, run: Run, *, delete: bool) -> Fate:
    if run.namespace != client.namespace:
        return "out_of_reach"
    handle = client.get_workflow_handle(run.workflow_id, run_id=run.run_id or None)
    try:
        description = await handle.describe()
        if description.status == WorkflowExecutionStatus.RUNNING:
            return "open"
        if delete:
            await client.workflow_service.delete_workflow_execution(
                DeleteWorkflowExecutionRequest(
                    namespace=client.namespace,
                    workflow_execution=WorkflowExecution(
                        workflow_id=run.workflow_id, run_id=description.run_id
                    ),
                )
            )
    except RPCError as error:
        return "gone" if error.status == RPCStatusCode.NOT_FOUND else "out_of_reach"
    return "deleted"


def _say(console: Console, person: Person, runs: Runs, *, dry_run: bool) -> None:
    erased, deleted = ("would be erased", "would be deleted") if dry_run else ("erased", "deleted")
    say(console, f"person {person.subject[:16]}")
    say(console, f"  {person.decisions} decisions stay as facts, without content")
    say(console, f"  contents {erased}: {person.contents}, and {person.quarantined} in quarantine")
    say(console, f"  events {erased} of what people wrote: {person.events}")
    say(console, f"  closed runs {deleted} in Temporal: {len(runs.of('deleted'))}")
    for hold in person.holds:
        say(console, f"  under legal hold {hold.hold_id}: erasure is refused until it is released")
    if runs.of("open"):
        say(console, "still open in Temporal, with what they were given; erase again when they have ended:")
        for run in runs.of("open"):
            say(console, f"  {run.workflow_id} {run.run_id}")
    say(console, "out of reach:")
    for where in _unreached(runs):
        say(console, f"  {where}")


def _unreached(runs: Runs) -> list[str]:
    missed = runs.of("out_of_reach")
    if not missed:
        return list(_OUT_OF_REACH)
    namespaces = ", ".join(sorted({run.namespace for run in missed}))
    why = (
        "Temporal refused or runs there are of another namespace"
        if runs.reached
        else "Temporal does not answer"
    )
    return [f"{len(missed)} runs in Temporal (namespace {namespaces}): {why}", *_OUT_OF_REACH]


def _json(person: Person, runs: Runs, *, dry_run: bool) -> dict[str, JSON]:
    return {
        "dry_run": dry_run,
        "subject": person.subject,
        "decisions": person.decisions,
        "contents": person.contents,
        "quarantined": person.quarantined,
        "events": person.events,
        "holds": [str(hold.hold_id) for hold in person.holds],
        "runs": dict(runs.counts),
        "open_runs": [[run.workflow_id, run.run_id] for run in runs.of("open")],
        "out_of_reach": list(_unreached(runs)),
    }
