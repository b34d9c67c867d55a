"""`classifier deadletters`: events that could not be handled."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal

import typer
from rich.console import Console

from commands.arguments import AppOption, DryRun, Json, Limit, Tenant, run, settings_of
from commands.filters import moment

if TYPE_CHECKING:
    from activities.dead_letter_messages import Answer
    from classifier.audit.dead_letters import DeadLetterQuery

STILL_DEAD = 3
"""Exit code where a dead letter is one still: 1 is a failure, 2 a wrong command line."""

app = typer.Typer(
    no_args_is_help=True,
    help="Events that could not be handled: their runs keep them until somebody replays or drops them.",
)

Stage = Literal["decide", "deliver"]
Runs = Annotated[list[str] | None, typer.Argument(help="The runs that `deadletters list` prints.")]
Everyone = Annotated[bool, typer.Option("--all", help="All that the options ask for.")]
By = Annotated[str, typer.Option(help="Who says so; stays on the record.")]
Reason = Annotated[str | None, typer.Option(help="Why; stays on the record.")]
OnlyPlaybook = Annotated[str | None, typer.Option("--playbook", help="Only this playbook.")]
OnlyStage = Annotated[
    Stage | None, typer.Option("--stage", help="Only what was not decided, or not delivered.")
]
OnlyCode = Annotated[str | None, typer.Option("--code", help="Only with this reason: DELIVERY_REJECTED.")]
Since = Annotated[str | None, typer.Option(help="2026-11-02T08:00:00Z, or an age: 12h old at most.")]
Until = Annotated[str | None, typer.Option(help="As --since: 12h old or older.")]


@app.command("list", epilog="Example: classifier deadletters list --stage deliver --until 1h")
def list_all(
    context: typer.Context,
    playbook: OnlyPlaybook = None,
    stage: OnlyStage = None,
    code: OnlyCode = None,
    since: Since = None,
    until: Until = None,
    limit: Limit = 50,
    tenant: Tenant = "default",
    json: Json = False,
) -> None:
    """List events that could not be handled, oldest first, with what failed and why."""
    from commands import dead_letters

    query = _query(tenant, playbook, stage, code, since, until)
    run(dead_letters.list_letters(settings_of(context), query, limit=limit, as_json=json))


@app.command("show", epilog="Example: classifier deadletters show triage-0d5f6c7a1b2c3d4e5f60718293a4b5c6")
def show(
    context: typer.Context,
    run_name: Annotated[str, typer.Argument(metavar="RUN", help="The run that `deadletters list` prints.")],
    tenant: Tenant = "default",
    json: Json = False,
) -> None:
    """Show one, with everything that happened to its run."""
    from commands import dead_letters

    run(dead_letters.show_letter(settings_of(context), run_name, tenant=tenant, as_json=json))


@app.command(
    "replay", epilog="Example: classifier deadletters replay --all --code DELIVERY_REJECTED --by Ada"
)
def replay(
    context: typer.Context,
    by: By,
    runs: Runs = None,
    everyone: Everyone = False,
    reason: Reason = None,
    playbook: OnlyPlaybook = None,
    stage: OnlyStage = None,
    code: OnlyCode = None,
    since: Since = None,
    until: Until = None,
    dry_run: DryRun = False,
    tenant: Tenant = "default",
    app_name: AppOption = None,
    json: Json = False,
) -> None:
    """Try again what failed, once its cause is mended.

    A delivery goes out under the same idempotency key as before; a decision is made anew. Exit code 3 says
    that some came to nothing again.
    """
    query = _query(tenant, playbook, stage, code, since, until)
    _answer(
        context,
        "replay",
        runs,
        query,
        by=by,
        reason=reason,
        everyone=everyone,
        dry_run=dry_run,
        app_name=app_name,
        json=json,
    )


@app.command(
    "drop", epilog="Example: classifier deadletters drop --all --until 30d --by Ada --reason outdated"
)
def drop(
    context: typer.Context,
    by: By,
    runs: Runs = None,
    everyone: Everyone = False,
    reason: Reason = None,
    playbook: OnlyPlaybook = None,
    stage: OnlyStage = None,
    code: OnlyCode = None,
    since: Since = None,
    until: Until = None,
    dry_run: DryRun = False,
    tenant: Tenant = "default",
    app_name: AppOption = None,
    json: Json = False,
) -> None:
    """Give events up: their runs end, nothing is delivered, and the record says who and why.

    The events stay known: sent again, they start nothing.
    """
    query = _query(tenant, playbook, stage, code, since, until)
    _answer(
        context,
        "drop",
        runs,
        query,
        by=by,
        reason=reason,
        everyone=everyone,
        dry_run=dry_run,
        app_name=app_name,
        json=json,
    )


def _query(
    tenant: str,
    playbook: str | None,
    stage: Stage | None,
    code: str | None,
    since: str | None,
    until: str | None,
) -> DeadLetterQuery:
    from classifier.audit.dead_letters import DeadLetterQuery

    return DeadLetterQuery(
        tenant=tenant,
        playbook=playbook,
        stage=stage,
        code=code,
        since=None if since is None else moment(since),
        until=None if until is None else moment(until),
    )


def _answer(
    context: typer.Context,
    answer: Answer,
    runs: list[str] | None,
    query: DeadLetterQuery,
    *,
    by: str,
    reason: str | None,
    everyone: bool,
    dry_run: bool,
    app_name: str | None,
    json: bool,
) -> None:
    from commands import dead_letters
    from workflows.dead_letters import DeadLetterOrder

    if bool(runs) == everyone:
        raise typer.BadParameter("name runs, or give --all; not both")
    if runs and query != dead_letters.everything_of(query.tenant):
        raise typer.BadParameter("what narrows them down goes with --all, not with named runs")
    if not by.strip():
        raise typer.BadParameter("--by says who it is, for the record")
    done = dead_letters.answer_letters(
        settings_of(context, app=app_name),
        answer,
        dead_letters.Wanted(query, runs or ()),
        DeadLetterOrder(by, reason),
        dry_run=dry_run,
        as_json=json,
        console=Console(stderr=True),
    )
    if not run(done):
        raise typer.Exit(STILL_DEAD)
