"""`classifier init`: a playbook to start from, with its test and some events."""

from __future__ import annotations

import shlex
from importlib import resources
from pathlib import Path

from rich.console import Console

from classifier.errors import ConfigurationError
from commands.show import program, say

MODULE = "ticket_playbook"
EVENTS = "ticket_events.jsonl"
WRITTEN = (f"{MODULE}.py", f"test_{MODULE}.py", EVENTS)
_SUFFIX = ".txt"
"""Of what is written, until it is: so no tool takes it for code of ours."""


def init(folder: Path, console: Console) -> None:
    """Writes the files and says what to do with them.

    Raises:
        ConfigurationError: One of them is there already, or the folder cannot be written.
    """
    there = [name for name in WRITTEN if (folder / name).exists()]
    if there:
        raise ConfigurationError(f"{folder / there[0]} is there already, and nothing is overwritten")
    templates = resources.files("commands") / "templates"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name in WRITTEN:
            text = (templates / f"{name}{_SUFFIX}").read_text(encoding="utf-8")
            with (folder / name).open("x", encoding="utf-8") as file:
                file.write(text)
            say(console, f"wrote {folder / name}")
    except OSError as error:
        raise ConfigurationError(f"{folder} cannot be written: {error.strerror}") from error
    say(console, "\nNext:")
    for command, why in _next(folder):
        say(console, f"  {command:<72} {why}")


def _next(folder: Path) -> list[tuple[str, str]]:
    name = program()
    module, there, first = MODULE, folder, list[tuple[str, str]]()
    if _is_importable(folder):
        module = ".".join((*folder.parts, MODULE))
    else:
        there, first = Path(), [(f"cd {shlex.quote(str(folder))}", "apps are found from here")]
    events = shlex.quote(str(there / EVENTS))
    return [
        *first,
        (f"python -m pytest {shlex.quote(str(there / f'test_{MODULE}.py'))}", "its policy, by example"),
        (f"{name} triage {events} --app {module}:app", "decide the events"),
        (f"{name} review list", "what waits for a person"),
        (f"{name} check --app {module}:app", "what is configured"),
    ]


def _is_importable(folder: Path) -> bool:
    """Whether Python finds what is in the folder from here."""
    return not folder.is_absolute() and all(part.isidentifier() for part in folder.parts)
