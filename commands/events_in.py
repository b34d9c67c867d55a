"""`classifier serve`: events in over HTTP, until told to stop."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncGenerator
from typing import Any

from rich.console import Console

from classifier.app import App
from classifier.audit.history import History
from classifier.errors import ConfigurationError
from classifier.playbook import Playbook
from classifier.temporal.leaving import Leaving
from commands.housekeeping import housekeeping
from commands.serve import stoppable
from commands.show import say
from service.app import application
from service.health import Health
from service.reception import Reception
from service.reviews import Reviews
from service.server import serving
from service.settings import ServiceSettings
from service.waiting import Waiting
from worker import Service, Settings, app_of, opened, working


async def serve(settings: Settings, *, host: str, port: int, console: Console) -> None:
    """Takes events until SIGTERM or Ctrl-C; requests in flight finish first.

    Raises:
        ConfigurationError: Nobody could send, the app has no playbook, or the port cannot be had.
    """
    senders = ServiceSettings.from_environ(settings.environ)
    declared = app_of(settings)
    playbooks = _playbooks(declared)
    async with (
        stoppable() as stop,
        opened(settings) as service,
        History(service.database_url) as history,
        _somebody_works(service, declared, stop.leaving),
    ):
        health = Health(
            service.client,
            service.store,
            task_queue=settings.task_queue,
            backlog=senders.caps.backlog,
        )
        reception = Reception(
            playbooks, service.client, service.store, task_queue=settings.task_queue, caps=senders.caps
        )
        reviews = Reviews(senders.reviewers, playbooks, service.client, history)
        app = application(senders, reception, health, Waiting(service.client), reviews)
        async with serving(app, host=host, port=port) as address:
            say(console, f"takes events at {address}/events")
            for name in senders.webhooks:
                say(console, f"takes deliveries at {address}/webhooks/{name}")
            if reviews.anybody:
                say(console, f"shows reviewers what waits at {address}/reviews")
            say(console, "stop with Ctrl-C")
            await stop.asked_for(service.watch())


def _playbooks(declared: App) -> dict[str, Playbook[Any]]:
    problems = [problem for _, playbook in declared.playbooks for problem in playbook.problems()]
    if problems or not declared.playbooks:
        raise ConfigurationError(
            "; ".join(problems) or "the app has no playbooks, so nothing decides on events"
        )
    return dict(declared.playbooks)


@contextlib.asynccontextmanager
async def _somebody_works(service: Service, declared: App, leaving: Leaving) -> AsyncGenerator[None]:
    """A worker of our own on a stack of our own; on somebody else's, events wait until a worker comes."""
    if service.settings.embeds_temporal and not service.attached:
        async with working(service, declared, leaving=leaving), housekeeping(service, leaving):
            yield
    else:
        yield
