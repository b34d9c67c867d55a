"""The ASGI application: `/events`, `/webhooks/…`, `/reviews`, health, and the document of all of it."""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import AsyncGenerator
from typing import Any, TypeAlias

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from service.bodies import body_of, headers_of, token_of
from service.health import Health
from service.http_events import check_encoding, limit_of, posted
from service.openapi import document
from service.problems import Problem, unauthorized, unavailable, unknown_webhook
from service.reception import Outcome, Reception, Taken
from service.reviews import Reviews
from service.settings import ServiceSettings
from service.waiting import Waiting
from service.webhooks import event_of

LONGEST_WAIT = 30.0
ACCEPTED = 202
DECIDED = 200
PARTLY = 207

_WAIT = re.compile(r"(?:^|[,;\s])wait=(\d{1,4})(?:$|[,;\s])")
_CODES = {404: "NOT_FOUND", 405: "METHOD_NOT_ALLOWED"}

Posts: TypeAlias = list[dict[str, Any] | Problem]


class Endpoints:
    """What each address does.

    Args:
        settings: Who may send.
        reception: Takes events in.
        health: Says how things are.
        waiting: Waits for decisions.
        reviews: What people do with events that wait for them.
    """

    def __init__(
        self,
        settings: ServiceSettings,
        reception: Reception,
        health: Health,
        waiting: Waiting,
        reviews: Reviews,
    ) -> None:
        self._settings = settings
        self._reception = reception
        self._health = health
        self._waiting = waiting
        self._reviews = reviews

    async def events(self, request: Request) -> Response:
        """CloudEvents of a tenant that says who it is."""
        tenant = self._tenant(request)
        headers = headers_of(request)
        check_encoding(headers)
        given = posted(headers, await body_of(request, limit_of(headers)))
        self._health.check_backlog()
        outcomes = await self._reception.take(tenant, given.events)
        return _answers(outcomes) if given.is_batch else await self._answer(outcomes[0], request)

    async def webhook(self, request: Request) -> Response:
        """A signed delivery; nothing of it is read before the signature fits."""
        webhook = self._settings.webhooks.get(request.path_params["name"])
        if webhook is None:
            raise unknown_webhook()
        headers = headers_of(request)
        body = await body_of(request, limit_of(headers))
        if not webhook.scheme.is_signed(body, request.headers):
            raise unauthorized("the signature does not fit, or is not of the last minutes", bearer=False)
        check_encoding(headers)
        event = event_of(webhook, headers, body)
        if event is None:
            return JSONResponse(Taken(None, ignored="ping").to_json(), ACCEPTED)
        self._health.check_backlog()
        (outcome,) = await self._reception.take(webhook.tenant, [event])
        return await self._answer(outcome, request)

    async def alive(self, request: Request) -> Response:
        """The process answers."""
        del request
        return JSONResponse({"status": "ok"})

    async def ready(self, request: Request) -> Response:
        """Temporal and the database answer too."""
        del request
        parts = await self._health.parts()
        away = sorted(name for name, answers in parts.items() if not answers)
        if away:
            raise unavailable("NOT_READY", f"no answer from: {', '.join(away)}")
        return JSONResponse({"status": "ok"})

    async def openapi(self, request: Request) -> Response:
        """What all this is."""
        del request
        return JSONResponse(document(sorted(self._settings.webhooks), reviews=self._reviews.anybody))

    def _tenant(self, request: Request) -> str:
        token = token_of(request)
        tenant = None if token is None else self._settings.tokens.tenant(token)
        if tenant is None:
            raise unauthorized("send a bearer token that is known here", bearer=True)
        return tenant

    async def _answer(self, outcome: Outcome, request: Request) -> Response:
        if isinstance(outcome, Problem):
            raise outcome
        seconds = _wait_of(request)
        if seconds and outcome.run_id and outcome.workflow_id:
            status = await self._waiting.decision(outcome.workflow_id, outcome.run_id, seconds)
            if status is not None:
                applied = {"Preference-Applied": f"wait={seconds:.0f}"}
                return JSONResponse(outcome.to_json() | {"decision": status}, DECIDED, headers=applied)
        return JSONResponse(outcome.to_json(), ACCEPTED)


def application(
    settings: ServiceSettings, reception: Reception, health: Health, waiting: Waiting, reviews: Reviews
) -> Starlette:
    """The application; the backlog is watched while it runs."""
    endpoints = Endpoints(settings, reception, health, waiting, reviews)

    @contextlib.asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncGenerator[None]:
        del app
        async with health.watching():
            yield

    return Starlette(
        routes=[
            Route("/events", endpoints.events, methods=["POST"]),
            Route("/webhooks/{name}", endpoints.webhook, methods=["POST"]),
            *reviews.routes(),
            Route("/healthz", endpoints.alive, methods=["GET"]),
            Route("/readyz", endpoints.ready, methods=["GET"]),
            Route("/openapi.json", endpoints.openapi, methods=["GET"]),
        ],
        exception_handlers={Problem: _problem, HTTPException: _http_problem, Exception: _fault},
        lifespan=lifespan,
    )


async def _problem(request: Request, error: Exception) -> Response:
    del request
    assert isinstance(error, Problem)
    return error.response()


async def _http_problem(request: Request, error: Exception) -> Response:
    del request
    assert isinstance(error, HTTPException)
    code = _CODES.get(error.status_code, "REFUSED")
    return Problem(error.status_code, code, error.detail, error.headers).response()


async def _fault(request: Request, error: Exception) -> Response:
    """Starlette raises it again after this, for the log."""
    del request
    return Problem(500, "FAULT", f"a fault of this service ({type(error).__name__})").response()


def _wait_of(request: Request) -> float:
    """Seconds that the sender would wait for a decision (RFC 7240)."""
    found = _WAIT.search(", ".join(request.headers.getlist("prefer")))
    return min(float(found[1]), LONGEST_WAIT) if found else 0.0


def _answers(outcomes: list[Outcome]) -> Response:
    """One answer for each event of a batch; a problem of its own where there is but one and the same."""
    problems = [outcome for outcome in outcomes if isinstance(outcome, Problem)]
    wait = [problem for problem in problems if "Retry-After" in problem.headers]
    if wait and len(wait) == len(outcomes):
        raise max(wait, key=lambda problem: int(problem.headers["Retry-After"]))
    answers = [
        outcome.to_json() | {"status": outcome.status if isinstance(outcome, Problem) else ACCEPTED}
        for outcome in outcomes
    ]
    content = json.dumps(answers).encode()
    return Response(content, PARTLY if problems else ACCEPTED, media_type="application/json")
