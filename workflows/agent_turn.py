"""One turn of a thread: input processors, model and tools, output processors, in this order. Sandbox-safe.

No policy is in here: what processors decided comes from activities. A stop cancels the task that runs this.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any, Literal

from temporalio import workflow
from temporalio.common import RetryPolicy
from temporalio.exceptions import ActivityError, ApplicationError, is_cancelled_exception

from activities.chat_messages import (
    CHAT,
    WHOLE_REPLY,
    ChatRequest,
    ChatResult,
    Event,
    Outline,
    ToolCall,
    restart_event,
)
from classifier.decision import Ids
from classifier.errors import InputTooLarge
from classifier.messages import Message
from classifier.temporal.messages import RecordRequest
from classifier.temporal.pending import recorded, recording
from classifier.temporal.workflow import DecideOptions, Processors
from classifier.values import canonical_json
from classifier.verdict import Verdict
from workflows.agent_memory import conversation, withheld_texts
from workflows.agent_messages import Done, Send, Step, Turn
from workflows.agent_seams import Ending, Thread
from workflows.agent_tools import ToolFailed, code_of, run_tool

TOO_MANY_CALLS = "TOO_MANY_MODEL_CALLS"
WITHHELD = "(withheld)"
MAX_REQUEST_BYTES = 1_500_000
"""Temporal refuses payloads over 2 MiB again and again, and the turn itself has to be given back."""
_CHAT_RETRY = RetryPolicy(
    initial_interval=timedelta(milliseconds=500),
    backoff_coefficient=2,
    maximum_interval=timedelta(seconds=30),
)
_HEARTBEAT = timedelta(seconds=5)
_PATIENCE = timedelta(hours=1)
"""For workers that die and stores that are away; failed calls of the model have a budget of their own."""


@dataclass
class TurnRun:
    """A turn while it runs.

    Attributes:
        thread: Whose turn.
        send: The message.
        outline: The agent.
        context: The request context of this turn.
        ids: Thread and resource.
        released: Text of the current model call that readers have.
    """

    thread: Thread
    send: Send
    outline: Outline
    agent: str
    context: dict[str, Any]
    ids: Ids
    released: str = ""
    _text: str = ""
    _steps: list[Step] = field(default_factory=list[Step])
    _calls: list[Done] = field(default_factory=list[Done])
    _decisions: list[str] = field(default_factory=list[str])
    _feedback: list[str] = field(default_factory=list[str])
    _asked: int = 0
    _results: int = 0
    _tools: int = 0
    _tokens: tuple[int, int] = (0, 0)
    _shown: bool = False
    _phase: str | None = None

    @property
    def reply(self) -> str:
        """What was released so far."""
        return "".join(step.text for step in self._steps) + self.released

    def heard(self, event: Event) -> None:
        """An event of the current model call was published."""
        if event["type"] == "text":
            self.released += event["text"]
            self._shown = True
        else:
            self.released = ""

    async def run(self) -> Turn:
        """What came of it; every way ends here."""
        try:
            ending = await self._guarded()
        except asyncio.CancelledError:
            ending = Ending("stopped")
        except ActivityError as error:
            stopped = is_cancelled_exception(error)
            ending = Ending("stopped") if stopped else self._failed(code_of(error))
        except ApplicationError as error:
            ending = self._failed(error.type)
        finally:
            self.thread.listen(None)
        return self._turn(ending)

    def _failed(self, code: str | None) -> Ending:
        return Ending("failed", self._phase, code=code)

    async def _guarded(self) -> Ending:
        ending = await self._input()
        if ending is not None:
            return ending
        retries = self.outline.max_retries
        while True:
            ending = await self._reply() or await self._output()
            if ending is None:
                return Ending("finished")
            if not ending.may_retry or retries == 0:
                return ending
            retries -= 1
            self._begin_anew(ending)

    async def _input(self) -> Ending | None:
        message = Message(self.send.text, id=self.send.id)
        if self.outline.input:
            verdict = await self._processors(self.outline.input).input(
                [message], ids=self.ids, context=self.context
            )
            if (ending := self._judged(verdict, "input")) is not None:
                return replace(ending, may_retry=False)
        self._text = self.send.text
        return None

    async def _reply(self) -> Ending | None:
        """Model calls and tools until the model has said all it wants to."""
        for _ in range(self.outline.max_turns):
            result = await self._chat()
            if result.outcome == "aborted":
                return Ending(
                    "blocked", "stream", result.tripwire, result.processor, may_retry=not result.failed
                )
            self._calls = []
            self._steps.append(Step(result.text, self._calls))
            self.released = ""
            if not result.calls:
                return None
            for call in result.calls:
                ending = await self._tool(call)
                if ending is not None:
                    return ending
        return Ending("failed", code=TOO_MANY_CALLS)

    async def _chat(self) -> ChatResult:
        activity_id = self.thread.next_activity_id(CHAT)
        request = self._request()
        self.thread.listen(activity_id)
        self._asked += 1
        handle: workflow.ActivityHandle[ChatResult] = workflow.start_activity(
            CHAT,
            request,
            activity_id=activity_id,
            result_type=ChatResult,
            start_to_close_timeout=timedelta(seconds=self.outline.seconds),
            schedule_to_close_timeout=timedelta(seconds=self.outline.seconds) + _PATIENCE,
            heartbeat_timeout=_HEARTBEAT,
            retry_policy=_CHAT_RETRY,
            cancellation_type=workflow.ActivityCancellationType.WAIT_CANCELLATION_COMPLETED,
        )
        try:
            result = await asyncio.shield(handle)
        except asyncio.CancelledError:
            await self._stopped(handle)
            raise
        finally:
            self.thread.listen(None)
        await self._keep(result)
        return result

    async def _stopped(self, handle: workflow.ActivityHandle[ChatResult]) -> None:
        """Ends a model call that was stopped, and keeps what was released."""
        handle.cancel()
        try:
            result = await handle
        except ActivityError:  # it could not say what it released; the stream has it
            return
        self.released = result.text
        await self._keep(result)

    async def _keep(self, result: ChatResult) -> None:
        """Counts a model call, and has recorded what it could not record itself."""
        self._decisions += result.decision_ids
        read, wrote = self._tokens
        self._tokens = (read + (result.input_tokens or 0), wrote + (result.output_tokens or 0))
        if result.pending:
            task = recording(RecordRequest(pending=result.pending))
            if self.outline.audit == "required":
                await recorded(task)

    async def _tool(self, call: ToolCall) -> Ending | None:
        self._tools += 1
        name = f"{self.send.id}:{self._tools}"
        if call.arguments:
            ending = await self._judge_part(call.text, call.arguments, "arguments", name)
            if ending is not None:
                self._done(replace(call, text="{}"), name, "withheld", WITHHELD)
                return ending if ending.outcome == "blocked" else None
        if call.problem is not None:
            self._done(call, name, "rejected", f"(not run: {call.problem})")
            return None
        if call.needs_approval and not await self._approved(call, name):
            return None
        self._tell(call, name, "started")
        return await self._run(call, name)

    async def _approved(self, call: ToolCall, name: str) -> bool:
        self.thread.publish({**self._event(call, name, "approval"), "arguments": call.values})
        try:
            approval, approved = await self.thread.approval(call, name)
        except asyncio.CancelledError:
            self._done(call, name, "stopped", "(stopped)")
            raise
        if not approved:
            reason = f": {approval.reason}" if approval.reason else ""
            self._done(call, name, "denied", f"(a person denied this{reason})")
        return approved

    async def _run(self, call: ToolCall, name: str) -> Ending | None:
        try:
            result = await run_tool(call, self.thread.next_activity_id("agent.tool"))
        except ToolFailed as failed:
            self._done(call, name, "failed", f"(the tool failed: {failed.code})")
            return None
        except (asyncio.CancelledError, ActivityError):
            self._done(call, name, "stopped", "(stopped)")
            raise
        self._results += len(canonical_json(result))
        if self._results > MAX_REQUEST_BYTES:
            result = "(too long to keep)"
        if call.results:
            try:
                ending = await self._judge_part(result, call.results, "results", name)
            except (asyncio.CancelledError, ActivityError, ApplicationError):
                self._done(call, name, "withheld", WITHHELD)
                raise
            if ending is not None:
                self._done(call, name, "withheld", WITHHELD)
                return ending if ending.outcome == "blocked" else None
        self._done(call, name, "finished", result)
        return None

    async def _judge_part(
        self, text: str, processors: Sequence[str], phase: Literal["arguments", "results"], name: str
    ) -> Ending | None:
        """Arguments leave the model and are judged as output; results go to it and are input."""
        message = Message(text, role="tool", id=name)
        side = self._processors(processors)
        judge = side.output if phase == "arguments" else side.input
        ending = self._judged(await judge([message], ids=self.ids, context=self.context), phase)
        return None if ending is None else replace(ending, may_retry=False)

    async def _output(self) -> Ending | None:
        """Judges exactly the text that was released."""
        text = "".join(step.text for step in self._steps)
        if not self.outline.output or not text.strip():
            return None
        self._phase = "output"
        message = Message(text, role="assistant", id=self.send.id)
        verdict = await self._processors(self.outline.output).output(
            [message], ids=self.ids, context=self.context
        )
        return self._judged(verdict, "output")

    def _judged(self, verdict: Verdict, phase: str) -> Ending | None:
        self._decisions += [str(each) for each in verdict.decision_ids]
        if verdict.outcome == "allowed":
            return None
        failing = any(each.failure is not None and each.effect == "aborted" for each in verdict.judgements)
        tripwire = verdict.tripwire
        if tripwire is None:
            return Ending("filtered", phase, may_retry=True)
        found = {"reason": tripwire.reason, "metadata": tripwire.metadata}
        return Ending("blocked", phase, found, verdict.judgements[-1].processor_id, may_retry=not failing)

    def _begin_anew(self, ending: Ending) -> None:
        """Takes back the reply, and tells the model why; not what was wrong with it."""
        if self._shown:
            self.thread.publish(restart_event(self.send.id, WHOLE_REPLY))
        self._steps, self.released, self._shown = withheld_texts(self._steps), "", False
        self._phase = None
        reason = "it was filtered" if ending.tripwire is None else str(ending.tripwire["reason"])
        self._feedback.append(self.outline.feedback.format(reason=reason))

    def _request(self) -> ChatRequest:
        """What the next model call is asked.

        Raises:
            ApplicationError: It exceeds what Temporal carries.
        """
        turns = self.thread.turns_before()
        request = ChatRequest(
            agent=self.agent,
            messages=conversation(turns, self._steps, self._text, self.outline, self._feedback),
            turn=self.send.id,
            step=self._asked,
            decided_at=workflow.now().isoformat(),
            before="".join(step.text for step in self._steps),
            context=self.context,
            thread=self.ids.thread,
            resource=self.ids.resource,
        )
        size = len(canonical_json([request.messages, request.before, request.context]))
        if size > MAX_REQUEST_BYTES:
            raise ApplicationError(
                f"the conversation is {size:,} bytes as JSON; the limit is {MAX_REQUEST_BYTES:,}",
                type=InputTooLarge.code,
            )
        return request

    def _processors(self, names: Sequence[str]) -> Processors:
        outline = self.outline
        return Processors(
            *names, options=DecideOptions(audit=outline.audit, failures_allowed=outline.failures_allowed)
        )

    def _done(
        self,
        call: ToolCall,
        name: str,
        state: Literal["finished", "failed", "withheld", "denied", "rejected", "stopped"],
        result: str,
    ) -> None:
        self._calls.append(Done(name, call.id, call.name, call.text, state, result))
        self._tell(call, name, state)

    def _tell(self, call: ToolCall, name: str, state: str) -> None:
        self.thread.publish(self._event(call, name, state))

    def _event(self, call: ToolCall, name: str, state: str) -> Event:
        return {"type": "tool", "turn": self.send.id, "call": name, "name": call.name, "state": state}

    def _turn(self, ending: Ending) -> Turn:
        """The entry of the transcript; what was blocked or filtered is not in it."""
        kept = ending.outcome in {"finished", "stopped"}
        if self.released and kept:
            self._steps.append(Step(self.released))
        steps = self._steps if kept else withheld_texts(self._steps)
        retracted = self._shown and ending.phase == "output"
        return Turn(
            id=self.send.id,
            outcome=ending.outcome,
            event="retracted" if retracted else ending.outcome,
            text=self._text,
            steps=steps,
            tripwire=ending.tripwire,
            processor=ending.processor,
            phase=ending.phase,
            code=ending.code,
            decision_ids=self._decisions,
            model_calls=self._asked,
            input_tokens=self._tokens[0],
            output_tokens=self._tokens[1],
        )
