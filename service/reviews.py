"""Reviews over HTTP: the queue, one of them, and what a person does with it.

Who acts is who the token says, never what a body claims. Reads are of the history; acts go to the run.
"""

from __future__ import annotations

import json
import re
import uuid
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, TypeAlias

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from temporalio.client import Client
from temporalio.service import RPCError

from classifier.ages import age
from classifier.answers import answers_to_json
from classifier.audit.export import strict
from classifier.audit.history import History
from classifier.audit.query import Position
from classifier.audit.records import HistoryEvent
from classifier.audit.waiting import OpenReview, ReviewQuery
from classifier.decision import Decision
from classifier.errors import ConfigurationError, StoreError
from classifier.values import JSON, digest
from service.bodies import body_of, headers_of, token_of
from service.http_events import ContentType, check_encoding, parsed
from service.problems import (
    Problem,
    conflict,
    malformed,
    unauthorized,
    unavailable,
    unprocessable,
    unsupported,
)
from service.reception import PlaybookOf
from service.settings import Person, Reviewers
from workflows.messages import BAD_LEASE, MAX_LEASE, NO_REVIEWER, UNKNOWN_ROUTE, USUAL_LEASE, TriageStatus
from workflows.review_client import ENDED, NO_WORKER, Reviewer, ReviewRefused

MAX_BODY_BYTES = 100_000
MAX_PAGE = 100
USUAL_PAGE = 50
DONE_WITHIN = 10.0
"""Seconds that an answer waits for what a run has accepted; a delivery may take for ever."""

_OK, _UNDER_WAY = 200, 202
_UNPROCESSABLE = {
    UNKNOWN_ROUTE: "there is no such route; the review itself lists them",
    BAD_LEASE: f"a claim lasts more than nothing and at most {MAX_LEASE.total_seconds():.0f} seconds",
    NO_REVIEWER: "the token's name is not one that a person has",
}

Found: TypeAlias = tuple[Decision, OpenReview | None, Sequence[HistoryEvent]]


class Reviews:
    """What each address does.

    Args:
        reviewers: Who may read and act.
        playbooks: By key; they say which routes there are.
        client: Where the runs are.
        history: What is on record.
    """

    def __init__(self, reviewers: Reviewers, playbooks: PlaybookOf, client: Client, history: History) -> None:
        self._reviewers = reviewers
        self._routes = {playbook.id: list(playbook.routes) for playbook in playbooks.values()}
        self._client = client
        self._history = history

    def routes(self) -> list[Route]:
        """Where it answers."""
        one = "/reviews/{id}"
        return [
            Route("/reviews", self.listed, methods=["GET"]),
            Route(one, self.shown, methods=["GET"]),
            Route(f"{one}/claim", self.claim, methods=["POST"]),
            Route(f"{one}/release", self.release, methods=["POST"]),
            Route(f"{one}/decide", self.decide, methods=["POST"]),
        ]

    @property
    def anybody(self) -> bool:
        """Whether there is anybody who may."""
        return bool(self._reviewers.by_hash)

    async def listed(self, request: Request) -> Response:
        """A page of those that wait, oldest first."""
        person = self._person(request)
        given = request.query_params
        wanted = _query_of(given)
        limit = _limit_of(given.get("limit"))
        after = _position(given.get("cursor"), person, wanted)
        try:
            found = await self._history.open_reviews(person.tenant, limit + 1, after, wanted)
        except StoreError:
            raise _no_store() from None
        now, page = datetime.now(UTC), found[:limit]
        cursor = page[-1].position.cursor(_fingerprint(person, wanted)) if len(found) > limit else None
        return _json({"waiting": [_summary(one, now) for one in page], "next_cursor": cursor})

    async def shown(self, request: Request) -> Response:
        """All about one that waits, or waited."""
        decision, waiting, events = await self._found(request, self._person(request))
        return _json(
            {
                **_decided(decision),
                "answers": None if decision.answers is None else answers_to_json(decision.answers),
                "policy_version": decision.policy_version,
                "review": None if waiting is None else waiting.to_json(datetime.now(UTC)),
                "routes": self._routes.get(decision.playbook_id or "", []),
                "events": [_event(event) for event in events],
            }
        )

    async def claim(self, request: Request) -> Response:
        """Keeps others off it for a while."""
        person = self._person(request)
        given = await _given(request, {"seconds": (int, float)})
        seconds = given.get("seconds", USUAL_LEASE.total_seconds())
        if not 0 < seconds <= MAX_LEASE.total_seconds():
            raise unprocessable(BAD_LEASE, _UNPROCESSABLE[BAD_LEASE])
        decision, _, _ = await self._found(request, person)
        with _Refusals():
            status = await self._as(person).claim(decision, timedelta(seconds=seconds))
        return _done(decision, status)

    async def release(self, request: Request) -> Response:
        """Gives it back."""
        person = self._person(request)
        await _given(request, {})
        decision, _, _ = await self._found(request, person)
        with _Refusals():
            status = await self._as(person).release(decision)
        return _done(decision, status)

    async def decide(self, request: Request) -> Response:
        """Chooses where the event goes; 202 where it is still under way there."""
        person = self._person(request)
        given = await _given(request, {"route": (str,), "reason": (str,)}, needed=("route",))
        decision, _, _ = await self._found(request, person)
        with _Refusals():
            status = await self._as(person).decide(decision, given["route"], given.get("reason"))
        if status is None:
            chosen = TriageStatus("delivering", given["route"], decided_by=person.name)
            return _json(_status(decision, chosen), _UNDER_WAY)
        return _json(_status(decision, status))

    def _person(self, request: Request) -> Person:
        token = token_of(request)
        person = None if token is None else self._reviewers.who(token)
        if person is None:
            raise unauthorized("send a reviewer's bearer token that is known here", bearer=True)
        return person

    def _as(self, person: Person) -> Reviewer:
        return Reviewer(self._client, person.name, within=DONE_WITHIN)

    async def _found(self, request: Request, person: Person) -> Found:
        """The review that the address names; one of another tenant is none."""
        unknown = Problem(404, "UNKNOWN_REVIEW", "there is no such review")
        try:
            wanted = uuid.UUID(request.path_params["id"])
        except ValueError:
            raise unknown from None
        try:
            decision = await self._history.get(person.tenant, wanted)
            if decision is None:
                raise unknown
            events = await self._history.events(person.tenant, decision.coordinates.workflow_id)
            waiting = await self._history.open_reviews(
                person.tenant, 1, wanted=ReviewQuery(decision_id=wanted)
            )
        except StoreError:
            raise _no_store() from None
        asked = decision.branch is not None and decision.branch.action == "review"
        if not asked and not any(event.kind == "review_requested" for event in events):
            raise unknown
        return decision, waiting[0] if waiting else None, events


class _Refusals:
    """Turns what a run or Temporal refuses into an answer."""

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, ReviewRefused):
            raise _problem(error) from None
        if isinstance(error, RPCError):
            raise unavailable("TEMPORAL_UNAVAILABLE", "Temporal does not answer") from None


def _problem(error: ReviewRefused) -> Problem:
    if error.code in _UNPROCESSABLE:
        return unprocessable(error.code, _UNPROCESSABLE[error.code])
    if error.code == NO_WORKER:
        return unavailable(NO_WORKER, "no worker answers; it may still be taken, so look before trying again")
    if error.code == ENDED:
        return conflict(ENDED, "the run has ended and nothing waits; the review itself says what happened")
    return conflict(error.code, str(error))


async def _given(
    request: Request, known: Mapping[str, tuple[type, ...]], *, needed: Sequence[str] = ()
) -> dict[str, Any]:
    """The members of the body; nothing is an empty object."""
    headers = headers_of(request)
    body = await body_of(request, MAX_BODY_BYTES)
    if not body and not needed:
        return {}
    check_encoding(headers)
    if not ContentType.of(headers).is_json:
        raise unsupported("send application/json")
    given = parsed(body)
    strangers = len(given.keys() - known.keys())
    if strangers:
        raise malformed(f"{strangers} members are not known here; known: {', '.join(known) or 'none'}")
    for name in needed:
        if name not in given:
            raise malformed(f"{name} is missing")
    for name, value in given.items():
        if not isinstance(value, known[name]) or isinstance(value, bool):
            raise malformed(f"{name} is not of its type")
    return given


def _query_of(given: Mapping[str, str]) -> ReviewQuery:
    older_than, before = given.get("older_than"), None
    if older_than is not None:
        try:
            before = datetime.now(UTC) - age(older_than)
        except ConfigurationError as error:
            raise malformed(f"older_than: {error}") from None
    return ReviewQuery(playbook=given.get("playbook"), queue=given.get("queue"), before=before)


def _limit_of(text: str | None) -> int:
    if text is None:
        return USUAL_PAGE
    if not re.fullmatch(r"[0-9]{1,3}", text) or not 1 <= int(text) <= MAX_PAGE:
        raise malformed(f"limit is a number from 1 to {MAX_PAGE}")
    return int(text)


def _fingerprint(person: Person, wanted: ReviewQuery) -> str:
    return digest([person.tenant, wanted.playbook, wanted.queue])[:32]


def _position(cursor: str | None, person: Person, wanted: ReviewQuery) -> Position | None:
    """Where a page begins; a cursor is good for its tenant and filter alone."""
    if cursor is None:
        return None
    try:
        return Position.parse(cursor, _fingerprint(person, wanted))
    except ConfigurationError as error:
        raise malformed(str(error)) from None


def _decided(decision: Decision) -> dict[str, JSON]:
    return {
        "decision_id": str(decision.decision_id),
        "playbook": decision.playbook_id,
        "message_id": decision.ids.message,
        "state": decision.state,
    }


def _summary(one: OpenReview, now: datetime) -> dict[str, JSON]:
    return {**_decided(one.decision), "review": one.to_json(now)}


def _event(event: HistoryEvent) -> dict[str, JSON]:
    return {"at": event.at.isoformat(), "kind": event.kind, "by": event.actor, "facts": dict(event.body)}


def _status(decision: Decision, status: TriageStatus) -> dict[str, JSON]:
    return {
        "decision_id": str(decision.decision_id),
        "state": status.state,
        "route": status.route,
        "decided_by": status.decided_by,
        "destination": status.destination,
        "claimed_by": status.claimed_by,
        "claimed_until": status.claimed_until,
    }


def _done(decision: Decision, status: TriageStatus | None) -> Response:
    if status is None:
        raise unavailable("UNAVAILABLE", "it was taken and is not on record yet; look before trying again")
    return _json(_status(decision, status))


def _no_store() -> Problem:
    return unavailable("STORE_UNAVAILABLE", "the database does not answer")


def _json(body: Mapping[str, JSON], status: int = _OK) -> Response:
    """In ASCII, since a text may hold what UTF-8 cannot."""
    content = json.dumps(strict(body), allow_nan=False).encode("ascii")
    return Response(content, status, media_type="application/json")
