"""CloudEvents in an HTTP request: one in the body, one in headers and body, or a batch. Pure.

Structured, binary and batched mode as the CloudEvents HTTP binding describes them; JSON is the only format.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias, cast
from urllib.parse import unquote

from service.problems import Problem, malformed, too_large, unsupported
from workflows.events import MAX_EVENT_BYTES, TooLargeError, parse_event, parse_json

STRUCTURED = "application/cloudevents+json"
BATCH = "application/cloudevents-batch+json"
MAX_BATCH_BYTES = 8_000_000
MAX_BATCH_EVENTS = 200

_PREFIX = "ce-"
_UTF_8 = {"", "utf-8", "utf8", "us-ascii"}

Headers: TypeAlias = Sequence[tuple[str, str]]
"""As they came, names in small letters."""


@dataclass(frozen=True, slots=True)
class ContentType:
    """What a body is said to be.

    Attributes:
        media: Such as "application/json", in small letters; empty where nothing is said.
        charset: In small letters; empty where nothing is said.
    """

    media: str
    charset: str

    @classmethod
    def of(cls, headers: Headers) -> ContentType:
        """Reads `Content-Type`."""
        text = dict(headers).get("content-type", "")
        media, *parameters = (part.strip().lower() for part in text.split(";"))
        pairs = (parameter.partition("=") for parameter in parameters)
        return cls(media, next((value.strip('"') for name, _, value in pairs if name == "charset"), ""))

    @property
    def is_json(self) -> bool:
        """Whether it is JSON of any kind."""
        return self.media in {"application/json", "text/json"} or self.media.endswith("+json")


@dataclass(frozen=True, slots=True)
class Posted:
    """What a request holds.

    Attributes:
        events: Objects that may or may not be CloudEvents, or why there is none in that place.
        is_batch: Whether the sender expects an answer for each.
    """

    events: Sequence[dict[str, Any] | Problem]
    is_batch: bool


def limit_of(headers: Headers) -> int:
    """How many bytes the body may have."""
    return MAX_BATCH_BYTES if ContentType.of(headers).media == BATCH else MAX_EVENT_BYTES


def check_encoding(headers: Headers) -> None:
    """Refuses what the bytes cannot be read as, before they are.

    Raises:
        Problem: 415.
    """
    if dict(headers).get("content-encoding", "identity").lower() != "identity":
        raise unsupported("send the body without a content encoding")
    if ContentType.of(headers).charset not in _UTF_8:
        raise unsupported("send the body in UTF-8")


def posted(headers: Headers, body: bytes) -> Posted:
    """The events of a request.

    Raises:
        Problem: There is none: 400, 413 or 415.
    """
    content = ContentType.of(headers)
    if content.media == STRUCTURED:
        return Posted([parsed(body)], is_batch=False)
    if content.media == BATCH:
        return Posted(_batch(body), is_batch=True)
    if any(name == "ce-specversion" for name, _ in headers):
        return Posted([_binary(headers, content, body)], is_batch=False)
    raise unsupported(f"send a CloudEvent as {STRUCTURED}, as {BATCH}, or with ce- headers")


def parsed(body: bytes) -> dict[str, Any]:
    """The object in a body.

    Raises:
        Problem: 400 or 413.
    """
    try:
        return parse_event(body)
    except TooLargeError:
        raise too_large(MAX_EVENT_BYTES) from None
    except ValueError as error:
        raise malformed(str(error)) from None


def _batch(body: bytes) -> Sequence[dict[str, Any] | Problem]:
    try:
        events = parse_json(body)
    except ValueError as error:
        raise malformed(str(error)) from None
    if not isinstance(events, list):
        raise malformed("a batch is a JSON array of events")
    found = cast("list[object]", events)
    if len(found) > MAX_BATCH_EVENTS:
        raise Problem(413, "TOO_LARGE", f"a batch holds at most {MAX_BATCH_EVENTS} events")
    return [
        cast("dict[str, Any]", event) if isinstance(event, dict) else malformed("not a JSON object")
        for event in found
    ]


def _binary(headers: Headers, content: ContentType, body: bytes) -> dict[str, Any]:
    try:
        event = dict(_attributes(headers))
        data = _data(content, body)
    except ValueError as error:
        raise malformed(str(error)) from None
    if content.media:
        event["datacontenttype"] = content.media
    return event if data is None else event | {"data": data}


def _attributes(headers: Headers) -> Iterable[tuple[str, str]]:
    given: set[str] = set()
    for name, value in headers:
        if not name.startswith(_PREFIX):
            continue
        if name in given:
            raise ValueError("a ce- header is there twice")
        if name in {"ce-data", "ce-data_base64", "ce-datacontenttype"}:
            raise ValueError("data and its type are no ce- headers")
        given.add(name)
        try:
            yield name.removeprefix(_PREFIX), unquote(value, errors="strict")
        except UnicodeDecodeError:
            raise ValueError("a ce- header is not percent-encoded UTF-8") from None


def _data(content: ContentType, body: bytes) -> object:
    if not body:
        return None
    if content.is_json or not content.media:
        return parse_json(body)
    if content.media.startswith("text/"):
        try:
            return body.decode("utf-8")
        except UnicodeDecodeError:
            raise ValueError("not UTF-8") from None
    raise unsupported(f"data of type {content.media!r} cannot be decided on; send JSON or text")
