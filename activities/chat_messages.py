"""Names, inputs and results of the agents' activities, and a thread's events. Pure; plain JSON fields.

A thread publishes events on the topic `thread`, each an object with `type` and `turn` (the message's id):

| type | fields | meaning |
|---|---|---|
| started | | the message is being worked on |
| text | step, text | released text of the reply |
| restart | step | what was released in this step is void and comes anew; -1: the whole reply |
| tool | call, name, state | started, finished, failed, withheld, denied or approval (then with arguments) |
| ended | outcome, event, … | the one terminal event of a turn |
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

CHAT = "agent.chat"
DESCRIBE = "agent.describe"
NOTE = "agent.note"

TOPIC = "thread"
RECORDS = "records"
"""Decisions that could not be stored travel under this topic; readers never see it."""
PUBLISH = "__temporal_workflow_stream_publish"
POLL = "__temporal_workflow_stream_poll"
"""The signal and the update that a `WorkflowStream` takes batches and readers by."""

Event: TypeAlias = dict[str, Any]
WHOLE_REPLY = -1


@dataclass(frozen=True)
class Outline:
    """What a thread has to know of its agent.

    Attributes:
        input: Processors over messages.
        output: Processors over replies.
        max_turns: Most model calls per message.
        max_retries: How many more replies are asked for when one is withheld.
        feedback: What the model is told then.
        memory: Characters of the thread that the model sees.
        audit: "deferred" or "required".
        failures_allowed: How many failed calls of a model are one too many.
        seconds: Longest time of one model call.
    """

    input: list[str]
    output: list[str]
    max_turns: int
    max_retries: int
    feedback: str
    memory: int
    audit: Literal["deferred", "required"]
    failures_allowed: int
    seconds: float


@dataclass(frozen=True)
class ChatRequest:
    """Input of `agent.chat`: one model call, streamed under the agent's stream processors.

    Attributes:
        agent: Which agent.
        messages: The conversation as chat completions take it, without the instructions.
        turn: The id of the message that is answered.
        step: Which model call of the turn, from 0.
        decided_at: ISO 8601; the same for every attempt.
        before: Text that was released earlier in the turn.
        context: The caller's request context.
        thread: The conversation's id.
        resource: Whose it is.
    """

    agent: str
    messages: list[dict[str, Any]]
    turn: str
    step: int
    decided_at: str
    before: str = ""
    context: dict[str, Any] = field(default_factory=dict[str, Any])
    thread: str | None = None
    resource: str | None = None


@dataclass(frozen=True)
class ToolCall:
    """What a model wants done, checked against the tool's schema.

    Attributes:
        id: The model's name for the call.
        name: The tool.
        text: The arguments as the model wrote them.
        values: The same as JSON.
        problem: Why it cannot run, free of content.
        activity: What to schedule.
        needs_approval: Whether a person is asked first.
        arguments: Processors over the arguments.
        results: Processors over the result.
        seconds: Longest time of an attempt.
        attempts: How often it is tried.
        heartbeat: Seconds of silence after which it is taken for dead.
        task_queue: Where its worker polls.
    """

    id: str
    name: str
    text: str
    values: dict[str, Any] = field(default_factory=dict[str, Any])
    problem: str | None = None
    activity: str = ""
    needs_approval: bool = False
    arguments: list[str] = field(default_factory=list[str])
    results: list[str] = field(default_factory=list[str])
    seconds: float = 60.0
    attempts: int = 3
    heartbeat: float | None = None
    task_queue: str | None = None


@dataclass(frozen=True)
class ChatResult:
    """Result of `agent.chat`.

    Attributes:
        outcome: "finished", "aborted" by a stream processor, or "stopped".
        text: What was released.
        calls: What the model wants done.
        finish: Why the model ended: "stop", "length", "tool_calls", ….
        model: What answered.
        tripwire: Reason and metadata of an abort.
        processor: Whose abort.
        failed: Whether it was the failure of a classifier that aborted.
        decision_ids: The stream's decisions.
        pending: Decisions that are neither stored nor published yet.
        input_tokens: What the model read, where it says so.
        output_tokens: What it wrote.
    """

    outcome: Literal["finished", "aborted", "stopped"]
    text: str = ""
    calls: list[ToolCall] = field(default_factory=list[ToolCall])
    finish: str | None = None
    model: str | None = None
    tripwire: dict[str, Any] | None = None
    processor: str | None = None
    failed: bool = False
    decision_ids: list[str] = field(default_factory=list[str])
    pending: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    input_tokens: int | None = None
    output_tokens: int | None = None


@dataclass(frozen=True)
class AgentNote:
    """Input of `agent.note`: something a person did to a thread, for the history.

    Attributes:
        kind: "stop" or "approval".
        tenant: Whose thread.
        turn: During which turn.
        at: ISO 8601; the same for every attempt.
        by: Who.
        reason: Why, in the person's words.
        call: The tool call that was approved or denied.
        approved: Which of the two.
    """

    kind: Literal["stop", "approval"]
    tenant: str
    turn: str
    at: str
    by: str | None = None
    reason: str | None = None
    call: str | None = None
    approved: bool | None = None


def text_event(turn: str, step: int, text: str) -> Event:
    """Released text."""
    return {"type": "text", "turn": turn, "step": step, "text": text}


def restart_event(turn: str, step: int) -> Event:
    """What was released in a step is void."""
    return {"type": "restart", "turn": turn, "step": step}


def publisher_of(run_id: str, activity_id: str, attempt: int) -> str:
    """Who publishes: an attempt of a model call. A thread ignores attempts that were replaced."""
    return f"{run_id}/{activity_id}/{attempt}"


def attempt_of(publisher: str) -> tuple[str, int] | None:
    """The call, as run and activity, and the attempt behind a publisher; None for a stranger."""
    call, separator, attempt = publisher.rpartition("/")
    return (call, int(attempt)) if separator and attempt.isdecimal() else None
