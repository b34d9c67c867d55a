"""What a turn and its thread know of each other. Pure and sandbox-safe."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from activities.chat_messages import Event, ToolCall
from workflows.agent_messages import Approval, Turn, TurnOutcome


class Thread(Protocol):
    """What a turn needs of its thread."""

    def turns_before(self) -> Sequence[Turn]:
        """What is over."""
        ...

    def publish(self, event: Event) -> None:
        """Tells readers."""
        ...

    def next_activity_id(self, kind: str) -> str:
        """An id that no other activity of the run has."""
        ...

    def listen(self, activity_id: str | None) -> None:
        """From now on only this model call may publish."""
        ...

    async def approval(self, call: ToolCall, name: str) -> tuple[Approval, bool]:
        """Waits for a person; whether they approve."""
        ...


@dataclass(frozen=True)
class Ending:
    """How a turn ends."""

    outcome: TurnOutcome
    phase: str | None = None
    tripwire: dict[str, Any] | None = None
    processor: str | None = None
    code: str | None = None
    may_retry: bool = False
