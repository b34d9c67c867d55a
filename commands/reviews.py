"""`classifier review`: what waits for a person, and the person's choice."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

from rich.console import Console
from temporalio.client import (
    WorkflowUpdateFailedError,
    WorkflowUpdateHandle,
    WorkflowUpdateRPCTimeoutOrCancelledError,
    WorkflowUpdateStage,
)
from temporalio.exceptions import ApplicationError
from temporalio.service import RPCError, RPCStatusCode

from classifier.audit.history import History
from classifier.audit.query import Position
from classifier.audit.waiting import OpenReview
from classifier.decision import Branch, Decision
from classifier.decision_json import decision_to_json
from classifier.errors import ConfigurationError
from classifier.values import JSON, as_text
from commands.look import became, identity, shortened
from commands.show import print_json, program, say, table
from commands.working import a_worker
from worker import Service, Settings, app_of, opened
from workflows.messages import REVIEW, ReviewChoice, TriageStatus

_PAGE = 200
PATIENCE = timedelta(seconds=15)
"""How long a run may take to accept a choice; delivering it takes as long as it takes."""


async def list_reviews(
    settings: Settings, *, tenant: str, playbook: str | None, limit: int, as_json: bool
) -> None:
    """Events that wait, oldest first."""
    async with opened(settings, temporal=False) as service, History(service.database_url) as history:
        waiting = await _waiting(history, tenant, playbook, limit)
    if as_json:
        listed: list[JSON] = [_as_json(one) for one in waiting]
        print_json({"waiting": listed})
        return
    console = Console()
    now = datetime.now(UTC)
    rows = [_row(one, now) for one in waiting]
    console.print(table("Waiting for a person, oldest first", ["=decision", "#waits", "text", "why"], rows))
    if waiting:
        example = f"{program()} review decide {waiting[0].decision.decision_id} --route ROUTE --by NAME"
        say(console, f"\ndecide: {example}")


async def decide_review(
    settings: Settings,
    decision_id: str,
    *,
    tenant: str,
    route: str,
    by: str,
    reason: str | None,
    as_json: bool,
    patience: timedelta = PATIENCE,
) -> None:
    """Sends a person's choice to the run that waits, and says where the event went.

    Raises:
        ConfigurationError: There is no such decision, its run does not wait, there is no such route, or no
            worker took the choice within `patience`.
    """
    async with (
        opened(settings) as service,
        History(service.database_url) as history,
        a_worker(service, app_of(settings)),
    ):
        decision = await history.get(tenant, identity(decision_id))
        if decision is None:
            raise ConfigurationError(f"tenant {tenant!r} has no decision {decision_id}")
        status = await _choose(service, decision, ReviewChoice(route, by, reason), patience)
    if as_json:
        print_json({"decision_id": decision_id, "route": status.route, "state": status.state, "by": by})
        return
    where = status.destination or f"not yet delivered: {', '.join(status.reasons)}"
    say(Console(), f"{decision_id} → {status.route} ({where}), decided by {by}")


async def _choose(
    service: Service, decision: Decision, choice: ReviewChoice, patience: timedelta
) -> TriageStatus:
    at = decision.coordinates
    handle = service.client.get_workflow_handle(at.workflow_id, run_id=at.run_id)
    try:
        update: WorkflowUpdateHandle[TriageStatus] = await handle.start_update(  # pyright: ignore[reportUnknownMemberType] - an overload of the SDK is untyped
            REVIEW,
            choice,
            wait_for_stage=WorkflowUpdateStage.ACCEPTED,
            result_type=TriageStatus,
            rpc_timeout=patience,
        )
        return await update.result()
    except WorkflowUpdateFailedError as error:
        cause = error.cause
        message = cause.message if isinstance(cause, ApplicationError) else "the run did not take the choice"
        raise ConfigurationError(message) from error
    except WorkflowUpdateRPCTimeoutOrCancelledError as error:
        raise ConfigurationError(
            f"no worker on the queue {service.settings.task_queue!r} took the choice in "
            f"{patience.total_seconds():.0f} s; start one with `{program()} worker`, "
            f"then see with `{program()} review list` whether the event still waits"
        ) from error
    except RPCError as error:
        if error.status == RPCStatusCode.NOT_FOUND:
            raise ConfigurationError(
                f"the run of decision {decision.decision_id} has ended; nothing waits"
            ) from error
        raise


async def _waiting(history: History, tenant: str, playbook: str | None, limit: int) -> list[OpenReview]:
    found: list[OpenReview] = []
    after: Position | None = None
    while len(found) < limit:
        page = await history.open_reviews(tenant, _PAGE, after)
        found += [one for one in page if playbook in {None, one.decision.playbook_id}]
        if len(page) < _PAGE:
            break
        after = page[-1].position
    return found[:limit]


def _as_json(one: OpenReview) -> JSON:
    waits: dict[str, JSON] = {
        "since": one.since.isoformat(),
        "route": one.route,
        "reasons": list(one.reasons),
    }
    return {**decision_to_json(one.decision), "review": waits}


def _row(one: OpenReview, now: datetime) -> tuple[str, ...]:
    decision = one.decision
    why = replace(decision, branch=Branch("review", one.route, one.reasons))
    return str(decision.decision_id), _age(one.since, now), shortened(as_text(decision.state)), became(why)


def _age(since: datetime, now: datetime) -> str:
    seconds = int((now - since).total_seconds())
    for unit, size in (("d", 86_400), ("h", 3_600), ("m", 60)):
        if seconds >= size:
            return f"{seconds // size}{unit}"
    return f"{max(seconds, 0)}s"
