"""Where a decision service is, how it is spoken to, and what of that comes from the environment. Pure."""

from __future__ import annotations

import hmac
import urllib.request
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import NoReturn, TypeAlias
from urllib.parse import SplitResult, urlsplit

from classifier.addresses import web_address
from classifier.models.http_errors import COMMON_CODES, CodeTable

_REQUEST_ID_HEADERS = ("x-typesafe-request-id", "x-request-id")
_SHORTEST_SECRET = 4
_USER_AGENT = "temporal-classifier"


class Secret:
    """A key. Its value comes out of `reveal` only, never out of `repr`, `str` or a format."""

    __slots__ = ("_value",)

    def __init__(self, value: str) -> None:
        self._value = value

    def reveal(self) -> str:
        """The key itself."""
        return self._value

    def is_in(self, text: str) -> bool:
        """Whether `text` holds the key."""
        return len(self._value) >= _SHORTEST_SECRET and self._value in text

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Secret) and hmac.compare_digest(self._value.encode(), other._value.encode())

    def __hash__(self) -> int:
        return hash(self._value)

    def __repr__(self) -> str:
        return "Secret(***)"

    def __reduce__(self) -> NoReturn:
        raise TypeError("a secret is not pickled")


@dataclass(frozen=True, slots=True)
class Timeouts:
    """How long a call may take, in seconds.

    Attributes:
        connect: To open a connection.
        read: Between two pieces of the answer.
        write: To send the request; bounded by `total`, since the transport knows no limit of its own.
        pool: To get a free connection.
        total: For the whole call.
    """

    connect: float = 10.0
    read: float = 10.0
    write: float = 10.0
    pool: float = 10.0
    total: float = 30.0

    def by_phase(self) -> dict[str, float]:
        """As httpx names them."""
        return {"connect": self.connect, "read": self.read, "write": self.write, "pool": self.pool}


DEFAULT_TIMEOUTS = Timeouts()

Auth: TypeAlias = Callable[[str], tuple[str, str]]
"""Header name and value for a key."""


def bearer(key: str) -> tuple[str, str]:
    """`Authorization: Bearer …`."""
    return "authorization", f"Bearer {key}"


def key_header(name: str) -> Auth:
    """The bare key in the header `name`."""
    return lambda key: (name, key)


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """Where a service is and how it is spoken to.

    Attributes:
        path: Appended to the address.
        base_url: The address given by the caller; wins over `base_url_variables`.
        default_base_url: Where neither is set.
        base_url_variables: Environment variables that may hold the address.
        api_key: The key given by the caller; wins over `api_key_variables`.
        api_key_variables: Environment variables that may hold the key, the first that is set counts.
        key_required: Whether a missing key is a problem.
        auth: The header that carries the key.
        headers: Sent with every request; not shown in a repr, since they may be secret too.
        timeouts: Per call.
        connections: Most connections open at once.
        codes: The service's error codes that win over the status.
        request_id_headers: Where the service names the request.
        max_request_bytes: A longer request is refused before any I/O; None where no limit is known.
        max_response_bytes: A longer answer is refused.
    """

    path: str
    base_url: str | None = None
    default_base_url: str | None = None
    base_url_variables: tuple[str, ...] = ()
    api_key: str | None = field(default=None, repr=False)
    api_key_variables: tuple[str, ...] = ()
    key_required: bool = True
    auth: Auth = bearer
    headers: Mapping[str, str] = field(default_factory=dict[str, str], repr=False)
    timeouts: Timeouts = DEFAULT_TIMEOUTS
    connections: int = 100
    codes: CodeTable = field(default_factory=lambda: COMMON_CODES)
    request_id_headers: tuple[str, ...] = _REQUEST_ID_HEADERS
    max_request_bytes: int | None = None
    max_response_bytes: int = 8 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Settings:
    """An endpoint with its variables filled in.

    Attributes:
        address: Without the path.
        headers: With the key.
        secrets: What no message may hold.
        proxy: From the usual variables; None for a direct connection.
        problems: Sentences; with any, nothing can be sent.
    """

    address: str = field(repr=False)
    headers: Mapping[str, str] = field(repr=False)
    secrets: tuple[Secret, ...] = field(repr=False)
    proxy: str | None = field(repr=False)
    problems: tuple[str, ...]

    def without_secrets(self, texts: tuple[str, ...]) -> tuple[str, ...]:
        """Those of `texts` that do not hold a key, which a service may have sent back."""
        return tuple(text for text in texts if not any(secret.is_in(text) for secret in self.secrets))


def resolve(endpoint: Endpoint, environ: Mapping[str, str], service: str) -> Settings:
    """Fills in the variables; what is missing or cannot be right becomes a sentence naming its variable."""
    address = endpoint.base_url or _first(environ, endpoint.base_url_variables) or endpoint.default_base_url
    key = (endpoint.api_key or "").strip() or _first(environ, endpoint.api_key_variables)
    faults = (
        _address_fault(address, _named(endpoint.base_url_variables, "base_url")),
        _key_fault(key, _named(endpoint.api_key_variables, "api_key"), required=endpoint.key_required),
        *(
            f"the header {name!r} cannot be sent"
            for name in endpoint.headers
            if not _sendable(endpoint, name)
        ),
    )
    problems = tuple(f"{service}: {fault}" for fault in faults if fault)
    headers = {"content-type": "application/json", "accept": "application/json"}
    headers |= {"accept-encoding": "identity", "user-agent": _USER_AGENT}
    if not problems:
        headers |= {name.lower(): value for name, value in endpoint.headers.items()}
    if key and not problems:
        headers.update([endpoint.auth(key)])
    return Settings(
        address=(address or "").rstrip("/"),
        headers=MappingProxyType(headers),
        secrets=tuple(Secret(value) for value in (key, *endpoint.headers.values()) if value),
        proxy=None if problems or not address else _proxy(urlsplit(address), environ),
        problems=problems,
    )


def own_key_only(endpoint: Endpoint) -> Endpoint:
    """The endpoint without its key variables where the caller's address is another service's.

    A key from the environment travels to the service it is for (its usual host, or another of the same
    domain), never to an address that code happens to name.
    """
    if endpoint.base_url is None or endpoint.default_base_url is None:
        return endpoint
    domain = _host(endpoint.default_base_url).partition(".")[2]
    host = _host(endpoint.base_url)
    if host == domain or host.endswith(f".{domain}"):
        return endpoint
    return replace(endpoint, api_key_variables=(), key_required=False)


def _host(address: str) -> str:
    try:
        return urlsplit(address).hostname or ""
    except ValueError:
        return ""


def _first(environ: Mapping[str, str], names: tuple[str, ...]) -> str | None:
    return next((value for name in names if (value := environ.get(name, "").strip())), None)


def _named(variables: tuple[str, ...], argument: str) -> str:
    return " or ".join(variables) or argument


def _key_fault(key: str | None, named: str, *, required: bool) -> str | None:
    if not key:
        return f"a key is needed; set {named}" if required else None
    if not key.isascii() or not key.isprintable() or " " in key:
        return f"the key in {named} holds characters that a header cannot carry"
    return None


def _sendable(endpoint: Endpoint, name: str) -> bool:
    value = endpoint.headers[name]
    return name.isascii() and name.isprintable() and value.isascii() and value.isprintable()


def _address_fault(address: str | None, named: str) -> str | None:
    if not address:
        return f"an address is needed; set {named}"
    parts = web_address(address)
    if parts is None:
        return f"the address in {named} is not an http or https URL"
    if parts.username is not None or parts.query or parts.fragment:
        return f"the address in {named} must be without user, query and fragment; a key has its own place"
    return None


def _proxy(address: SplitResult, environ: Mapping[str, str]) -> str | None:
    """The proxy that the usual variables name for an address."""
    bypassed = _first(environ, ("no_proxy", "NO_PROXY")) or ""
    if urllib.request.proxy_bypass_environment(address.netloc, {"no": bypassed}):  # type: ignore[attr-defined]
        return None
    names = (f"{address.scheme}_proxy", f"{address.scheme.upper()}_PROXY", "all_proxy", "ALL_PROXY")
    return _first(environ, names)
