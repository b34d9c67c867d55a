"""`classifier review`: events that wait for a person."""

from __future__ import annotations

from typing import Annotated

import typer

from commands.arguments import AppOption, Json, Limit, Tenant, run, settings_of

app = typer.Typer(no_args_is_help=True, help="Events that wait for a person.")


@app.command("list", epilog="Example: classifier review list --limit 5")
def list_all(
    context: typer.Context,
    playbook: Annotated[str | None, typer.Option(help="Only this playbook.")] = None,
    limit: Limit = 20,
    tenant: Tenant = "default",
    json: Json = False,
) -> None:
    """List events that wait for a person, oldest first."""
    from commands import reviews

    run(
        reviews.list_reviews(
            settings_of(context), tenant=tenant, playbook=playbook, limit=limit, as_json=json
        )
    )


@app.command(
    "decide",
    epilog="Example: classifier review decide 6d8f0b1c-2f6e-5b8e-9a51-6f6d2f1f7c11 --route security --by Zoë",
)
def decide(
    context: typer.Context,
    decision_id: Annotated[str, typer.Argument(help="The id that `review list` prints.")],
    route: Annotated[str, typer.Option(help="Where the event goes.")],
    by: Annotated[str, typer.Option(help="Who decides; stays on the record.")],
    reason: Annotated[str | None, typer.Option(help="Why; stays on the record.")] = None,
    tenant: Tenant = "default",
    app_name: AppOption = None,
    json: Json = False,
) -> None:
    """Decide about an event that waits; it is delivered at once."""
    from commands import reviews

    run(
        reviews.decide_review(
            settings_of(context, app=app_name),
            decision_id,
            tenant=tenant,
            route=route,
            by=by,
            reason=reason,
            as_json=json,
        )
    )
