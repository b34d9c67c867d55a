"""`classifier review`: events that wait for a person."""

from __future__ import annotations

from typing import Annotated

import typer

from commands.arguments import AppOption, Json, Limit, Tenant, run, settings_of

DecisionId = Annotated[str, typer.Argument(help="The id that `review list` prints.")]
By = Annotated[str, typer.Option(help="Who does it; stays on the record.")]

app = typer.Typer(
    no_args_is_help=True,
    help="""Events that wait for a person: list them, claim one, look at it, decide.

A claim keeps others off while you think, and lasts 15 minutes; whoever decides at once needs none. What
happens to an event that waits too long is up to its playbook. See docs/reviews.md.""",
)


@app.command("list", epilog="Example: classifier review list --playbook tickets --older-than 2h")
def list_all(
    context: typer.Context,
    playbook: Annotated[str | None, typer.Option(help="Only this playbook.")] = None,
    queue: Annotated[
        str | None, typer.Option(help="Only those that a deadline has escalated to this queue.")
    ] = None,
    older_than: Annotated[
        str | None, typer.Option(help="Only those that wait for longer: 30m, 2h, 7d.")
    ] = None,
    limit: Limit = 20,
    tenant: Tenant = "default",
    json: Json = False,
) -> None:
    """List events that wait for a person, oldest first, with who is at work on them until when."""
    from commands import reviews

    listing = reviews.Listing(
        tenant=tenant, playbook=playbook, queue=queue, older_than=older_than, limit=limit
    )
    run(reviews.list_reviews(settings_of(context), listing, as_json=json))


@app.command("show", epilog="Example: classifier review show 6d8f0b1c-2f6e-5b8e-9a51-6f6d2f1f7c11")
def show(
    context: typer.Context,
    decision_id: DecisionId,
    tenant: Tenant = "default",
    app_name: AppOption = None,
    json: Json = False,
) -> None:
    """Show all about one: text, answers, why it waits, who is at work on it, and where it can go."""
    from commands import reviews

    settings = settings_of(context, app=app_name)
    run(reviews.show_review(settings, decision_id, tenant=tenant, as_json=json))


@app.command("claim", epilog="Example: classifier review claim 6d8f0b1c-2f6e-5b8e-9a51-6f6d2f1f7c11 --by Zoë")
def claim(
    context: typer.Context,
    decision_id: DecisionId,
    by: By,
    lasting: Annotated[str, typer.Option("--for", help="For how long: 15m, 2h; a day at most.")] = "15m",
    tenant: Tenant = "default",
    app_name: AppOption = None,
    json: Json = False,
) -> None:
    """Keep others off an event while you think; claiming it again goes on with it."""
    from commands import reviews

    settings = settings_of(context, app=app_name)
    run(reviews.claim_review(settings, decision_id, tenant=tenant, by=by, lasting=lasting, as_json=json))


@app.command(
    "release", epilog="Example: classifier review release 6d8f0b1c-2f6e-5b8e-9a51-6f6d2f1f7c11 --by Zoë"
)
def release(
    context: typer.Context,
    decision_id: DecisionId,
    by: By,
    tenant: Tenant = "default",
    app_name: AppOption = None,
    json: Json = False,
) -> None:
    """Give back an event that you claimed."""
    from commands import reviews

    settings = settings_of(context, app=app_name)
    run(reviews.release_review(settings, decision_id, tenant=tenant, by=by, as_json=json))


@app.command(
    "decide",
    epilog="Example: classifier review decide 6d8f0b1c-2f6e-5b8e-9a51-6f6d2f1f7c11 --route security --by Zoë",
)
def decide(
    context: typer.Context,
    decision_id: DecisionId,
    route: Annotated[str, typer.Option(help="Where the event goes.")],
    by: Annotated[str, typer.Option(help="Who decides; stays on the record.")],
    reason: Annotated[str | None, typer.Option(help="Why; stays on the record.")] = None,
    tenant: Tenant = "default",
    app_name: AppOption = None,
    json: Json = False,
) -> None:
    """Decide about an event that waits; it is delivered at once. Nobody else's claim may be on it."""
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
