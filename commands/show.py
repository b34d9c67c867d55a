"""How results look: tables and bars for people, JSON for machines."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import sys
import time
from collections.abc import Generator, Mapping, Sequence
from pathlib import Path

from rich.console import Console
from rich.padding import Padding
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table
from rich.text import Text

from classifier.answers import Answer, BooleanAnswer, ChoiceAnswer, Refusal, ScoreAnswer
from classifier.values import JSON

PLAIN_EVERY = 2.0
BAR_WIDTH = 20
_STEERING = re.compile("[\0-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
"""What moves the cursor, turns the direction of text round, or is no character at all."""


def program() -> str:
    """How to call this command line again: by its name where the shell finds it, else as it was called."""
    called = Path(sys.argv[0])
    if called.name != "classifier" or shutil.which("classifier"):
        return "classifier"
    return os.path.relpath(called)


def print_json(body: JSON) -> None:
    """One JSON document on standard output."""
    sys.stdout.write(json.dumps(body, indent=2, ensure_ascii=True, allow_nan=False) + "\n")


def table(title: str, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> Table:
    """A table.

    Args:
        title: Above it.
        columns: Their titles: one that starts with "#" is of numbers and stands right, one that starts with
            "=" is of what people copy and stays on one line.
        rows: A text for each column.
    """
    made = Table(
        title=Text(plain(title)), title_justify="left", title_style="bold", header_style="dim", box=None
    )
    for column in columns:
        made.add_column(
            column.lstrip("#="),
            justify="right" if column.startswith("#") else "left",
            no_wrap=column.startswith("="),
            overflow="fold",
        )
    for row in rows:
        made.add_row(*(Text(plain(cell)) for cell in row))
    return made


def entry(console: Console, head: str, lines: Sequence[str]) -> None:
    """What does not fit side by side: a line that is not wrapped, and indented below it what there is."""
    say(console, head)
    for line in filter(None, lines):
        console.print(Padding(Text(plain(line)), (0, 0, 0, 4), expand=False))


def say(console: Console, text: str) -> None:
    """A line as it is: nothing in it is markup, and it is not wrapped."""
    console.print(Text(plain(text)), soft_wrap=True)


def plain(text: str) -> str:
    """A text that others wrote, with nothing in it that a terminal would obey."""
    return _STEERING.sub(lambda found: found[0].encode("unicode_escape").decode(), text)


def counted(title: str, what: str, counts: Mapping[str, int]) -> Table:
    """Counts with bars, the largest first."""
    largest = max(counts.values(), default=0)
    rows = [
        (name, str(count), bar(count / largest if largest else 0.0))
        for name, count in sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    ]
    return table(title, [what, "#events", ""], rows)


def bar(share: float) -> str:
    """A bar for a share from 0 to 1."""
    return "█" * round(share * BAR_WIDTH)


def said(answer: Answer) -> str:
    """An answer in a few words; what only ranks says so."""
    match answer:
        case BooleanAnswer():
            note = " (uncalibrated)" if answer.calibrated is False else ""
            return f"P(yes) {answer.probability:.2f}{note}"
        case ChoiceAnswer():
            return (
                answer.choice if answer.probability is None else f"{answer.choice} {answer.probability:.2f}"
            )
        case ScoreAnswer():
            return f"{answer.score:.2f}"
        case Refusal():
            return "refused"


class ProgressLines:
    """Progress where there is no terminal: a line every two seconds, on standard error."""

    def __init__(self, console: Console, total: int | None, what: str = "events") -> None:
        self._console = console
        self._total = total
        self._what = what
        self._done = 0
        self._last = time.monotonic()

    def advance(self, done: int) -> None:
        """So many more are done."""
        self._done += done
        if time.monotonic() - self._last >= PLAIN_EVERY or self._done == self._total:
            self._last = time.monotonic()
            say(self._console, f"{self._done} of {self._total or '?'} {self._what} done")


class _Bar:
    def __init__(self, progress: Progress, total: int | None, what: str) -> None:
        self._progress = progress
        self._task = progress.add_task(what, total=total)

    def advance(self, done: int) -> None:
        self._progress.advance(self._task, done)


@contextlib.contextmanager
def progress(console: Console, total: int | None, *, what: str = "events") -> Generator[ProgressLines | _Bar]:
    """A bar on a terminal, plain lines elsewhere."""
    if not console.is_terminal:
        yield ProgressLines(console, total, what)
        return
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console) as shown:
        yield _Bar(shown, total, what)
