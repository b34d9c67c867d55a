"""`classifier history`: what was decided, and why."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from commands.arguments import Json, Limit, Tenant, run, settings_of

app = typer.Typer(no_args_is_help=True, help="What was decided, and why.")


@app.command("list", epilog="Example: classifier history list --where 'department = security' --since 7d")
def list_all(
    context: typer.Context,
    where: Annotated[
        list[str] | None,
        typer.Option(
            "--where",
            help="A condition on an answer: 'department = security', 'injection >= 0.5'. Repeatable.",
        ),
    ] = None,
    outcome: Annotated[str | None, typer.Option(help="allowed, filtered or aborted.")] = None,
    classifier: Annotated[str | None, typer.Option(help="Only this classifier.")] = None,
    playbook: Annotated[str | None, typer.Option(help="Only this playbook.")] = None,
    route: Annotated[str | None, typer.Option(help="Only this route.")] = None,
    action: Annotated[str | None, typer.Option(help="route or review.")] = None,
    workflow: Annotated[str | None, typer.Option(help="Only this workflow.")] = None,
    since: Annotated[str | None, typer.Option(help="2026-11-02T08:00:00Z, or an age: 30m, 12h, 7d.")] = None,
    until: Annotated[str | None, typer.Option(help="As --since; exclusive.")] = None,
    failed: Annotated[
        bool | None, typer.Option("--failed/--answered", help="Only failed calls, or only answered ones.")
    ] = None,
    cursor: Annotated[str | None, typer.Option(help="Where the last page ended.")] = None,
    limit: Limit = 20,
    tenant: Tenant = "default",
    json: Json = False,
) -> None:
    """List decisions, newest first."""
    from commands import look

    filters: dict[str, Any] = {
        "outcome": outcome,
        "classifier": classifier,
        "playbook": playbook,
        "route": route,
        "action": action,
        "workflow": workflow,
        "since": since,
        "until": until,
        "failed": failed,
    }
    listing = look.list_decisions(
        settings_of(context),
        tenant=tenant,
        filters=filters,
        where=where or [],
        cursor=cursor,
        limit=limit,
        as_json=json,
    )
    run(listing)


@app.command("show", epilog="Example: classifier history show 6d8f0b1c-2f6e-5b8e-9a51-6f6d2f1f7c11")
def show(
    context: typer.Context,
    decision_id: Annotated[str, typer.Argument(help="The id of a decision, as `history list` prints it.")],
    tenant: Tenant = "default",
    json: Json = False,
) -> None:
    """Show one decision: the text, the answers, why it went where it went, and what followed."""
    from commands import look

    run(look.show_decision(settings_of(context), decision_id, tenant=tenant, as_json=json))
