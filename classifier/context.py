"""The caller's JSON that travels with a run, and the ids read from it. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias, cast

from classifier.errors import ConfigurationError
from classifier.values import JSON, canonical_json, json_copy

RequestContext: TypeAlias = Mapping[str, JSON]
"""Reaches `on_result`, `on_decision` and the record; size-capped, never holds a secret."""

TENANT_KEY = "tenant_id"
THREAD_ID_KEY = "thread_id"
RESOURCE_ID_KEY = "resource_id"
TRACE_ID_KEY = "trace_id"

DEFAULT_TENANT = "default"
MAX_CONTEXT_BYTES = 64 * 1024


def checked_context(context: Mapping[str, object] | None) -> dict[str, JSON]:
    """A copy of the caller's context as JSON.

    Raises:
        ConfigurationError: It is not JSON, or larger than 64 KiB in canonical form.
    """
    try:
        copied = cast("dict[str, JSON]", json_copy(context or {}, "request context"))
    except ValueError as error:
        raise ConfigurationError(str(error)) from error
    size = len(canonical_json(copied))
    if size > MAX_CONTEXT_BYTES:
        raise ConfigurationError(f"request context is {size} bytes, the limit is {MAX_CONTEXT_BYTES}")
    return copied


def tenant_of(context: RequestContext) -> str:
    """The tenant a run belongs to; "default" where the context names none."""
    return text_of(context, TENANT_KEY) or DEFAULT_TENANT


def text_of(context: RequestContext, key: str) -> str | None:
    """The text under `key`, or None where there is none."""
    value = context.get(key)
    return value if isinstance(value, str) and value else None
