"""`classifier deadletters`: events that could not be handled, and what is to become of them."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
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

from activities.dead_letter_messages import Answer
from classifier.audit.dead_letters import DeadLetter, DeadLetterQuery, DeadLetters
from classifier.audit.history import History
from classifier.audit.query import Position
from classifier.audit.records import HistoryEvent, event_id_of
from classifier.errors import ConfigurationError
from classifier.values import JSON
from commands.look import brief, event_json, time_of
from commands.show import counted, print_json, program, progress, say, table
from commands.triage import Progress
from commands.working import a_worker
from worker import Service, Settings, app_of, opened
from workflows.dead_letters import DROP, REPLAY, DeadLetterOrder
from workflows.messages import TriageStatus

_PAGE = 500
_AT_ONCE = 20
PATIENCE = timedelta(seconds=15)
"""How long a run may take to accept an order, and again to say what came of it."""

_UPDATES: dict[Answer, str] = {"replay": REPLAY, "drop": DROP}
UNDER_WAY = "under way"
FAILED = "failed"
"""Outcomes besides the states that a run says it is in."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """Which dead letters an order is about.

    Attributes:
        query: Which ones; its tenant's.
        runs: By their runs, instead.
    """

    query: DeadLetterQuery
    runs: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of one dead letter.

    Attributes:
        run: The run that keeps or kept it.
        state: Where the event stands now, `UNDER_WAY`, or `FAILED` where the order was not carried out.
        detail: Where it went, or why it did not.
    """

    run: str
    state: str
    detail: str

    @property
    def is_well(self) -> bool:
        """Whether it is no dead letter any more, or nobody knows yet."""
        return self.state not in {FAILED, "dead_letter"}


def everything_of(tenant: str) -> DeadLetterQuery:
    """All dead letters of a tenant."""
    return DeadLetterQuery(tenant=tenant)


async def list_letters(settings: Settings, query: DeadLetterQuery, *, limit: int, as_json: bool) -> None:
    """Open dead letters, oldest first."""
    async with opened(settings, temporal=False) as service, DeadLetters(service.database_url) as letters:
        found = await letters.page(query, limit)
        total = await letters.count(query)
    if as_json:
        print_json({"total": total, "dead_letters": [_as_json(one) for one in found]})
        return
    console = Console()
    rows = [(one.workflow_id, time_of(one.since), _place(one), _why(one), one.event) for one in found]
    title = "Dead letters, oldest first" + (f": {len(rows)} of {total}" if total > len(rows) else "")
    console.print(table(title, ["=run", "since", "what failed", "why", "event"], rows))
    if found:
        say(console, f"\nonce mended: {program()} deadletters replay {found[0].workflow_id} --by NAME")


async def show_letter(settings: Settings, run: str, *, tenant: str, as_json: bool) -> None:
    """One dead letter, and all that happened to its run.

    Raises:
        ConfigurationError: This run keeps none.
    """
    async with (
        opened(settings, temporal=False) as service,
        DeadLetters(service.database_url) as letters,
        History(service.database_url) as history,
    ):
        letter = await _found(letters, tenant, run)
        events = await history.events(tenant, run)
    if as_json:
        followed: list[JSON] = [event_json(event) for event in events]
        print_json({**_as_json(letter), "events": followed})
        return
    console = Console()
    facts = {name: "-" if value is None else str(value) for name, value in _as_json(letter).items()}
    console.print(table(f"Dead letter of {run}", ["", ""], list(facts.items())))
    rows = [(time_of(event.at), event.kind, event.actor or "", brief(event.body)) for event in events]
    console.print(table("What happened", ["at", "what", "by", "facts"], rows))
    if letter.decision_id is not None:
        say(console, f"\nwhat was decided: {program()} history show {letter.decision_id}")


async def answer_letters(
    settings: Settings,
    answer: Answer,
    wanted: Wanted,
    order: DeadLetterOrder,
    *,
    dry_run: bool,
    as_json: bool,
    console: Console,
    patience: timedelta = PATIENCE,
) -> bool:
    """Replays or drops, many at a time; whether each is no dead letter any more.

    Raises:
        ConfigurationError: A run that was named keeps no dead letter.
    """
    async with opened(settings) as service, DeadLetters(service.database_url) as letters:
        chosen = await _chosen(letters, wanted)
        if dry_run:
            _print_chosen(answer, chosen, as_json=as_json)
            return True
        outcomes: list[Outcome] = []
        if chosen:
            async with a_worker(service, app_of(settings)):
                with progress(console, len(chosen), what="dead letters") as shown:
                    outcomes = await _all_answered(
                        service, answer, chosen, order, patience=patience, shown=shown
                    )
    _print_outcomes(answer, outcomes, as_json=as_json)
    return all(outcome.is_well for outcome in outcomes)


async def _chosen(letters: DeadLetters, wanted: Wanted) -> list[DeadLetter]:
    """All of them before the first is answered: what comes back meanwhile is not answered again."""
    if wanted.runs:
        return [await _found(letters, wanted.query.tenant, run) for run in dict.fromkeys(wanted.runs)]
    found: dict[str, DeadLetter] = {}  # one that somebody else replays meanwhile may come twice
    after: Position | None = None
    while page := await letters.page(wanted.query, _PAGE, after):
        found |= {one.workflow_id: one for one in page}
        after = page[-1].position
    return list(found.values())


async def _found(letters: DeadLetters, tenant: str, run: str) -> DeadLetter:
    letter = await letters.find(tenant, run)
    if letter is None:
        raise ConfigurationError(
            f"tenant {tenant!r} has no dead letter {run}; see `{program()} deadletters list`"
        )
    return letter


async def _all_answered(
    service: Service,
    answer: Answer,
    chosen: Sequence[DeadLetter],
    order: DeadLetterOrder,
    *,
    patience: timedelta,
    shown: Progress,
) -> list[Outcome]:
    free = asyncio.Semaphore(_AT_ONCE)

    async def one(letter: DeadLetter) -> Outcome:
        async with free:
            outcome = await _answered(service, answer, letter, order, patience)
        shown.advance(1)
        return outcome

    return list(await asyncio.gather(*(one(letter) for letter in chosen)))


async def _answered(
    service: Service, answer: Answer, letter: DeadLetter, order: DeadLetterOrder, patience: timedelta
) -> Outcome:
    run = letter.workflow_id
    handle = service.client.get_workflow_handle(run, run_id=letter.run_id)
    try:
        update: WorkflowUpdateHandle[TriageStatus] = await handle.start_update(  # pyright: ignore[reportUnknownMemberType] - an overload of the SDK is untyped
            _UPDATES[answer],
            order,
            wait_for_stage=WorkflowUpdateStage.ACCEPTED,
            result_type=TriageStatus,
            rpc_timeout=patience,
        )
        async with asyncio.timeout(patience.total_seconds()):
            return _outcome(run, await update.result())
    except TimeoutError:
        return Outcome(run, UNDER_WAY, f"see `{program()} deadletters list` later")
    except WorkflowUpdateFailedError as error:
        cause = error.cause
        return Outcome(run, FAILED, cause.message if isinstance(cause, ApplicationError) else "not taken")
    except WorkflowUpdateRPCTimeoutOrCancelledError:
        queue = service.settings.task_queue
        return Outcome(run, FAILED, f"no worker on the queue {queue!r} took it in time")
    except RPCError as error:
        if error.status != RPCStatusCode.NOT_FOUND:
            raise
        return await _of_ended(service, answer, letter, order)


async def _of_ended(service: Service, answer: Answer, letter: DeadLetter, order: DeadLetterOrder) -> Outcome:
    """A run that somebody terminated cannot be replayed any more; dropping takes it off the list."""
    if answer == "replay":
        return Outcome(letter.workflow_id, FAILED, "its run has ended; send the event anew, or drop it")
    event = HistoryEvent(
        event_id=event_id_of(letter.tenant, answer, letter.workflow_id, letter.run_id, str(letter.event_id)),
        at=max(datetime.now(UTC), letter.since),
        tenant=letter.tenant,
        kind=answer,
        workflow_id=letter.workflow_id,
        run_id=letter.run_id,
        decision_id=letter.decision_id,
        actor=order.by,
        body={"stage": letter.stage, "code": letter.code, "reason": order.reason},
    )
    await service.store.record_events([event])
    return Outcome(letter.workflow_id, "dropped", "its run had ended")


def _outcome(run: str, status: TriageStatus) -> Outcome:
    return Outcome(run, status.state, status.destination or ", ".join(status.reasons))


def _print_chosen(answer: Answer, chosen: Sequence[DeadLetter], *, as_json: bool) -> None:
    if as_json:
        print_json({"dry_run": True, "answer": answer, "dead_letters": [_as_json(one) for one in chosen]})
        return
    say(Console(), f"would {answer} {len(chosen)} dead letters")
    if chosen:
        Console().print(
            counted("By what failed and why", "what", Counter(f"{_place(c)} {_why(c)}" for c in chosen))
        )


def _print_outcomes(answer: Answer, outcomes: Sequence[Outcome], *, as_json: bool) -> None:
    if as_json:
        listed: list[JSON] = [{"run": o.run, "state": o.state, "detail": o.detail} for o in outcomes]
        print_json({"answer": answer, "outcomes": listed})
        return
    console = Console()
    if len(outcomes) == 1:
        (only,) = outcomes
        say(console, f"{only.run}: {only.state}" + (f" ({only.detail})" if only.detail else ""))
        return
    if not outcomes:
        say(console, "no dead letters")
        return
    console.print(counted("What became of them", "now", Counter(outcome.state for outcome in outcomes)))
    rows = [(outcome.run, outcome.state, outcome.detail) for outcome in outcomes if not outcome.is_well]
    if rows:
        console.print(table("Still dead letters", ["=run", "state", "why"], rows))


def _place(letter: DeadLetter) -> str:
    where = f" → {letter.route}" if letter.stage == "deliver" and letter.route else ""
    return f"{letter.stage} {letter.playbook}{where}"


def _why(letter: DeadLetter) -> str:
    status = "" if letter.status is None else f" {letter.status}"
    tries = "" if letter.attempts in {None, 1} else f", {letter.attempts} attempts"
    return f"{letter.code}{status}{tries}"


def _as_json(letter: DeadLetter) -> dict[str, JSON]:
    return {
        "run": letter.workflow_id,
        "run_id": letter.run_id,
        "since": letter.since.isoformat(),
        "stage": letter.stage,
        "code": letter.code,
        "status": letter.status,
        "attempts": letter.attempts,
        "playbook": letter.playbook,
        "route": letter.route,
        "decided_by": letter.decided_by,
        "decision_id": None if letter.decision_id is None else str(letter.decision_id),
        "source": letter.source,
        "event": letter.event,
        "type": letter.type,
    }
