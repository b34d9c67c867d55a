"""A thread with an agent: lives long, takes one message after another, and forgets nothing that matters.

The thread ends when its run is cancelled. What happens inside a turn is in `agent_turn`, how readers follow
it in `agent_stream`. When its history has grown, the run goes on as a new one and takes along every turn, so
a message that is sent again still gets its first answer.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any, Literal

from temporalio import workflow
from temporalio.common import RetryPolicy
from temporalio.exceptions import ActivityError, ApplicationError, is_cancelled_exception

from activities.chat_messages import DESCRIBE, NOTE, AgentNote, Event, Outline, ToolCall
from classifier.context import TENANT_KEY, tenant_of
from classifier.decision import Ids
from classifier.temporal.messages import RecordRequest
from classifier.temporal.pending import recording, records_are_in
from workflows.agent_memory import carried, ended_event, turn_body, turn_from_json, turn_to_json
from workflows.agent_messages import (
    AGENT,
    APPROVE,
    BUSY,
    DENY,
    MAX_ID_CHARACTERS,
    MAX_MESSAGE_CHARACTERS,
    SEND,
    STATE,
    STOP,
    TRANSCRIPT,
    Approval,
    Carried,
    Send,
    Stop,
    ThreadRequest,
    ThreadState,
    Turn,
    Waiting,
)
from workflows.agent_stream import ThreadStream
from workflows.agent_tools import code_of
from workflows.agent_turn import TurnRun
from workflows.options import RECORD_ATTEMPT, RECORD_RETRY

QUEUED = 4
"""Messages that wait behind the one that is answered; Temporal lets ten updates wait in all."""
SOFT_POLLS = 300
FRESH = timedelta(minutes=5)
"""How long a thread goes by what it knows of its agent."""

BAD_MESSAGE = "BAD_MESSAGE"
NOT_WAITING = "NOT_WAITING"


@workflow.defn(name=AGENT, failure_exception_types=[Exception])
class AgentWorkflow:
    """One thread."""

    @workflow.init
    def __init__(self, request: ThreadRequest) -> None:
        before = request.carried or Carried()
        self._request = request
        self._turns = {turn.id: turn for turn in map(turn_from_json, before.turns)}
        self._dropped = before.forgotten
        self._inbox: list[Send] = []
        self._turn: TurnRun | None = None
        self._task: asyncio.Task[Turn] | None = None
        self._stopping = False
        self._waiting: Waiting | None = None
        self._answers: dict[str, tuple[Approval, bool]] = {}
        self._outline: Outline | None = None
        self._described: datetime | None = None
        self._notes: set[asyncio.Task[None]] = set()
        self._ids = 0
        self._stream = ThreadStream(before.events, before.offset, on_event=self._heard, on_records=_record)

    @workflow.run
    async def run(self, request: ThreadRequest) -> None:
        """Answers messages until it is cancelled."""
        del request
        try:
            while True:
                await workflow.wait_condition(lambda: bool(self._inbox) or self._is_long())
                if self._inbox:
                    await self._answer(self._inbox[0])
                else:
                    await self._go_on_as_new()
        except asyncio.CancelledError:
            if not _is_cancelled():
                raise
            for message in list(self._inbox):
                self._close_queued(message)
            self._stream.leave()
            await workflow.wait_condition(workflow.all_handlers_finished)
            raise

    @workflow.update(name=SEND)
    async def send(self, message: Send) -> Turn:
        """A message in, the finished turn out; the same id again gives the same turn."""
        known = {waiting.id for waiting in self._inbox}
        if message.id not in self._turns and message.id not in known:
            self._inbox.append(message)
        await workflow.wait_condition(lambda: message.id in self._turns)
        return self._turns[message.id]

    @send.validator
    def check_send(self, message: Send) -> None:
        """Refuses what cannot be answered, before it enters the history."""
        if not message.id.strip() or len(message.id) > MAX_ID_CHARACTERS:
            raise ApplicationError(f"a message needs an id of up to {MAX_ID_CHARACTERS}", type=BAD_MESSAGE)
        if not message.text.strip() or len(message.text) > MAX_MESSAGE_CHARACTERS:
            raise ApplicationError(
                f"a message needs text of up to {MAX_MESSAGE_CHARACTERS:,} characters", type=BAD_MESSAGE
            )
        if message.id in self._turns or any(waiting.id == message.id for waiting in self._inbox):
            return
        length = workflow.info().get_current_history_length()
        if len(self._inbox) > QUEUED or length > 2 * self._request.events:
            raise ApplicationError("the thread is busy; send it again later", type=BUSY)

    @workflow.update(name=STOP)
    async def stop(self, stop: Stop) -> Turn | None:
        """Ends a reply and gives back its turn; None where nothing is being written."""
        turn = self._stop(stop)
        if turn is None:
            return self._turns.get(stop.turn or "")
        await workflow.wait_condition(lambda: turn in self._turns)
        return self._turns[turn]

    @workflow.signal(name=STOP)
    def stop_signal(self, stop: Stop) -> None:
        """The same without an answer."""
        self._stop(stop)

    @workflow.update(name=APPROVE)
    def approve(self, approval: Approval) -> None:
        """Lets a tool call run."""
        self._decide(approval, approved=True)

    @approve.validator
    def check_approve(self, approval: Approval) -> None:
        """Refuses a call that does not wait."""
        self._check_waiting(approval)

    @workflow.update(name=DENY)
    def deny(self, approval: Approval) -> None:
        """Keeps a tool call from running; the model is told."""
        self._decide(approval, approved=False)

    @deny.validator
    def check_deny(self, approval: Approval) -> None:
        """Refuses a call that does not wait."""
        self._check_waiting(approval)

    @workflow.signal(name=APPROVE)
    def approve_signal(self, approval: Approval) -> None:
        """The same without an answer; a call that does not wait is ignored."""
        self._decide(approval, approved=True)

    @workflow.signal(name=DENY)
    def deny_signal(self, approval: Approval) -> None:
        """The same without an answer."""
        self._decide(approval, approved=False)

    @workflow.query(name=TRANSCRIPT)
    def transcript(self) -> list[dict[str, Any]]:
        """Every `Turn` that is over, oldest first; of very long threads, the newest whole."""
        return [turn_body(turn) for turn in carried(list(self._turns.values()))]

    @workflow.query(name=STATE)
    def state(self) -> ThreadState:
        """What the thread is doing."""
        turn = self._turn
        busy: Literal["working", "approval"] = "working" if self._waiting is None else "approval"
        return ThreadState(
            "idle" if turn is None else busy,
            turn=None if turn is None else turn.send.id,
            reply="" if turn is None else turn.reply,
            waiting=self._waiting,
            queued=[message.id for message in self._inbox[0 if turn is None else 1 :]],
            turns=len(self._turns) + self._dropped,
            offset=self._stream.offset,
        )

    # what a turn needs of its thread

    def turns_before(self) -> Sequence[Turn]:
        """What is over."""
        return list(self._turns.values())

    def publish(self, event: Event) -> None:
        """Tells readers."""
        self._stream.publish(event)

    def next_activity_id(self, kind: str) -> str:
        """An id that no other activity of the run has."""
        self._ids += 1
        return f"{kind}-{self._ids}"

    def listen(self, activity_id: str | None) -> None:
        """From now on only this model call may publish."""
        self._stream.accept(activity_id)

    async def approval(self, call: ToolCall, name: str) -> tuple[Approval, bool]:
        """Waits for a person; whether they approve."""
        self._waiting = Waiting(name, call.name, call.values)
        try:
            await workflow.wait_condition(lambda: name in self._answers)
        finally:
            self._waiting = None
        return self._answers.pop(name)

    async def _answer(self, message: Send) -> None:
        self.publish({"type": "started", "turn": message.id})
        self._stopping = False
        self._task = asyncio.create_task(self._run_turn(message))
        try:
            turn = await asyncio.shield(self._task)
        except asyncio.CancelledError:
            if _is_cancelled():
                self._end_turn()
                self._close_turn(message, await _ended(self._task, message))
                raise
            if not self._stopping:  # the run leaves the cache
                raise
            turn = await _ended(self._task, message)
        self._close_turn(message, turn)

    def _close_turn(self, message: Send, turn: Turn) -> None:
        self._turns[message.id] = turn
        self._inbox.remove(message)
        self._turn = self._task = None
        self.publish(ended_event(turn))
        self._stream.trim()

    async def _run_turn(self, message: Send) -> Turn:
        try:
            outline = await self._described_agent()
        except ApplicationError as error:
            return Turn(message.id, "failed", "failed", code=error.type)
        except asyncio.CancelledError:
            return Turn(message.id, "stopped", "stopped")
        request = self._request
        context = {**request.context, **message.context, TENANT_KEY: tenant_of(request.context)}
        ids = Ids(request.thread or workflow.info().workflow_id, request.resource)
        self._turn = TurnRun(self, message, outline, request.agent, context, ids)
        return await self._turn.run()

    async def _described_agent(self) -> Outline:
        """What the worker's app says of the agent, anew from time to time."""
        now = workflow.now()
        if self._outline is None or self._described is None or now - self._described > FRESH:
            try:
                self._outline = await workflow.execute_activity(
                    DESCRIBE,
                    self._request.agent,
                    result_type=Outline,
                    start_to_close_timeout=timedelta(seconds=10),
                    retry_policy=RetryPolicy(maximum_interval=timedelta(seconds=10)),
                )
            except ActivityError as error:
                if is_cancelled_exception(error):
                    raise asyncio.CancelledError from error
                raise ApplicationError("the agent is not known here", type=code_of(error)) from error
            self._described = now
        assert self._outline is not None
        return self._outline

    def _heard(self, event: Event) -> None:
        if self._turn is not None:
            self._turn.heard(event)

    def _stop(self, stop: Stop) -> str | None:
        """The turn that ends now; None where there is none to end."""
        current = self._inbox[0].id if self._inbox and self._task is not None else None
        wanted = stop.turn or current
        if wanted is None or wanted in self._turns:
            return None
        if wanted == current:
            self._end_turn()
        else:
            behind = next((each for each in self._inbox if each.id == wanted), None)
            if behind is None:
                return None
            self.publish({"type": "started", "turn": wanted})
            self._close_queued(behind)
        self._note(AgentNote("stop", self._tenant, wanted, _now(), stop.by, stop.reason))
        return wanted

    def _close_queued(self, message: Send) -> None:
        turn = Turn(message.id, "stopped", "stopped")
        self._turns[message.id] = turn
        self._inbox.remove(message)
        self.publish(ended_event(turn))

    def _end_turn(self) -> None:
        if self._task is not None and not self._stopping:
            self._stopping = True
            self._task.cancel()

    def _decide(self, approval: Approval, *, approved: bool) -> None:
        waiting = self._waiting
        if waiting is None or waiting.call != approval.call or approval.call in self._answers:
            return
        self._answers[approval.call] = (approval, approved)
        turn = self._inbox[0].id
        self._note(
            AgentNote(
                "approval",
                self._tenant,
                turn,
                _now(),
                approval.by,
                approval.reason,
                approval.call,
                approved,
            )
        )

    def _check_waiting(self, approval: Approval) -> None:
        if self._waiting is None or self._waiting.call != approval.call:
            raise ApplicationError(f"no call {approval.call!r} waits for a person", type=NOT_WAITING)
        if not approval.by.strip():
            raise ApplicationError("an approval says who decided", type=NOT_WAITING)

    def _note(self, note: AgentNote) -> None:
        """Has it recorded; nobody waits for that but the end of the run."""
        task = asyncio.create_task(_noted(note))
        self._notes.add(task)
        task.add_done_callback(self._notes.discard)

    @property
    def _tenant(self) -> str:
        return tenant_of(self._request.context)

    def _is_long(self) -> bool:
        info = workflow.info()
        length = info.get_current_history_length()
        return (
            length > self._request.events
            or self._stream.polls > SOFT_POLLS
            or info.is_continue_as_new_suggested()
        )

    async def _go_on_as_new(self) -> None:
        """Ends this run for the next one, unless a message comes first."""
        records = asyncio.create_task(records_are_in())
        await workflow.wait_condition(lambda: bool(self._inbox) or (records.done() and not self._notes))
        if self._inbox:
            return
        self._stream.leave()
        await workflow.wait_condition(lambda: bool(self._inbox) or workflow.all_handlers_finished())
        if self._inbox:
            return
        turns = carried(list(self._turns.values()))
        dropped = self._dropped + len(self._turns) - len(turns)
        taken = Carried([turn_to_json(turn) for turn in turns], *self._stream.kept(), dropped)
        workflow.continue_as_new(replace(self._request, carried=taken))


async def _noted(note: AgentNote) -> None:
    await workflow.execute_activity(
        NOTE, note, start_to_close_timeout=RECORD_ATTEMPT, retry_policy=RECORD_RETRY
    )


async def _ended(task: asyncio.Task[Turn], message: Send) -> Turn:
    """What came of a turn that was stopped, perhaps before it had begun."""
    try:
        return await task
    except asyncio.CancelledError:
        return Turn(message.id, "stopped", "stopped")


def _is_cancelled() -> bool:
    """Whether the run is; a run that leaves the worker's cache has its tasks cancelled too."""
    return workflow.cancellation_reason() is not None


def _record(bodies: list[dict[str, Any]]) -> None:
    recording(RecordRequest(pending=bodies))


def _now() -> str:
    return workflow.now().isoformat()
