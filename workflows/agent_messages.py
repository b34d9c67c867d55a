"""Inputs, updates, queries and results of agent threads. Pure and sandbox-safe; plain JSON fields."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

from classifier.values import digest

AGENT = "classifier.thread"
SEND = "send"
STOP = "stop"
APPROVE = "approve"
DENY = "deny"
TRANSCRIPT = "transcript"
STATE = "state"

BUSY = "THREAD_BUSY"
"""Type of the error that says: not now, send it again."""

TurnOutcome: TypeAlias = Literal["finished", "filtered", "blocked", "stopped", "failed"]
TurnEvent: TypeAlias = Literal["finished", "filtered", "blocked", "retracted", "stopped", "failed"]

SOFT_EVENTS = 4_000
MAX_MESSAGE_CHARACTERS = 200_000
MAX_ID_CHARACTERS = 200


@dataclass(frozen=True)
class Send:
    """Input of the update `send`: a message to the agent.

    Attributes:
        id: The caller's id of the message; sent again, it gives back what came of it the first time. Use it
            as the update's id too.
        text: What is said.
        context: Added to the thread's request context for this turn; the tenant stays the thread's.
    """

    id: str
    text: str
    context: dict[str, Any] = field(default_factory=dict[str, Any])


@dataclass(frozen=True)
class Stop:
    """Input of the update and signal `stop`: ends the reply, not the thread.

    Attributes:
        turn: The id of the message whose reply ends; None means the one that is being written.
        by: Who stops it.
        reason: Why, in the person's words.
    """

    turn: str | None = None
    by: str | None = None
    reason: str | None = None


@dataclass(frozen=True)
class Approval:
    """Input of the updates and signals `approve` and `deny`.

    Attributes:
        call: The tool call, as the event and the state name it.
        by: Who decides.
        reason: Why, in the person's words; the model is told when it is denied.
    """

    call: str
    by: str
    reason: str | None = None


@dataclass(frozen=True)
class Done:
    """A tool call of a turn.

    Attributes:
        id: The call's name in the thread.
        model_id: The call's name in the conversation.
        name: The tool.
        text: The arguments as the model wrote them; empty where they were withheld.
        state: "finished", "failed", "withheld", "denied", "rejected" (not run) or "stopped".
        result: What the model is told.
    """

    id: str
    model_id: str
    name: str
    text: str
    state: Literal["finished", "failed", "withheld", "denied", "rejected", "stopped"]
    result: str


@dataclass(frozen=True)
class Step:
    """A model call of a turn: the text that was released, and what it had done."""

    text: str = ""
    calls: list[Done] = field(default_factory=list[Done])


@dataclass(frozen=True)
class Turn:
    """A message and what came of it: the result of `send`, and an entry of the transcript.

    Attributes:
        id: The message's id.
        outcome: "finished"; "filtered": nothing of message or reply was left; "blocked": a processor
            aborted; "stopped" by a person; "failed": no usable reply.
        event: The terminal event readers got; "retracted" where text had been released before.
        text: The message; empty where it was filtered or blocked.
        steps: The reply, as far as it may be shown, and the tools that ran.
        tripwire: Reason and metadata of an abort.
        processor: Whose abort.
        phase: Where: "input", "stream", "output", "arguments" or "results".
        code: For "failed", the code of the error.
        decision_ids: Every decision of the turn, in order.
        model_calls: How often the model was asked.
        input_tokens: What it read, as far as it says.
        output_tokens: What it wrote.
        forgotten: Whether texts were dropped since, because the thread became too long to carry them.
    """

    id: str
    outcome: TurnOutcome
    event: TurnEvent
    text: str = ""
    steps: list[Step] = field(default_factory=list[Step])
    tripwire: dict[str, Any] | None = None
    processor: str | None = None
    phase: str | None = None
    code: str | None = None
    decision_ids: list[str] = field(default_factory=list[str])
    model_calls: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    forgotten: bool = False

    @property
    def reply(self) -> str:
        """The reply's text."""
        return "".join(step.text for step in self.steps)


@dataclass(frozen=True)
class Waiting:
    """A tool call that waits for a person."""

    call: str
    name: str
    arguments: dict[str, Any]


@dataclass(frozen=True)
class ThreadState:
    """Result of the query `state`.

    Attributes:
        status: "idle", "working" or "approval" (a tool call waits for a person).
        turn: The message that is being answered.
        reply: What was released of the reply so far.
        waiting: The tool call that waits.
        queued: Messages behind it.
        turns: How many turns are over.
        offset: Where the stream of events ends.
    """

    status: Literal["idle", "working", "approval"]
    turn: str | None = None
    reply: str = ""
    waiting: Waiting | None = None
    queued: list[str] = field(default_factory=list[str])
    turns: int = 0
    offset: int = 0


@dataclass(frozen=True)
class Carried:
    """What a thread takes along when it continues as a new run.

    Lists of plain JSON, since a converter takes so long over dataclasses that Temporal takes a run with
    thousands of them for dead.

    Attributes:
        turns: Every turn, oldest first, as `turn_to_json` writes it; of the oldest perhaps only the outcome.
        events: The newest events, as the stream keeps them.
        offset: Where the first of them stands.
        forgotten: How many turns before these are not even known by their id any more.
    """

    turns: list[str] = field(default_factory=list[str])
    events: list[str] = field(default_factory=list[str])
    offset: int = 0
    forgotten: int = 0


@dataclass(frozen=True)
class ThreadRequest:
    """Input of an agent's workflow, which is one thread.

    Attributes:
        agent: Key or id of an agent the worker's app registers.
        context: The request context; reaches policy and record, and says whose thread it is (`tenant_id`).
        thread: The conversation's id; the workflow's, where left out.
        resource: The person or thing it is about.
        events: Between two turns, a history this long is reason enough to go on as a new run.
        carried: What the run before has left; callers leave it out.
    """

    agent: str
    context: dict[str, Any] = field(default_factory=dict[str, Any])
    thread: str | None = None
    resource: str | None = None
    events: int = SOFT_EVENTS
    carried: Carried | None = None


def thread_workflow_id(tenant: str, thread: str) -> str:
    """The one workflow of a thread; 39 characters, whatever callers call things."""
    return f"thread-{digest([tenant, thread])[:32]}"
