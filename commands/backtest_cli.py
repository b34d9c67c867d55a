"""`classifier history`, continued: the commands that look at decisions again."""

from __future__ import annotations

from typing import Annotated

import typer

from commands.arguments import AppOption, DryRun, Json, Tenant, run, settings_of
from commands.filters import Filters, filtered

app = typer.Typer(no_args_is_help=True, help="Looking again.")


@app.command("backtest", epilog="Example: classifier history backtest shop.guards:safety --since 30d")
@filtered
def backtest(
    context: typer.Context,
    filters: Filters,
    policy: Annotated[
        str,
        typer.Argument(
            help="A processor or playbook as module:name, or the id of one that the app registers."
        ),
    ],
    tenant: Tenant = "default",
    app_name: AppOption = None,
    json: Json = False,
) -> None:
    """Run a policy over stored answers: what would become of old decisions today. No model is asked.

    Looks at the decisions of that processor or playbook; --processor, --playbook or --classifier take those
    of another.
    """
    from commands import backtesting

    settings = settings_of(context, app=app_name)
    run(backtesting.backtest(settings, policy, filters.query(tenant), as_json=json))


@app.command(
    "label",
    epilog="Example: classifier history label 6d8f0b1c-2f6e-5b8e-9a51-6f6d2f1f7c11 --question urgent "
    "--answer true --by Zoë",
)
def label(
    context: typer.Context,
    decision_id: Annotated[str, typer.Argument(help="The id of a decision, as `history list` prints it.")],
    question: Annotated[str, typer.Option(help="Which of its questions.")],
    answer: Annotated[str, typer.Option(help="true or false, an option, or a position on the levels.")],
    by: Annotated[str, typer.Option(help="Who says so; stays on the record.")],
    reason: Annotated[str | None, typer.Option(help="Why; erasable.")] = None,
    tenant: Tenant = "default",
    json: Json = False,
) -> None:
    """Say what an answer should have been. The last word counts; nothing is decided anew.

    `history stats --calibration` measures answers by it, `history export --labelled` makes examples of it.
    """
    from commands import labelling

    labelled = labelling.label(
        settings_of(context),
        decision_id,
        question=question,
        answer=answer,
        tenant=tenant,
        by=by,
        reason=reason,
        as_json=json,
    )
    run(labelled)


@app.command("reconcile", epilog="Example: classifier history reconcile --since 2d --dry-run")
def reconcile(
    context: typer.Context,
    since: Annotated[
        str | None,
        typer.Option(help="Runs that ended since: a time, or an age such as 2d. Default: all there are."),
    ] = None,
    dry_run: DryRun = False,
    json: Json = False,
) -> None:
    """Recover what runs had decided that were terminated before it could be stored.

    Looks through Temporal's histories of runs that were terminated, timed out or failed, of all tenants. Safe
    to repeat. Exit code 1 says that some could not be read.
    """
    from commands import reconciling
    from commands.filters import moment

    reconciled = reconciling.reconcile(
        settings_of(context),
        since=None if since is None else moment(since),
        dry_run=dry_run,
        as_json=json,
    )
    if not run(reconciled):
        raise typer.Exit(1)
