"""`classifier history`: what was decided, and why."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from commands.arguments import Json, Limit, Tenant, run, settings_of
from commands.filters import Filters, filtered

app = typer.Typer(no_args_is_help=True, help="What was decided, and why.")


@app.command("list", epilog="Example: classifier history list --where 'department = security' --since 7d")
@filtered
def list_all(
    context: typer.Context,
    filters: Filters,
    cursor: Annotated[str | None, typer.Option(help="Where the last page ended.")] = None,
    limit: Limit = 20,
    tenant: Tenant = "default",
    json: Json = False,
) -> None:
    """List decisions, newest first."""
    from commands import look

    run(
        look.list_decisions(
            settings_of(context),
            filters.query(tenant),
            cursor=cursor,
            limit=limit,
            as_json=json,
        )
    )


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


@app.command("tail", epilog="Example: classifier history tail --outcome aborted --json")
@filtered
def tail(
    context: typer.Context,
    filters: Filters,
    every: Annotated[float, typer.Option(min=0.1, max=3600, help="Seconds between two looks.")] = 1.0,
    tenant: Tenant = "default",
    json: Annotated[
        bool, typer.Option("--json", help="A JSON document per line, as `history export` has them.")
    ] = False,
) -> None:
    """Follow decisions as they arrive, from now on and until Ctrl-C.

    Each comes once, in the order in which they became visible; late records included.
    """
    from commands import following

    run(following.tail(settings_of(context), filters.query(tenant), every=every, as_json=json))


@app.command("stats", epilog="Example: classifier history stats --by hour --since 24h --processor safety")
@filtered
def stats(
    context: typer.Context,
    filters: Filters,
    by: Annotated[Literal["hour", "day"], typer.Option(help="Count by hours or by days, in UTC.")] = "day",
    calibration: Annotated[
        bool,
        typer.Option(
            "--calibration", help="Instead: how probabilities compare with what people said, of all time."
        ),
    ] = False,
    shadow: Annotated[
        bool,
        typer.Option("--shadow", help="Instead: how what runs beside a playbook compares, of all time."),
    ] = False,
    tenant: Tenant = "default",
    json: Json = False,
) -> None:
    """Count outcomes; say how fast and how completely calls were answered, and what they cost.

    Without --since: the last 7 days, or the last 24 hours by hour.
    """
    if calibration and shadow:
        raise typer.BadParameter("--calibration and --shadow are two reports; ask for one")
    if shadow:
        from commands import shadowing

        run(shadowing.compare(settings_of(context), filters.query(tenant), as_json=json))
        return
    if calibration:
        from commands import labelling

        run(labelling.calibration(settings_of(context), filters.query(tenant), as_json=json))
        return
    from commands import figures

    run(figures.stats(settings_of(context), filters.query(tenant), every=by, as_json=json))


@app.command("export", epilog="Example: classifier history export march.parquet --since 2026-03-01T00:00:00Z")
@filtered
def export(
    context: typer.Context,
    filters: Filters,
    file: Annotated[
        Path, typer.Argument(help="Where to; appears when it is whole. - writes to standard output.")
    ],
    form: Annotated[
        Literal["jsonl", "csv", "parquet"] | None,
        typer.Option("--format", help="Default: by the file's suffix; jsonl for -."),
    ] = None,
    labelled: Annotated[
        bool,
        typer.Option(
            "--labelled", help="Instead: what people labelled, as `classifier ask --labels` reads it."
        ),
    ] = False,
    tenant: Tenant = "default",
) -> None:
    """Write decisions with their texts to a file, newest first.

    JSON lines hold everything and can be read back; CSV and Parquet are flat, with JSON where it nests.
    """
    from commands import exporting

    settings, query = settings_of(context), filters.query(tenant)
    exported = exporting.export_labelled if labelled else exporting.export
    run(exported(settings, query, file, form))
