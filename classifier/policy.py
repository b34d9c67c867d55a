"""Application policy: what `on_result` may do, and how it and `on_decision` are called. Pure.

An abort is sticky: a policy that catches what `abort` raises is still aborted. A misused `abort` is never
an accidental pass: it becomes a `PolicyError`, whatever the policy catches.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, Generic, NoReturn, TypeVar, cast

from classifier.answers import Answers
from classifier.decision import Outcome, Phase, Tripwire
from classifier.errors import PolicyError
from classifier.result import ClassifierResult
from classifier.values import JSON, json_copy

A = TypeVar("A", bound=Answers)
A_co = TypeVar("A_co", bound=Answers, covariant=True)


class PolicyAborted(Exception):
    """Raised by `PolicyContext.abort` to leave the policy; catching it changes nothing."""


class PolicyContext(Generic[A_co]):
    """What a policy sees besides the answers, and how it says what becomes of the content.

    Attributes:
        phase: "input", "output" or "stream".
        request_context: The caller's context.
        message_id: The message that is judged; None in a stream, or where it has no id.
    """

    def __init__(
        self,
        phase: Phase,
        result: ClassifierResult[A_co],
        request_context: Mapping[str, JSON] | None = None,
        message_id: str | None = None,
    ) -> None:
        self.phase = phase
        self._result = result
        self.request_context: Mapping[str, JSON] = {} if request_context is None else request_context
        self.message_id = message_id
        self._tripwire: Tripwire | None = None
        self._filtered = False
        self._fault: str | None = None

    @property
    def result(self) -> ClassifierResult[A_co]:
        """The whole result: answers, usage, provider metadata."""
        return self._result

    def abort(self, reason: str, metadata: JSON = None) -> NoReturn:
        """Ends the request with a tripwire.

        Args:
            reason: A stable code or sentence of the application; the caller sees exactly this.
            metadata: JSON for the caller.

        Raises:
            PolicyAborted: Always; there is nothing to do after an abort. The first abort counts.
        """
        if self._tripwire is None and self._fault is None:
            self._trip(reason, metadata)
        raise PolicyAborted

    def filter(self) -> None:
        """Drops this message or chunk and goes on; a later abort wins."""
        self._filtered = True

    def _trip(self, reason: object, metadata: object) -> None:
        if not isinstance(reason, str) or not reason.strip():
            self._fault = "called abort without a reason"
            return
        try:
            self._tripwire = Tripwire(reason, json_copy(metadata, "metadata"))
        except ValueError:
            self._fault = "called abort with metadata that is not JSON"

    def ruling(self, policy: str) -> Ruling:
        """What was decided so far.

        Raises:
            PolicyError: An abort was misused; the message starts with `policy`.
        """
        if self._fault is not None:
            raise PolicyError(f"{policy} {self._fault}")
        if self._tripwire is not None:
            return Ruling("aborted", self._tripwire)
        return _FILTERED if self._filtered else _ALLOWED


@dataclass(frozen=True, slots=True)
class Ruling:
    """What a policy made of the answers."""

    outcome: Outcome
    tripwire: Tripwire | None = None


_ALLOWED, _FILTERED = Ruling("allowed"), Ruling("filtered")


async def rule(
    policy: Callable[[A, PolicyContext[A]], Awaitable[None] | None],
    context: PolicyContext[A],
    *,
    processor: str,
) -> Ruling:
    """Asks a policy what becomes of the content.

    Raises:
        PolicyError: The policy raised something else than its abort, or misused it; only the kind of the
            exception is named.
    """
    named = f"on_result of processor {processor!r}"
    raised = await call(policy, context.result.answers, context)
    ruling = context.ruling(named)
    if raised is None or ruling.tripwire is not None:
        return ruling
    raise PolicyError(f"{named} raised {type(raised).__name__}") from raised


async def call(function: Callable[..., Any], *arguments: object) -> Exception | None:
    """Calls a user's function, an async one here and a plain one in a thread; gives back what it raised."""
    if inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(_call_of(function)):
        returned: object = function(*arguments)
    else:
        returned = await asyncio.to_thread(_called, function, arguments)
    if not inspect.isawaitable(returned):
        return returned if isinstance(returned, Exception) else None
    try:
        await cast("Awaitable[object]", returned)
    except Exception as error:  # noqa: BLE001 - the caller decides; a cancel is no Exception
        return error
    return None


def _called(function: Callable[..., Any], arguments: tuple[object, ...]) -> object:
    try:
        returned: object = function(*arguments)
    except Exception as error:  # noqa: BLE001 - handed back: a StopIteration cannot cross a thread
        return error
    return returned if inspect.isawaitable(returned) else None


def _call_of(function: object) -> object:
    return getattr(function, "__call__", None)  # noqa: B004 - an object with an async __call__
