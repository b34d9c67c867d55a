"""`classifier history tail`: decisions as they arrive."""

from __future__ import annotations

import asyncio
import json
import sys

from rich.console import Console

from classifier.audit.arrivals import Arrived
from classifier.audit.chain import Place
from classifier.audit.export import strict
from classifier.audit.history import History
from classifier.audit.query import DecisionQuery
from classifier.decision import Decision
from classifier.decision_json import decision_to_json
from classifier.errors import ConfigurationError, StoreUnavailable
from commands.look import answers_of, became, name_of, time_of
from commands.show import say
from embedded.stack import running
from worker import Settings, opened


async def tail(settings: Settings, query: DecisionQuery, *, every: float, as_json: bool) -> None:
    """Prints what arrives from now on, until it is cancelled; a database that restarts is waited for.

    Raises:
        ConfigurationError: Nothing runs that decisions could come from.
    """
    if settings.embeds_database and running(settings.home) is None:
        raise ConfigurationError(
            f"nothing runs in {settings.home}, so nothing can arrive; "
            "start `classifier up`, or set DATABASE_URL"
        )
    errors = Console(stderr=True)
    show = _print_json if as_json else _print_line
    async with opened(settings, temporal=False) as service, History(service.database_url) as history:
        position = await history.last_arrival(query.tenant)
        say(errors, f"following tenant {query.tenant}; stop with Ctrl-C")
        while True:
            arrived = await _arrived(history, query, position, every=every, console=errors)
            position = arrived.position
            for decision in arrived.decisions:
                show(decision)
            sys.stdout.flush()
            if not arrived.more:
                await asyncio.sleep(every)


async def _arrived(
    history: History,
    query: DecisionQuery,
    position: Place | None,
    *,
    every: float,
    console: Console,
) -> Arrived:
    """What has arrived, once the database answers; says once that it does not, and once that it does."""
    away = False
    while True:
        try:
            found = await history.arrived(query, position)
        except StoreUnavailable as error:
            if not away:
                say(console, f"waiting: {error}")
            away = True
            await asyncio.sleep(every)
            continue
        if away:
            say(console, "the audit store answers again")
        return found


def _print_json(decision: Decision) -> None:
    sys.stdout.write(json.dumps(strict(decision_to_json(decision)), allow_nan=False) + "\n")


def _print_line(decision: Decision) -> None:
    parts = (
        time_of(decision.decided_at),
        name_of(decision),
        became(decision),
        answers_of(decision),
        str(decision.decision_id),
    )
    say(Console(), "  ".join(part for part in parts if part))
