"""Which decisions a command is about: the filters of the history as options, declared once."""

from __future__ import annotations

import contextlib
import functools
import inspect
from collections.abc import Callable
from dataclasses import dataclass, fields
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any, Literal, get_type_hints

import typer

from classifier.ages import age
from classifier.errors import ConfigurationError

if TYPE_CHECKING:
    from classifier.audit.query import DecisionQuery


def _option(text: str, *names: str) -> Any:
    return typer.Option(*names, help=text, rich_help_panel="Which decisions")


@dataclass(frozen=True, slots=True, kw_only=True)
class Filters:
    """What was given on the command line; every field is an option of each command that is `filtered`."""

    where: Annotated[
        list[str] | None,
        _option(
            "A condition on an answer: 'department = security', 'injection >= 0.5'. Repeatable.", "--where"
        ),
    ] = None
    since: Annotated[str | None, _option("2026-11-02T08:00:00Z, or an age: 30m, 12h, 7d.")] = None
    until: Annotated[str | None, _option("As --since; exclusive.")] = None
    outcome: Annotated[
        Literal["allowed", "filtered", "aborted"] | None, _option("What policy made of it.")
    ] = None
    action: Annotated[Literal["route", "review"] | None, _option("What a playbook decided.")] = None
    route: Annotated[str | None, _option("Where a playbook sent it.")] = None
    reason: Annotated[str | None, _option("Text within the reasons; case does not matter.")] = None
    playbook: Annotated[str | None, _option("Only this playbook.")] = None
    processor: Annotated[str | None, _option("Only this processor.")] = None
    classifier: Annotated[str | None, _option("Only this classifier.")] = None
    phase: Annotated[
        Literal["input", "output", "stream", "step"] | None,
        _option("Where a processor stood; step is a plain classification."),
    ] = None
    mode: Annotated[
        Literal["live", "enforce", "monitor", "shadow", "any"],
        _option("What was acted on, watched, or decided beside it; live is all but shadows."),
    ] = "live"
    model: Annotated[str | None, _option("Only this model, as the provider names its build.")] = None
    thread: Annotated[str | None, _option("Only this conversation.")] = None
    resource: Annotated[str | None, _option("Only this person or thing.")] = None
    message: Annotated[str | None, _option("Only this message.")] = None
    workflow: Annotated[str | None, _option("Only this workflow.")] = None
    run: Annotated[str | None, _option("Only this run of a workflow.")] = None
    trace: Annotated[str | None, _option("Only this trace.")] = None
    failed: Annotated[
        bool | None, _option("Only failed calls, or only answered ones.", "--failed/--answered")
    ] = None
    refused: Annotated[
        bool | None, _option("Only with a refused question, or only without.", "--refused/--not-refused")
    ] = None
    truncated: Annotated[bool | None, _option("Only where text was cut, or not.", "--truncated/--whole")] = (
        None
    )

    def query(self, tenant: str, now: datetime | None = None) -> DecisionQuery:
        """The query that these options ask for.

        Raises:
            ConfigurationError: A time or a condition is malformed.
        """
        from classifier.audit.query import (  # noqa: PLC0415 - --help must not wait
            AnswerCondition,
            DecisionQuery,
        )

        given = {item.name: getattr(self, item.name) for item in fields(self)}
        for name in ("since", "until"):
            if given[name] is not None:
                given[name] = moment(given[name], now)
        conditions = tuple(AnswerCondition.parse(text) for text in given.pop("where") or ())
        return DecisionQuery(tenant=tenant, answers=conditions, **given)


def filtered(command: Callable[..., None]) -> Callable[..., None]:
    """Gives a command the options of `Filters`, which it takes as its parameter `filters`."""
    hints = get_type_hints(Filters, include_extras=True)
    own = inspect.signature(command, eval_str=True).parameters
    shared = {
        item.name: inspect.Parameter(
            item.name, inspect.Parameter.KEYWORD_ONLY, default=item.default, annotation=hints[item.name]
        )
        for item in fields(Filters)
    }
    parameters = {name: each.replace(kind=each.KEYWORD_ONLY) for name, each in own.items()}
    del parameters["filters"]
    parameters |= shared

    @functools.wraps(command)
    def with_filters(**given: Any) -> None:
        filters = Filters(**{name: given.pop(name) for name in shared})
        command(filters=filters, **given)

    with_filters.__signature__ = inspect.Signature(list(parameters.values()))  # type: ignore[attr-defined] # typer reads it
    with_filters.__annotations__ = {name: each.annotation for name, each in parameters.items()}
    return with_filters


def moment(text: str, now: datetime | None = None) -> datetime:
    """A point in time: ISO 8601 with its offset, or an age such as 30m, 12h, 7d.

    Raises:
        ConfigurationError: It is neither.
    """
    with contextlib.suppress(ValueError):
        return datetime.fromisoformat(text)
    try:
        return (now or datetime.now(UTC)) - age(text)
    except ConfigurationError as error:
        raise ConfigurationError(
            f"{text!r} is no time; write 2026-11-02T08:00:00Z or an age such as 7d"
        ) from error
