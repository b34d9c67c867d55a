"""The command line: reads arguments and the environment, hands over to `commands`. One of the two doors."""

from __future__ import annotations

import asyncio
import logging
import os
import sys
from collections.abc import Coroutine
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from classifier.errors import ClassifierError
from embedded.errors import EmbeddedError

app = typer.Typer(
    name="classifier",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    help="""Durable, audited classifier decisions on Temporal.

With nothing configured, Temporal and PostgreSQL run on this machine under one state folder, and the local
model answers. Start with:

    classifier triage examples/tickets.jsonl    decide a file of events
    classifier history list                     what was decided
    classifier review list                      what waits for a person
    classifier up                               keep the stack and a worker running
""",
)
history = typer.Typer(no_args_is_help=True, help="What was decided, and why.")
review = typer.Typer(no_args_is_help=True, help="Events that wait for a person.")
app.add_typer(history, name="history")
app.add_typer(review, name="review")

AppOption = Annotated[
    str | None,
    typer.Option("--app", help="The app as module:name; default: CLASSIFIER_APP, else the ticket triage."),
]
Json = Annotated[bool, typer.Option("--json", help="One JSON document on standard output, for machines.")]
Tenant = Annotated[str, typer.Option(help="Whose events and decisions.")]
Limit = Annotated[int, typer.Option(min=1, max=1000, help="How many at most.")]

REJECTED = 3
"""Exit code of `triage` where lines were rejected; 1 is a failure, 2 a wrong command line."""


@app.command()
def up(app_name: AppOption = None) -> None:
    """Start the stack and a worker, and stay until Ctrl-C."""
    from commands import serve

    _run(serve.up(_settings(app=app_name), _errors()))


@app.command()
def worker(app_name: AppOption = None) -> None:
    """Run a worker until it is told to stop; calls in flight finish first."""
    from commands import serve

    _run(serve.worker(_settings(app=app_name), _errors()))


@app.command()
def triage(
    file: Annotated[str, typer.Argument(help="CloudEvents 1.0 as JSON lines; - reads standard input.")],
    playbook: Annotated[
        str | None, typer.Option(help="Which playbook decides; default: the only one.")
    ] = None,
    tenant: Tenant = "default",
    app_name: AppOption = None,
    json: Json = False,
) -> None:
    """Decide events: deliver the sure ones, leave the others to a person.

    An event is known by tenant, source and id, and decided once however often it is given. Exit code 3 says
    that lines were rejected.
    """
    from commands import triage_file

    summary = _run(
        triage_file.triage(
            _settings(app=app_name), file, playbook=playbook, tenant=tenant, as_json=json, console=_errors()
        )
    )
    if summary.rejected:
        raise typer.Exit(REJECTED)


@history.command("list")
def history_list(
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
        _settings(),
        tenant=tenant,
        filters=filters,
        where=where or [],
        cursor=cursor,
        limit=limit,
        as_json=json,
    )
    _run(listing)


@history.command("show")
def history_show(
    decision_id: Annotated[str, typer.Argument(help="The id of a decision, as `history list` prints it.")],
    tenant: Tenant = "default",
    json: Json = False,
) -> None:
    """Show one decision: the text, the answers, why it went where it went, and what followed."""
    from commands import look

    _run(look.show_decision(_settings(), decision_id, tenant=tenant, as_json=json))


@review.command("list")
def review_list(
    playbook: Annotated[str | None, typer.Option(help="Only this playbook.")] = None,
    limit: Limit = 20,
    tenant: Tenant = "default",
    json: Json = False,
) -> None:
    """List events that wait for a person, oldest first."""
    from commands import reviews

    _run(reviews.list_reviews(_settings(), tenant=tenant, playbook=playbook, limit=limit, as_json=json))


@review.command("decide")
def review_decide(
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

    _run(
        reviews.decide_review(
            _settings(app=app_name),
            decision_id,
            tenant=tenant,
            route=route,
            by=by,
            reason=reason,
            as_json=json,
        )
    )


@app.command()
def migrate() -> None:
    """Bring the schema of DATABASE_URL up to date; safe to run by several at once."""
    from commands import maintain

    _run(maintain.migrate(_settings(), _errors()))


@app.command()
def check(app_name: AppOption = None, json: Json = False) -> None:
    """Say what is configured and reachable, all problems at once; exit code 1 if there are any."""
    from commands import maintain

    if not _run(maintain.check(_settings(app=app_name), as_json=json)):
        raise typer.Exit(1)


def main() -> None:
    """The console script."""
    logging.basicConfig(
        level=os.environ.get("CLASSIFIER_LOG_LEVEL", "WARNING"), format="%(levelname)s %(name)s %(message)s"
    )
    sys.path.insert(0, str(Path.cwd()))
    try:
        app()
    except (ClassifierError, EmbeddedError) as error:
        _errors().print(f"[bold red]error[/] {error}", soft_wrap=True, highlight=False)
        sys.exit(1)
    except KeyboardInterrupt:
        sys.exit(130)


def _settings(**given: Any) -> Any:
    from worker import Settings

    return Settings.from_environ(os.environ, **given)


def _run(work: Coroutine[Any, Any, Any]) -> Any:
    return asyncio.run(work)


def _errors() -> Console:
    return Console(stderr=True)


if __name__ == "__main__":
    main()
