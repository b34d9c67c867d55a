"""What processors look at: messages made of parts, and the parts of a stream. Pure.

Only text is judged. Everything else (tool calls, images, reasoning) travels along untouched.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias, cast

from classifier.errors import ConfigurationError
from classifier.values import JSON, json_copy


@dataclass(frozen=True, slots=True)
class TextPart:
    """Text of a message."""

    text: str


@dataclass(frozen=True, slots=True)
class DataPart:
    """Anything in a message that is not text; never judged."""

    data: JSON


Part: TypeAlias = TextPart | DataPart


@dataclass(frozen=True, slots=True)
class Message:
    """A message of a conversation.

    Attributes:
        content: Text, or parts in order.
        role: Who speaks; passed along.
        id: The caller's id, for the record.
        thread: The conversation it belongs to, where the run does not say.
        resource: Whose it is, where the run does not say.
    """

    content: str | tuple[Part, ...]
    role: str = "user"
    id: str | None = None
    thread: str | None = None
    resource: str | None = None

    @property
    def text(self) -> str:
        """The text parts joined by a space, or the content itself, without surrounding whitespace."""
        if isinstance(self.content, str):
            return self.content.strip()
        return " ".join(part.text for part in self.content if isinstance(part, TextPart)).strip()


@dataclass(frozen=True, slots=True)
class TextDelta:
    """A piece of streamed text; any other object in a stream passes untouched."""

    text: str


def message_to_json(message: Message) -> dict[str, JSON]:
    """A message as JSON, without what is absent; `message_from_json` reads it back."""
    known = {"id": message.id, "thread": message.thread, "resource": message.resource}
    body: dict[str, JSON] = {"role": message.role, "content": _content_to_json(message.content)}
    return body | {key: value for key, value in known.items() if value is not None}


def message_from_json(body: Mapping[str, Any]) -> Message:
    """Reads what `message_to_json` wrote, and messages with `{"type": "text"}` parts as chat APIs send them.

    Raises:
        ConfigurationError: There is no content, or a field is of the wrong type.
    """
    unknown = set(body) - {"content", "role", "id", "thread", "resource"}
    if unknown:
        raise ConfigurationError(f"a message has no field {min(unknown)!r}")
    fields: dict[str, Any] = {key: body[key] for key in ("role", "id", "thread", "resource") if key in body}
    if any(not isinstance(value, str) and value is not None for value in fields.values()):
        raise ConfigurationError("role, id, thread and resource of a message are text")
    return Message(_content_from_json(body.get("content")), **fields)


def _content_to_json(content: str | tuple[Part, ...]) -> JSON:
    if isinstance(content, str):
        return content
    return [
        {"type": "text", "text": part.text} if isinstance(part, TextPart) else part.data for part in content
    ]


def _content_from_json(content: object) -> str | tuple[Part, ...]:
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        raise ConfigurationError("the content of a message is text or a list of parts")
    return tuple(_part_from_json(part) for part in cast("list[object]", content))


def _part_from_json(part: object) -> Part:
    text = part if isinstance(part, str) else _text_of(part)
    if text is not None:
        return TextPart(text)
    try:
        return DataPart(json_copy(part, "a part of a message"))
    except ValueError as error:
        raise ConfigurationError(str(error)) from error


def _text_of(part: object) -> str | None:
    if not isinstance(part, dict):
        return None
    fields = cast("dict[str, object]", part)
    text = fields.get("text")
    return text if fields.get("type") == "text" and isinstance(text, str) else None
