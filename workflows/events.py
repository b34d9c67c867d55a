"""CloudEvents as lines of JSON: read, checked, or refused with a reason. Pure."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NoReturn, TypeAlias, cast

from cloudevents.core.exceptions import CloudEventValidationError
from cloudevents.core.v1.event import CloudEvent

from classifier.audit.records import SourceEvent
from classifier.errors import PolicyError
from classifier.playbook import Playbook
from classifier.values import JSON, State, canonical_json, is_blank, json_copy

MAX_EVENT_BYTES = 1_000_000
"""As it is read."""

MAX_TRAVEL_BYTES = 1_900_000
"""As it travels, in ASCII, where a letter can take six bytes: Temporal carries 2 MiB at a time."""

StateOf: TypeAlias = Callable[[Mapping[str, Any]], State]
Choosing: TypeAlias = Callable[[str], tuple[str, Playbook[Any]]]
"""From an event's type to the key of a playbook, and the playbook."""


class TooLargeError(ValueError):
    """More than can travel."""


class UndecidableError(ValueError):
    """A good event that nothing can be decided about."""


@dataclass(frozen=True, slots=True)
class Incoming:
    """A line that holds an event."""

    line: int
    event: dict[str, Any]
    source: SourceEvent


@dataclass(frozen=True, slots=True)
class Rejected:
    """A line that does not, and why; the reason holds nothing of its content."""

    line: int
    reason: str


def by_type(playbooks: Iterable[tuple[str, Playbook[Any]]]) -> Choosing:
    """Chooses the playbook that names an event's type, else the one that takes any.

    What comes of it raises `UndecidableError` where none or several do.
    """
    first = {playbook.id: (key, playbook) for key, playbook in reversed(list(playbooks))}
    every = list(first.values())

    def choose(kind: str) -> tuple[str, Playbook[Any]]:
        found = [(key, playbook) for key, playbook in every if kind in playbook.event_types]
        found = found or [(key, playbook) for key, playbook in every if not playbook.event_types]
        if len(found) == 1:
            return found[0]
        what = "several playbooks take" if found else "no playbook takes"
        raise UndecidableError(f"{what} events of this type; say so with event_types in the app")

    return choose


def read_event(raw: bytes, line: int, tenant: str, state_of: StateOf) -> Incoming | Rejected:
    """The event in one line.

    Args:
        raw: The line.
        line: Its number, from 1.
        tenant: Whose event it is.
        state_of: What would be asked about the event; one that says nothing is refused.
    """
    try:
        event = parse_event(raw)
        check_event(event)
        check_state(state_of(event))
    except (ValueError, PolicyError) as error:
        return Rejected(line, str(error))
    return Incoming(line, event, SourceEvent(tenant, event["source"], event["id"]))


def parse_event(raw: bytes) -> dict[str, Any]:
    """The object in these bytes, which may or may not be an event.

    Raises:
        TooLargeError: More than can travel.
        ValueError: It is no JSON object; as everywhere here, the message holds nothing of its content.
    """
    if len(raw) > MAX_EVENT_BYTES:
        raise TooLargeError(f"the event is {len(raw):,} bytes, the limit is {MAX_EVENT_BYTES:,}")
    event = parse_json(raw)
    if not isinstance(event, dict):
        raise ValueError("not a JSON object")  # noqa: TRY004 - every refusal is one kind
    return cast("dict[str, Any]", event)


def parse_json(raw: bytes) -> object:
    """What these bytes say.

    Raises:
        ValueError: It is no JSON, or none that can be kept.
    """
    try:
        return json.loads(raw.decode("utf-8"), parse_constant=_not_json)
    except UnicodeDecodeError:
        raise ValueError("not UTF-8") from None
    except RecursionError:
        raise ValueError("not JSON that can be read: nested too deeply") from None
    except json.JSONDecodeError as error:
        raise ValueError(f"not JSON: {error.msg} at character {error.pos + 1}") from None


def _check_travel(event: JSON) -> None:
    try:
        size = len(canonical_json(json_copy(event, "the event")))
    except ValueError:
        raise ValueError("not JSON that can be kept: a number out of range, or nested too deeply") from None
    if size > MAX_TRAVEL_BYTES:
        raise TooLargeError(f"the event is {size:,} bytes in ASCII, the limit is {MAX_TRAVEL_BYTES:,}")


def check_event(event: dict[str, Any]) -> None:
    """Lets a CloudEvent through that can travel and be kept.

    Raises:
        TooLargeError: More than can travel.
        UndecidableError: Its data is binary.
        ValueError: It is no CloudEvent.
    """
    _check_travel(event)
    attributes = {name: value for name, value in event.items() if name not in {"data", "data_base64"}}
    missing = [name for name in ("specversion", "id", "source", "type") if name not in attributes]
    if missing:
        raise ValueError(f"not a CloudEvent: {', '.join(missing)} missing")
    if "data_base64" in event:
        raise UndecidableError("binary data cannot be decided on")
    if "time" in attributes:
        attributes["time"] = _time(attributes["time"])
    for name in ("id", "source"):
        if not _storable(attributes[name]):
            raise ValueError(f"not a CloudEvent: {name} holds characters that no identifier has")
    try:
        CloudEvent(attributes, event.get("data"))
    except CloudEventValidationError as error:
        raise ValueError(f"not a CloudEvent: {', '.join(sorted(error.errors))} invalid") from None


def check_state(state: State) -> None:
    """Lets a state through that says something.

    Raises:
        UndecidableError: It does not.
    """
    if is_blank(state):
        raise UndecidableError("there is no text to decide on")


def _time(value: object) -> datetime:
    try:
        return datetime.fromisoformat(cast("str", value))
    except (TypeError, ValueError):
        raise ValueError("not a CloudEvent: time invalid") from None


def _storable(value: object) -> bool:
    return not isinstance(value, str) or (
        "\0" not in value and not any("\ud800" <= c <= "\udfff" for c in value)
    )


def _not_json(name: str) -> NoReturn:
    raise ValueError(f"not JSON: {name} is no JSON number")
