"""What the environment says about the service: who may send, and how much. Pure."""

from __future__ import annotations

import hashlib
import hmac
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TypeVar
from urllib.parse import unquote

from classifier.errors import ConfigurationError
from service.signatures import SCHEMES, Scheme
from workflows.messages import CLASSIFIER, DEADLINE

TOKENS = "CLASSIFIER_TOKENS"
REVIEWERS = "CLASSIFIER_REVIEWERS"
WEBHOOKS = "CLASSIFIER_WEBHOOKS"
SHORTEST_SECRET = 16

_SEPARATOR = re.compile(r"[\s,]+")
_NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,63}")

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Tokens:
    """Bearer tokens, each bound to a tenant; their hashes only.

    Attributes:
        by_hash: Tenant by the SHA-256 of the token.
    """

    by_hash: Mapping[bytes, str] = field(default_factory=dict[bytes, str], repr=False)

    def tenant(self, token: str) -> str | None:
        """Whose token it is."""
        return _holder(self.by_hash, token)


@dataclass(frozen=True, slots=True)
class Person:
    """Somebody who reviews the events of a tenant; the name is the actor on record."""

    tenant: str
    name: str


@dataclass(frozen=True, slots=True)
class Reviewers:
    """Bearer tokens of people who review; their hashes only.

    Attributes:
        by_hash: Person by the SHA-256 of the token.
    """

    by_hash: Mapping[bytes, Person] = field(default_factory=dict[bytes, Person], repr=False)

    def who(self, token: str) -> Person | None:
        """Whose token it is."""
        return _holder(self.by_hash, token)


@dataclass(frozen=True, slots=True)
class Webhook:
    """A place that signs what it sends.

    Attributes:
        name: Its path is `/webhooks/` and this.
        tenant: Whose its events are.
        scheme: How it signs.
    """

    name: str
    tenant: str
    scheme: Scheme = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Caps:
    """How much is taken at most.

    Attributes:
        tenant_rate: Events a second of one tenant; ten seconds' worth may come at once.
        actor_rate: Events a second that one actor causes; likewise.
        subject_rate: Events a minute about one subject; more are taken for a loop.
        in_flight: Events being accepted at the same time.
        backlog: Tasks that wait for workers in Temporal.
    """

    tenant_rate: int = 100
    actor_rate: int = 20
    subject_rate: int = 30
    in_flight: int = 500
    backlog: int = 50_000


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceSettings:
    """Everything the service is configured with.

    Attributes:
        tokens: Who may post to `/events`.
        webhooks: Who may post to `/webhooks/…`, by name.
        reviewers: Who may read and decide under `/reviews`.
        caps: How much.
    """

    tokens: Tokens = field(default_factory=Tokens)
    reviewers: Reviewers = field(default_factory=Reviewers)
    webhooks: Mapping[str, Webhook] = field(default_factory=dict[str, Webhook])
    caps: Caps = field(default_factory=Caps)

    @classmethod
    def from_environ(cls, environ: Mapping[str, str]) -> ServiceSettings:
        """Reads it.

        Raises:
            ConfigurationError: Nobody could send anything, or something cannot be read; names the variable,
                repeats no secret.
        """
        tokens = _tokens(environ.get("CLASSIFIER_TOKENS") or "")
        webhooks = _webhooks(environ.get("CLASSIFIER_WEBHOOKS") or "", environ)
        reviewers = _reviewers(environ.get("CLASSIFIER_REVIEWERS") or "", tokens)
        if not tokens.by_hash and not webhooks and not reviewers.by_hash:
            raise ConfigurationError(
                f"{TOKENS} is not set, so nobody could send an event; give it tenant:token pairs, "
                f"or give {WEBHOOKS} who signs"
            )
        usual = Caps()
        caps = Caps(
            tenant_rate=_number(TENANT_RATE_VARIABLE, environ.get(TENANT_RATE_VARIABLE), usual.tenant_rate),
            actor_rate=_number(ACTOR_RATE_VARIABLE, environ.get(ACTOR_RATE_VARIABLE), usual.actor_rate),
            subject_rate=_number(
                SUBJECT_RATE_VARIABLE, environ.get(SUBJECT_RATE_VARIABLE), usual.subject_rate
            ),
            in_flight=_number(IN_FLIGHT_VARIABLE, environ.get(IN_FLIGHT_VARIABLE), usual.in_flight),
            backlog=_number(BACKLOG_VARIABLE, environ.get(BACKLOG_VARIABLE), usual.backlog),
        )
        return cls(tokens=tokens, webhooks=webhooks, reviewers=reviewers, caps=caps)


TENANT_RATE_VARIABLE = "CLASSIFIER_TENANT_RATE"
ACTOR_RATE_VARIABLE = "CLASSIFIER_ACTOR_RATE"
SUBJECT_RATE_VARIABLE = "CLASSIFIER_SUBJECT_RATE"
IN_FLIGHT_VARIABLE = "CLASSIFIER_IN_FLIGHT"
BACKLOG_VARIABLE = "CLASSIFIER_BACKLOG"


def _tokens(text: str) -> Tokens:
    by_hash: dict[bytes, str] = {}
    for number, pair in enumerate(_parts(text), 1):
        tenant, _, token = pair.partition(":")
        if not tenant or len(token) < SHORTEST_SECRET:
            raise ConfigurationError(
                f"{TOKENS}, pair {number}: write tenant:token, the token of at least {SHORTEST_SECRET} "
                "characters"
            )
        if by_hash.setdefault(_hash(token), tenant) != tenant:
            raise ConfigurationError(f"{TOKENS}, pair {number}: the token is another tenant's already")
    return Tokens(by_hash)


def _reviewers(text: str, tokens: Tokens) -> Reviewers:
    """A reviewer's token is nobody else's: who may send events may not read what others sent."""
    by_hash: dict[bytes, Person] = {}
    for number, part in enumerate(_parts(text), 1):
        tenant, name, token = [*part.split(":", 2), "", ""][:3]
        person = Person(tenant, unquote(name).strip())
        if not tenant or not person.name or len(token) < SHORTEST_SECRET:
            raise ConfigurationError(
                f"{REVIEWERS}, part {number}: write tenant:name:token, a space in the name as %20, the token "
                f"of at least {SHORTEST_SECRET} characters"
            )
        if person.name in {CLASSIFIER, DEADLINE}:
            raise ConfigurationError(f"{REVIEWERS}, part {number}: no person is called {person.name!r}")
        if _hash(token) in tokens.by_hash or by_hash.setdefault(_hash(token), person) != person:
            raise ConfigurationError(f"{REVIEWERS}, part {number}: the token is somebody else's already")
    return Reviewers(by_hash)


def _holder(by_hash: Mapping[bytes, T], token: str) -> T | None:
    """Whose token it is, in a time that says nothing about how much of it fits."""
    given = _hash(token)
    found: T | None = None
    for known, holder in by_hash.items():
        if hmac.compare_digest(known, given):
            found = holder
    return found


def _hash(token: str) -> bytes:
    return hashlib.sha256(token.encode("utf-8", "surrogateescape")).digest()


def _webhooks(text: str, environ: Mapping[str, str]) -> dict[str, Webhook]:
    found: dict[str, Webhook] = {}
    for number, part in enumerate(_parts(text), 1):
        name, _, rest = part.partition("=")
        scheme, tenant, variable = [*rest.split(":"), "", "", ""][:3]
        if not _NAME.fullmatch(name) or scheme not in SCHEMES or not tenant or not variable:
            known = " or ".join(sorted(SCHEMES))
            raise ConfigurationError(
                f"{WEBHOOKS}, part {number}: write name=scheme:tenant:VARIABLE, the name in small letters, "
                f"digits, - and _, the scheme {known}, the variable the one that holds the secrets"
            )
        if name in found:
            raise ConfigurationError(f"{WEBHOOKS} names {name!r} twice")
        found[name] = Webhook(name, tenant, _scheme(name, scheme, variable, environ))
    return found


def _scheme(name: str, scheme: str, variable: str, environ: Mapping[str, str]) -> Scheme:
    secrets = list(_parts(environ.get(variable) or ""))
    if not secrets:
        raise ConfigurationError(
            f"{variable} is not set; webhook {name!r} needs it, as one secret or, while they change, several"
        )
    if any(len(secret) < SHORTEST_SECRET for secret in secrets):
        raise ConfigurationError(f"{variable}: a secret has at least {SHORTEST_SECRET} characters")
    try:
        return SCHEMES[scheme](secrets)
    except ValueError:
        raise ConfigurationError(
            f"{variable}: a {scheme} secret is base64, mostly with whsec_ before it"
        ) from None


def _parts(text: str) -> Iterable[str]:
    return (part for part in _SEPARATOR.split(text) if part)


def _number(variable: str, given: str | None, usual: int) -> int:
    if not given:
        return usual
    if not (given.isascii() and given.isdecimal()) or int(given) < 1:
        raise ConfigurationError(f"{variable} is {given!r}; it must be a whole number of at least 1")
    return int(given)
