"""What is known after a run: what was sent, what Temporal and the database say, who got what. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Sent:
    """An event that the service, or the command, said it has taken.

    Attributes:
        event: Its id.
        text: What it says.
        workflow: The run it was given.
    """

    event: str
    text: str
    workflow: str


@dataclass(frozen=True, slots=True)
class Branched:
    """What an activity told a workflow: a decision, and where it leads."""

    decision: str
    action: str | None
    route: str | None


@dataclass(frozen=True, slots=True)
class Run:
    """A run of the triage workflow as Temporal knows it.

    Attributes:
        workflow: Its workflow id.
        run: Its run id.
        status: "RUNNING", "COMPLETED", ….
        state: What the workflow says of itself: "delivered", "review", …; None where it says nothing.
        route: Where it says it went.
        decision: The decision it says it rests on.
        branched: Every decision that activities gave it, in order.
        lost: How many of its workflow tasks timed out, as they do when their worker dies.
        broken: Why workflow tasks failed in the worker: its code raised, or was at odds with its history.
    """

    workflow: str
    run: str
    status: str
    state: str | None = None
    route: str | None = None
    decision: str | None = None
    branched: tuple[Branched, ...] = ()
    lost: int = 0
    broken: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Row:
    """A decision on record.

    Attributes:
        place: Workflow, run, activity and ordinal.
        phase: "step" for events; "input", "stream" and "output" for agents.
        text: What it is about.
        answer: What the model chose; None for a refusal or a failure.
        failed: Whether the call failed.
        outcome: "allowed", "filtered" or "aborted".
        action: "route" or "review"; None outside playbooks.
        route: Where to.
    """

    decision: str
    workflow: str
    place: tuple[str, str, str, int]
    phase: str
    text: str
    answer: str | None
    failed: bool
    outcome: str
    action: str | None = None
    route: str | None = None


@dataclass(frozen=True, slots=True)
class Happened:
    """An event of the history: "delivery", "review", "review_requested", …."""

    workflow: str
    kind: str
    id: str
    route: str | None = None
    actor: str | None = None


@dataclass(frozen=True, slots=True)
class Post:
    """A delivery as its receiver saw it.

    Attributes:
        key: The idempotency key; empty where there was none.
        content: A digest of the body.
        event: The id of the event in it.
        route: Where it is said to go.
        decision: The decision it is said to rest on.
    """

    key: str
    content: str
    event: str
    route: str
    decision: str


@dataclass(frozen=True, slots=True)
class Choice:
    """What a person chose for a run, and whether they were told that it was taken."""

    workflow: str
    route: str
    taken: bool


@dataclass(frozen=True, slots=True)
class Said:
    """A turn of an agent's thread.

    Attributes:
        thread: Its workflow.
        message: The id of the message.
        outcome: "finished", "blocked", …; None where whoever sent it never heard of an end.
        reply: What was released.
        decisions: Every decision of the turn, in order.
    """

    thread: str
    message: str
    outcome: str | None
    reply: str = ""
    decisions: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Log:
    """What a process wrote.

    Attributes:
        name: Of the process.
        size: How many bytes.
        found: Names of what must not be in it and is.
    """

    name: str
    size: int
    found: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """Everything.

    Attributes:
        sent: Events that were taken; each once, however often it was sent.
        runs: Every run of a triage workflow.
        rows: Every decision of the tenant.
        happened: Everything else in the history.
        remembered: Events that the database has accepted, with their workflow.
        posts: Deliveries in the order in which they came.
        choices: What people chose.
        given: What the model answered about each text, in order; refusals as None.
        said: Turns as whoever sent the message was told.
        kept: Turns in the threads' own transcripts.
        endings: How many terminal events each turn had, by thread and message.
        shown: What a reader has on the screen at the end, by thread and message.
        prompts: Everything that a language model was told about a thread.
        blocked: The word that no reply may hold.
        logs: What the processes wrote.
        commands: With which code the commands ended that should end; None where they did not.
    """

    sent: tuple[Sent, ...] = ()
    runs: tuple[Run, ...] = ()
    rows: tuple[Row, ...] = ()
    happened: tuple[Happened, ...] = ()
    remembered: Mapping[str, str] = field(default_factory=dict[str, str])
    posts: tuple[Post, ...] = ()
    choices: tuple[Choice, ...] = ()
    given: Mapping[str, tuple[str | None, ...]] = field(default_factory=dict[str, tuple[str | None, ...]])
    said: tuple[Said, ...] = ()
    kept: tuple[Said, ...] = ()
    endings: Mapping[tuple[str, str], int] = field(default_factory=dict[tuple[str, str], int])
    shown: Mapping[tuple[str, str], str] = field(default_factory=dict[tuple[str, str], str])
    prompts: tuple[str, ...] = ()
    blocked: str = ""
    logs: tuple[Log, ...] = ()
    commands: Mapping[str, int | None] = field(default_factory=dict[str, "int | None"])
