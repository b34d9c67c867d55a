"""`classifier triage FILE`: opens everything, runs the file through, prints what happened."""

from __future__ import annotations

import contextlib
import io
from collections.abc import Generator, Mapping
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO

from rich.console import Console

from classifier.app import App
from classifier.audit.history import History
from classifier.errors import ConfigurationError
from classifier.playbook import Playbook
from commands.show import counted, print_json, program, progress, say, table
from commands.triage import Summary, TriageRun
from commands.working import a_worker, while_the_stack_runs
from worker import Service, Settings, app_of, opened
from workflows.events import Choosing, by_type
from workflows.intake import Intake

SHOWN_REJECTIONS = 20


async def triage(
    settings: Settings,
    file: str,
    *,
    playbook: str | None,
    tenant: str,
    as_json: bool,
    console: Console,
) -> Summary:
    """Runs a file, or standard input for "-", through a playbook.

    Raises:
        ConfigurationError: The file cannot be read, the playbook is unknown, or nothing can work on it.
    """
    declared = app_of(settings)
    deciding = _playbooks(declared, playbook)
    with _lines(file) as (source, total):
        async with (
            opened(settings) as service,
            a_worker(service, declared),
            History(service.database_url) as history,
        ):
            with progress(console, total) as shown:
                run = TriageRun(
                    intakes={
                        key: Intake(
                            service.client, service.store, task_queue=settings.task_queue, playbook=key
                        )
                        for key in deciding
                    },
                    history=history,
                    client=service.client,
                    tenant=tenant,
                    choose=_choosing(deciding),
                    progress=shown,
                    tell=partial(say, console),
                )
                summary = await while_the_stack_runs(service, run.run(source))
            _print(summary, service, file, as_json=as_json)
    return summary


def _playbooks(app: App, asked: str | None) -> dict[str, Playbook[Any]]:
    """Those that may decide: the one that is asked for, else all of the app."""
    known = dict(app.playbooks)
    if asked is None and known:
        return known
    if asked in known:
        return {asked: known[asked]}
    what = "the app has no playbook" if asked is None else f"there is no playbook {asked!r}"
    raise ConfigurationError(f"{what}; use --playbook with one of: {', '.join(known) or 'none registered'}")


def _choosing(playbooks: Mapping[str, Playbook[Any]]) -> Choosing:
    """One alone decides on whatever comes; several decide by the event's type."""
    if len(playbooks) > 1:
        return by_type(playbooks.items())
    ((only, playbook),) = playbooks.items()
    return lambda _: (only, playbook)


@contextlib.contextmanager
def _lines(file: str) -> Generator[tuple[BinaryIO, int | None]]:
    if file == "-":
        # Not sys.stdin: the interpreter cannot end while a thread still reads that.
        yield io.BufferedReader(io.FileIO(0, closefd=False)), None
        return
    try:
        with Path(file).open("rb") as source:
            total = sum(1 for line in source if line.strip())
            source.seek(0)
            yield source, total
    except OSError as error:
        raise ConfigurationError(f"{file} cannot be read: {error.strerror}") from error


def _print(summary: Summary, service: Service, file: str, *, as_json: bool) -> None:
    if as_json:
        ui = service.addresses.temporal_ui
        print_json({**summary.to_json(), "temporal_ui": ui})
        return
    console = Console()
    if summary.routes:
        console.print(counted("Delivered", "route", summary.routes))
    if summary.reviews:
        console.print(counted("Waiting for a person, and why", "reason", summary.reasons))
    if summary.dead_letters:
        console.print(counted("Could not be handled, and why", "code", summary.dead_letters))
    _print_rejections(console, summary)
    _print_totals(console, summary)
    _print_next(console, summary, service, file)


def _print_rejections(console: Console, summary: Summary) -> None:
    if not summary.rejected:
        return
    shown = summary.rejected[:SHOWN_REJECTIONS]
    rows = [(str(rejected.line), rejected.reason) for rejected in shown]
    more = len(summary.rejected) - len(shown)
    title = f"Rejected lines: {len(summary.rejected)}" + (f", the first {len(shown)}" if more else "")
    console.print(table(title, ["#line", "reason"], rows))


def _print_totals(console: Console, summary: Summary) -> None:
    rows = [
        ("events read", str(summary.events)),
        ("new runs", str(summary.started)),
        ("known already", str(summary.repeats)),
        ("of these still under way, now finished", str(summary.resumed)),
        ("rejected", str(len(summary.rejected))),
        ("delivered", str(summary.routes.total())),
        ("waiting for review", str(summary.reviews)),
        ("dead letters", str(summary.dead_letters.total())),
        ("decisions recorded", str(summary.decisions)),
    ]
    if summary.started:
        rows.append(("seconds", f"{summary.seconds:.1f}"))
        rows.append(("events per second", f"{summary.per_second:.1f}"))
    console.print(table("In total", ["", "#"], rows))


def _print_next(console: Console, summary: Summary, service: Service, file: str) -> None:
    ui = service.addresses.temporal_ui
    if ui is not None:
        note = "" if service.attached else f" while `{program()} up` runs"
        say(console, f"\nTemporal UI: {ui}{note}")
    name = program()
    commands = [
        (f"{name} history list", "what was decided"),
        (f"{name} history list --where 'injection >= 0.5'", "by what was answered"),
        (f"{name} review list", "what waits for a person"),
        (f"{name} triage {file}", "again: every event is known, nothing is done twice"),
    ]
    if summary.started == 0:
        commands = commands[:3]
    if summary.dead_letters:
        commands.append((f"{name} deadletters list", "what could not be handled, and how to try again"))
    say(console, "\nNext:")
    for command, why in commands:
        say(console, f"  {command:<62} {why}")
