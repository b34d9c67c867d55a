"""`classifier history`, continued: the commands that keep the history and prove it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from commands.arguments import DryRun, Json, Tenant, run, settings_of

app = typer.Typer(no_args_is_help=True, help="Keeping the history.")


@app.command("seal", epilog="Example: classifier history seal --to checkpoints.jsonl")
def seal(
    context: typer.Context,
    to: Annotated[
        Path | None,
        typer.Option(help="Append to this file every checkpoint it does not have yet, as JSON lines."),
    ] = None,
    json: Json = False,
) -> None:
    """Chain what has arrived since the last seal into signed checkpoints, tenant by tenant.

    Run it every few minutes, on one machine or on several. Keep the file of --to where whoever can write to
    the database cannot.
    """
    from commands import sealing

    if not run(sealing.seal(settings_of(context), to, as_json=json)):
        raise typer.Exit(1)


@app.command("verify", epilog="Example: classifier history verify --against checkpoints.jsonl")
def verify(
    context: typer.Context,
    against: Annotated[
        Path | None, typer.Option(help="Checkpoints that were kept outside the database.")
    ] = None,
    tenant: Annotated[str | None, typer.Option(help="Only this tenant; default: every one.")] = None,
    json: Json = False,
) -> None:
    """Recompute every seal, and name the first row that was changed, removed, inserted or reordered.

    Exit code 1 says that something was. The output also says what no check can know.
    """
    from commands import sealing

    if not run(sealing.verify(settings_of(context), against, tenant=tenant, as_json=json)):
        raise typer.Exit(1)


By = Annotated[str, typer.Option(help="Who does it; stands in the record.")]


@app.command("erase", epilog="Example: classifier history erase --resource user-77 --by Ada --dry-run")
def erase(
    context: typer.Context,
    resource: Annotated[str, typer.Option(help="The person's id, as decisions name it.")],
    by: By,
    tenant: Tenant = "default",
    dry_run: DryRun = False,
    json: Json = False,
) -> None:
    """Erase a person: texts, contexts and their id go; decisions stay as facts and can be counted.

    Closed workflow runs that decided about them are deleted in Temporal. What is open, and what is out of
    reach, is printed. Refused while they are under legal hold.
    """
    from commands import erasing

    erased = erasing.erase_person(
        settings_of(context), tenant=tenant, resource=resource, by=by, dry_run=dry_run, as_json=json
    )
    run(erased)


@app.command("retain", epilog="Example: classifier history retain --older-than 400d --dry-run")
def retain(
    context: typer.Context,
    older_than: Annotated[
        str | None, typer.Option(help="Drop whole months, of all tenants, that ended so long ago: 400d.")
    ] = None,
    tenant: Annotated[str | None, typer.Option(help="Whose contents are emptied.")] = None,
    contents_older_than: Annotated[
        str | None, typer.Option(help="Empty this tenant's contents of that age, and keep the facts: 30d.")
    ] = None,
    by: By = "retention",
    dry_run: DryRun = False,
    json: Json = False,
) -> None:
    """Drop old months, or empty old contents of one tenant, but for what a legal hold covers.

    With a key of the seal, signed stubs stand for the months that went, so that `history verify` passes.
    """
    from commands import keeping

    retained = keeping.retain(
        settings_of(context),
        older_than=older_than,
        tenant=tenant,
        contents_older_than=contents_older_than,
        by=by,
        dry_run=dry_run,
        as_json=json,
    )
    run(retained)


hold = typer.Typer(no_args_is_help=True, help="What must not be forgotten for now.")
app.add_typer(hold, name="hold")


@hold.command(
    "add", epilog="Example: classifier history hold add --resource user-77 --reason 'case 12' --by Lee"
)
def hold_add(
    context: typer.Context,
    reason: Annotated[str, typer.Option(help="Why, without naming the person.")],
    by: By,
    resource: Annotated[
        str | None, typer.Option(help="The person's id; default: everything of the tenant.")
    ] = None,
    tenant: Tenant = "default",
    json: Json = False,
) -> None:
    """Place a legal hold: neither erasure nor retention touches what it covers."""
    from commands import keeping

    run(
        keeping.add_hold(
            settings_of(context), tenant=tenant, resource=resource, reason=reason, by=by, as_json=json
        )
    )


@hold.command(
    "release",
    epilog="Example: classifier history hold release 0b6f1c2e-7d8a-4c3e-9f51-2a6d4e8b9c10 --by Lee",
)
def hold_release(
    context: typer.Context,
    hold_id: Annotated[str, typer.Argument(help="The hold's id, as `history hold list` prints it.")],
    by: By,
    tenant: Tenant = "default",
    json: Json = False,
) -> None:
    """Release a legal hold; the next retention takes what it kept."""
    from commands import keeping

    run(keeping.end_hold(settings_of(context), hold_id, tenant=tenant, by=by, as_json=json))


@hold.command("list", epilog="Example: classifier history hold list --released")
def hold_list(
    context: typer.Context,
    tenant: Tenant = "default",
    released: Annotated[bool, typer.Option("--released", help="Those of the past too.")] = False,
    json: Json = False,
) -> None:
    """List a tenant's legal holds, oldest first."""
    from commands import keeping

    run(keeping.show_holds(settings_of(context), tenant=tenant, released=released, as_json=json))
