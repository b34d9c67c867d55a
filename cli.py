"""The command line: reads arguments and the environment, hands over to `commands`. One of the two doors."""

from __future__ import annotations

import io
import logging
import os
import sys
from importlib.metadata import version
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.text import Text

from classifier.errors import ClassifierError, ConfigurationError
from commands import backtest_cli, deadletters_cli, history_cli, keeping_cli, review_cli
from commands.arguments import AppOption, Json, Tenant, run
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
    classifier init shop                        a playbook of your own, with a test
    classifier ask --boolean 'urgent=Is it urgent?' 'My card was stolen'
    classifier history list                     what was decided
    classifier review list                      what waits for a person
    classifier deadletters list                 what could not be handled
    classifier up                               keep everything running
""",
)
history_cli.app.add_typer(backtest_cli.app)
history_cli.app.add_typer(keeping_cli.app)
app.add_typer(history_cli.app, name="history")
app.add_typer(review_cli.app, name="review")
app.add_typer(deadletters_cli.app, name="deadletters")


def _print_version(*, asked: bool) -> None:
    if asked:
        sys.stdout.write(f"temporal-classifier {version('temporal-classifier')}\n")
        raise typer.Exit


@app.callback()
def door(
    context: typer.Context,
    *,
    version: Annotated[  # noqa: ARG001 - typer makes an option of it
        bool,
        typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit."),
    ] = False,
) -> None:
    """Hands the environment to whichever command is meant."""
    context.obj = _settings


REJECTED = 3
"""Exit code of `triage` where lines were rejected; 1 is a failure, 2 a wrong command line."""
REFUSED = 3
"""Exit code of `ask` where the model refused a question."""


@app.command(epilog="Example: CLASSIFIER_HOME=/srv/classifier classifier up")
def up(app_name: AppOption = None) -> None:
    """Start the stack and a worker, and stay until Ctrl-C."""
    from commands import serve

    run(serve.up(_settings(app=app_name), _errors()))


@app.command(epilog="Example: TEMPORAL_ADDRESS=localhost:7233 classifier worker --app shop.triage:app")
def worker(
    app_name: AppOption = None,
    task_queue: Annotated[
        str | None, typer.Option(help="What it polls; default: CLASSIFIER_TASK_QUEUE, else classifier.")
    ] = None,
    rate: Annotated[
        float | None,
        typer.Option(min=0.001, help="Activities a second out of this queue, to all its workers together."),
    ] = None,
    activities_only: Annotated[
        bool, typer.Option("--activities-only", help="Leave workflows to others, for a queue with a rate.")
    ] = False,
    promote: Annotated[
        bool | None,
        typer.Option(help="Make its version current. Default: if it never was; see CLASSIFIER_DEPLOYMENT."),
    ] = None,
) -> None:
    """Run a worker until it is told to stop; calls in flight finish first, unless it is told twice."""
    from commands import serve

    settings = _settings(
        app=app_name, task_queue=task_queue, rate=rate, activities_only=activities_only, promote=promote
    )
    run(serve.worker(settings, _errors()))


@app.command(epilog="Example: CLASSIFIER_TOKENS=acme:a-long-random-token classifier serve --port 8000")
def serve(
    host: Annotated[str, typer.Option(help="The interface to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65_535, help="The port; 0 takes a free one.")] = 8000,
    app_name: AppOption = None,
) -> None:
    """Take events over HTTP: CloudEvents with a token, and signed webhooks; see docs/events.md."""
    try:
        from commands import events_in
    except ImportError as error:
        raise ConfigurationError(f"{error.name} is missing; install temporal-classifier[serve]") from None

    run(events_in.serve(_settings(app=app_name), host=host, port=port, console=_errors()))


@app.command(epilog="Example: classifier triage events.jsonl --playbook tickets --json")
def triage(
    file: Annotated[str, typer.Argument(help="CloudEvents 1.0 as JSON lines; - reads standard input.")],
    playbook: Annotated[
        str | None, typer.Option(help="Which playbook decides; default: the one that takes the event's type.")
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

    summary = run(
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
        answered = run(asking.ask(_settings(app=app_name), given, as_json=json, console=_errors()))
    except asking.WrongUsage as error:
        raise typer.BadParameter(str(error)) from None
    if not answered:
        raise typer.Exit(REFUSED)


@app.command(epilog="Example: CLASSIFIER_APP=examples.support_agent:app classifier chat --thread ada")
def chat(
    agent: Annotated[str | None, typer.Option(help="Which agent; default: the only one.")] = None,
    thread: Annotated[
        str | None, typer.Option(help="The conversation to go on with; default: a new one.")
    ] = None,
    tenant: Tenant = "default",
    app_name: AppOption = None,
) -> None:
    """Talk to an agent: each line is a message, its reply appears as it is released.

    Ctrl-C stops a reply, Ctrl-D leaves; the thread stays, and --thread comes back to it.
    """
    from commands import chat as talking

    run(talking.chat(_settings(app=app_name), agent=agent, thread=thread, tenant=tenant, console=_errors()))


@app.command(epilog="Example: classifier init shop")
def init(
    folder: Annotated[Path, typer.Argument(help="Where to; made where it is missing.")] = Path(),
) -> None:
    """Write a playbook to start from: a commented module, its test, and some events; overwrites nothing."""
    from commands import starting

    starting.init(folder, Console())


@app.command(epilog="Example: DATABASE_URL=postgresql://classifier@db/classifier classifier migrate")
def migrate() -> None:
    """Bring the schema of DATABASE_URL up to date; safe to run by several at once."""
    from commands import maintain

    run(maintain.migrate(_settings(), _errors()))


@app.command(epilog="Example: classifier check --json")
def check(app_name: AppOption = None, json: Json = False) -> None:
    """Say what is configured and reachable, all problems at once; exit code 1 if there are any."""
    from commands import maintain

    if not run(maintain.check(_settings(app=app_name), as_json=json)):
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


def _errors() -> Console:
    return Console(stderr=True)


if __name__ == "__main__":
    main()
