"""`classifier review`: what waits for a person, and the person's choice."""

from __future__ import annotations

from datetime import UTC, datetime

from rich.console import Console
from temporalio.client import WorkflowUpdateFailedError
from temporalio.exceptions import ApplicationError
from temporalio.service import RPCError, RPCStatusCode

from classifier.audit.history import History
from classifier.audit.query import Position
from classifier.decision import Decision
from classifier.decision_json import decision_to_json
from classifier.errors import ConfigurationError
from classifier.values import JSON, as_text
from commands.look import became, identity, shortened
from commands.show import print_json, program, say, table
from commands.working import a_worker
from worker import Service, Settings, app_of, opened
from workflows.messages import REVIEW, ReviewChoice, TriageStatus

_PAGE = 200


async def list_reviews(
    settings: Settings, *, tenant: str, playbook: str | None, limit: int, as_json: bool
) -> None:
    """Events that wait, oldest first."""
    async with opened(settings, temporal=False) as service, History(service.database_url) as history:
        waiting = await _waiting(history, tenant, playbook, limit)
    if as_json:
        decisions: list[JSON] = [decision_to_json(decision) for decision in waiting]
        print_json({"waiting": decisions})
        return
    console = Console()
    now = datetime.now(UTC)
    rows = [
        (str(decision.decision_id), _age(decision, now), shortened(as_text(decision.state)), became(decision))
        for decision in waiting
    ]
    console.print(table("Waiting for a person, oldest first", ["decision", "#waits", "text", "why"], rows))
    if waiting:
        example = f"{program()} review decide {waiting[0].decision_id} --route ROUTE --by NAME"
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
) -> None:
    """Sends a person's choice to the run that waits, and says where the event went.

    Raises:
        ConfigurationError: There is no such decision, its run does not wait, or there is no such route.
    """
    async with (
        opened(settings) as service,
        History(service.database_url) as history,
        a_worker(service, app_of(settings)),
    ):
        decision = await history.get(tenant, identity(decision_id))
        if decision is None:
            raise ConfigurationError(f"tenant {tenant!r} has no decision {decision_id}")
        status = await _choose(service, decision, ReviewChoice(route, by, reason))
    if as_json:
        print_json({"decision_id": decision_id, "route": status.route, "state": status.state, "by": by})
        return
    where = status.destination or f"not yet delivered: {', '.join(status.reasons)}"
    say(Console(), f"{decision_id} → {status.route} ({where}), decided by {by}")


async def _choose(service: Service, decision: Decision, choice: ReviewChoice) -> TriageStatus:
    at = decision.coordinates
    handle = service.client.get_workflow_handle(at.workflow_id, run_id=at.run_id)
    try:
        status: TriageStatus = await handle.execute_update(REVIEW, choice, result_type=TriageStatus)  # pyright: ignore[reportUnknownMemberType] - an overload of the SDK is untyped
    except WorkflowUpdateFailedError as error:
        cause = error.cause
        message = cause.message if isinstance(cause, ApplicationError) else "the run did not take the choice"
        raise ConfigurationError(message) from error
    except RPCError as error:
        if error.status == RPCStatusCode.NOT_FOUND:
            raise ConfigurationError(
                f"the run of decision {decision.decision_id} has ended; nothing waits"
            ) from error
        raise
    return status


async def _waiting(history: History, tenant: str, playbook: str | None, limit: int) -> list[Decision]:
    found: list[Decision] = []
    after: Position | None = None
    while len(found) < limit:
        page = await history.open_reviews(tenant, _PAGE, after)
        found += [decision for decision in page if playbook in {None, decision.playbook_id}]
        if len(page) < _PAGE:
            break
        after = Position(page[-1].decided_at, page[-1].decision_id)
    return found[:limit]


def _age(decision: Decision, now: datetime) -> str:
    seconds = int((now - decision.decided_at).total_seconds())
    for unit, size in (("d", 86_400), ("h", 3_600), ("m", 60)):
        if seconds >= size:
            return f"{seconds // size}{unit}"
    return f"{max(seconds, 0)}s"
