"""The command line: reads arguments and the environment, hands over to `commands`. One of the two doors."""

from __future__ import annotations

import asyncio
import io
import logging
import os
import sys
from collections.abc import Coroutine
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.text import Text

from classifier.errors import ClassifierError
from commands.show import plain
from embedded.errors import EmbeddedError

app = typer.Typer(
    name="classifier",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    help="""Durable, audited classifier decisions on Temporal.

With nothing configured, Temporal and PostgreSQL run on this machine, and the local model answers. Start with:

    classifier triage examples/tickets.jsonl    decide a file of events
    classifier ask --boolean 'urgent=Is it urgent?' 'My card was stolen'
    classifier history list                     what was decided
    classifier review list                      what waits for a person
    classifier up                               keep everything running
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
REFUSED = 3
"""Exit code of `ask` where the model refused a question."""


@app.command(epilog="Example: CLASSIFIER_HOME=/srv/classifier classifier up")
def up(app_name: AppOption = None) -> None:
    """Start the stack and a worker, and stay until Ctrl-C."""
    from commands import serve

    _run(serve.up(_settings(app=app_name), _errors()))


@app.command(epilog="Example: TEMPORAL_ADDRESS=localhost:7233 classifier worker --app shop.triage:app")
def worker(app_name: AppOption = None) -> None:
    """Run a worker until it is told to stop; calls in flight finish first."""
    from commands import serve

    _run(serve.worker(_settings(app=app_name), _errors()))


@app.command(epilog="Example: classifier triage events.jsonl --playbook tickets --json")
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


@app.command(epilog="Example: classifier ask --choice 'topic=billing,account,other' 'Where is my invoice?'")
def ask(
    state: Annotated[
        str | None, typer.Argument(help="The text the questions are about; - reads standard input.")
    ] = None,
    file: Annotated[Path | None, typer.Option(help="Read the text from this file.")] = None,
    structured: Annotated[
        bool, typer.Option("--structured", help="The text is JSON, and is sent as JSON.")
    ] = False,
    questions: Annotated[
        Path | None, typer.Option(help="A YAML or JSON file of questions; see docs/questions.md.")
    ] = None,
    boolean: Annotated[
        list[str] | None, typer.Option(help="'urgent=Is it urgent?'. Repeatable, as the next two.")
    ] = None,
    choice: Annotated[list[str] | None, typer.Option(help="'topic=billing,account,other'")] = None,
    score: Annotated[list[str] | None, typer.Option(help="'mood=bad,neutral,good', lowest first.")] = None,
    labels: Annotated[
        Path | None,
        typer.Option(help="Corrected decisions as JSON lines; the local model learns from them."),
    ] = None,
    classifier: Annotated[str | None, typer.Option(help="Ask with this classifier of the app.")] = None,
    model: Annotated[
        str | None, typer.Option(help="Ask this model of the app; default: the only one, else local.")
    ] = None,
    app_name: AppOption = None,
    json: Json = False,
) -> None:
    """Ask typed questions about a text; nothing is recorded, no Temporal and no database are needed.

    Exit code 3 says that the model refused a question.
    """
    from commands import ask as asking

    given = asking.Asking(
        state=state,
        file=file,
        structured=structured,
        questions=questions,
        booleans=boolean or (),
        choices=choice or (),
        scores=score or (),
        labels=labels,
        classifier=classifier,
        model=model,
    )
    try:
        answered = _run(asking.ask(_settings(app=app_name), given, as_json=json, console=_errors()))
    except asking.WrongUsage as error:
        raise typer.BadParameter(str(error)) from None
    if not answered:
        raise typer.Exit(REFUSED)


@history.command("list", epilog="Example: classifier history list --where 'department = security' --since 7d")
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


@history.command("show", epilog="Example: classifier history show 6d8f0b1c-2f6e-5b8e-9a51-6f6d2f1f7c11")
def history_show(
    decision_id: Annotated[str, typer.Argument(help="The id of a decision, as `history list` prints it.")],
    tenant: Tenant = "default",
    json: Json = False,
) -> None:
    """Show one decision: the text, the answers, why it went where it went, and what followed."""
    from commands import look

    _run(look.show_decision(_settings(), decision_id, tenant=tenant, as_json=json))


@review.command("list", epilog="Example: classifier review list --limit 5")
def review_list(
    playbook: Annotated[str | None, typer.Option(help="Only this playbook.")] = None,
    limit: Limit = 20,
    tenant: Tenant = "default",
    json: Json = False,
) -> None:
    """List events that wait for a person, oldest first."""
    from commands import reviews

    _run(reviews.list_reviews(_settings(), tenant=tenant, playbook=playbook, limit=limit, as_json=json))


@review.command(
    "decide",
    epilog="Example: classifier review decide 6d8f0b1c-2f6e-5b8e-9a51-6f6d2f1f7c11 --route security --by Zoë",
)
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


@app.command(epilog="Example: DATABASE_URL=postgresql://classifier@db/classifier classifier migrate")
def migrate() -> None:
    """Bring the schema of DATABASE_URL up to date; safe to run by several at once."""
    from commands import maintain

    _run(maintain.migrate(_settings(), _errors()))


@app.command(epilog="Example: classifier check --json")
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
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # a terminal without UTF-8 is no reason to stop
    try:
        app()
    except (ClassifierError, EmbeddedError) as error:
        _errors().print(Text.assemble(("error", "bold red"), f" {plain(str(error))}"), soft_wrap=True)
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
