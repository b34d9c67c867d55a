"""What the commands' declarations share: options, and how they come by their settings."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

if TYPE_CHECKING:
    from worker import Settings

T = TypeVar("T")

AppOption = Annotated[
    str | None,
    typer.Option(
        "--app",
        help="The app as module:name, or by the name a package gives it; default: CLASSIFIER_APP, else the "
        "ticket triage.",
    ),
]
Json = Annotated[bool, typer.Option("--json", help="One JSON document on standard output, for machines.")]
Tenant = Annotated[str, typer.Option(help="Whose events and decisions.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Say what would happen, and change nothing.")]
Limit = Annotated[int, typer.Option(min=1, max=1000, help="How many at most.")]


def settings_of(context: typer.Context, **given: Any) -> Settings:
    """The environment's settings, which the door read; `given` wins."""
    settings: Settings = context.obj(**given)
    return settings


def run(work: Coroutine[Any, Any, T]) -> T:
    """What a command's coroutine comes to."""
    return asyncio.run(work)
