"""Who uses the product in a run: senders who do not give up, people who review, and people who chat."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from temporalio.client import Client, WorkflowUpdateFailedError, WorkflowUpdateRPCTimeoutOrCancelledError
from temporalio.service import RPCError

from classifier.audit.history import History
from classifier.errors import StoreError
from tests.apps.under_fire import AGENT
from tests.chaos.doors import Door
from tests.chaos.facts import Choice, Said, Sent
from tests.chaos.models import BLOCKED, person_chooses
from tests.chaos.plan import share_of
from workflows.agent_client import Thread
from workflows.agent_messages import Turn
from workflows.messages import REVIEW, ReviewChoice, triage_workflow_id

SOURCE = "/chaos"
AT_ONCE = 16
AGAIN = 0.5
LOOK = 1.0
TURNS_A_THREAD = 5
AGAIN_ANYWAY = 0.05
"""The share of events whose sender sends once more, after an answer that it did not get to see."""
_UNANSWERED = (RPCError, TimeoutError, WorkflowUpdateRPCTimeoutOrCancelledError, WorkflowUpdateFailedError)


def event_of(name: str, marker: str) -> dict[str, Any]:
    """A CloudEvent with a text of its own."""
    data = f"{marker} the parcel {name} has not come"
    return {"specversion": "1.0", "id": name, "source": SOURCE, "type": "parcel", "data": data}


@dataclass
class Sender:
    """Sends events and does not rest before each is taken.

    Attributes:
        door: Where they go in.
        marker: Stands in every text.
        seed: Of the run.
        sent: What was taken.
        resent: How often something had to be sent again.
    """

    door: Door
    tenant: str
    marker: str
    seed: int
    sent: list[Sent] = field(default_factory=list[Sent])
    resent: int = 0

    async def send(self, count: int, seconds: float, *, first: int = 0) -> None:
        """So many events, spread over so many seconds, with names of their own from the first one on."""
        names = iter(range(count))
        loop = asyncio.get_running_loop()
        began = loop.time()

        async def one_after_another() -> None:
            for number in names:
                await asyncio.sleep(began + seconds * number / count - loop.time())
                await self._send(f"e{first + number}")

        await asyncio.gather(*(one_after_another() for _ in range(AT_ONCE)))

    async def _send(self, name: str) -> None:
        event = event_of(name, self.marker)
        workflow = await self._until_taken(event)
        if share_of(self.seed, f"again {name}") < AGAIN_ANYWAY:
            again = await self._until_taken(event)
            assert again == workflow, f"event {name} was given two runs"
        self.sent.append(Sent(name, event["data"], workflow))

    async def _until_taken(self, event: dict[str, Any]) -> str:
        while True:
            workflow = await self.door.take(event)
            if workflow is not None:
                return workflow
            self.resent += 1
            await asyncio.sleep(AGAIN)

    def write_file(self, path: Path, count: int) -> None:
        """So many events as a file for the command line, which is run until it has taken them."""
        events = [event_of(f"f{number}", self.marker) for number in range(count)]
        path.write_text("".join(json.dumps(event) + "\n" for event in events), encoding="utf-8")
        for event in events:
            workflow = triage_workflow_id(self.tenant, SOURCE, event["id"])
            self.sent.append(Sent(event["id"], event["data"], workflow))


@dataclass
class People:
    """Review what waits, all but what is left alone.

    Attributes:
        choices: What was chosen, by workflow.
        unanswered: Why choices were not answered, and how often.
    """

    client: Client
    history: History
    tenant: str
    seed: int
    choices: dict[str, Choice] = field(default_factory=dict[str, Choice])
    unanswered: Counter[str] = field(default_factory=Counter[str])

    async def review(self) -> None:
        """Looks again and again at what waits."""
        while True:
            with contextlib.suppress(StoreError):
                waiting = await self.history.open_reviews(self.tenant, 500)
                names = [each.decision.coordinates.workflow_id for each in waiting]
                await asyncio.gather(*(self._decide(name) for name in names))
            await asyncio.sleep(LOOK)

    async def _decide(self, workflow: str) -> None:
        route = person_chooses(self.seed, workflow)
        if route is None or (workflow in self.choices and self.choices[workflow].taken):
            return
        self.choices.setdefault(workflow, Choice(workflow, route, taken=False))
        handle: Any = self.client.get_workflow_handle(workflow)
        choice = ReviewChoice(route, "kim")
        try:
            async with asyncio.timeout(60):
                await handle.execute_update(REVIEW, choice, id=f"review-{workflow}")
        except (
            _UNANSWERED
        ) as error:  # it is looked at again; where it waits no more, the run has the last word
            self.unanswered[
                str(error.cause if isinstance(error, WorkflowUpdateFailedError) else type(error).__name__)
            ] += 1
            return
        self.choices[workflow] = Choice(workflow, route, taken=True)


@dataclass
class Talk:
    """Chats in several threads at a time.

    Attributes:
        said: What came of each message.
        late: Messages without an answer so far: thread, text, id.
    """

    client: Client
    queue: str
    tenant: str
    marker: str
    seed: int
    said: list[Said] = field(default_factory=list[Said])
    late: list[tuple[Thread, str, str]] = field(default_factory=list[tuple[Thread, str, str]])

    def threads(self, turns: int) -> list[Thread]:
        """The threads that so many turns take."""
        count = -(-turns // TURNS_A_THREAD)
        context = {"tenant_id": self.tenant}
        return [Thread(self.client, self.queue, AGENT, f"talk-{n}", context) for n in range(count)]

    async def talk(self, turns: int, seconds: float, patience: float) -> None:
        """So many turns, spread over so many seconds; each has so many seconds more to end."""
        threads = self.threads(turns)
        await asyncio.gather(*(self._thread(each, turns, seconds, patience) for each in threads))

    async def _thread(self, thread: Thread, turns: int, seconds: float, patience: float) -> None:
        loop = asyncio.get_running_loop()
        began, number = loop.time(), int(thread.name.removeprefix("talk-"))
        count = min(TURNS_A_THREAD, turns - number * TURNS_A_THREAD)
        for turn in range(count):
            await asyncio.sleep(began + seconds * turn / count - loop.time())
            message = f"{thread.name}-{turn}"
            blocked = f" {BLOCKED}" if share_of(self.seed, f"blocked message {message}") < 1 / 10 else ""
            text = f"{self.marker} {message}{blocked}, where is it?"
            await self._say(thread, text, message, patience)

    async def ask_again(self, patience: float) -> int:
        """Sends what was not answered in time once more, in peace; how many messages that were."""
        late, self.late = self.late, []
        await asyncio.gather(*(self._say(*each, patience) for each in late))
        self.said += [Said(thread.workflow_id, message, None) for thread, _, message in self.late]
        return len(late)

    async def _say(self, thread: Thread, text: str, message: str, patience: float) -> None:
        try:
            async with asyncio.timeout(patience):
                turn = await until_answered(partial(thread.send, text, message=message))
        except TimeoutError:
            self.late.append((thread, text, message))
        else:
            self.said.append(said_of(thread.workflow_id, turn))


async def until_answered(ask: Callable[[], Awaitable[Turn]]) -> Turn:
    """The same question again until Temporal takes it; the same message is answered once."""
    while True:
        with contextlib.suppress(RPCError):
            return await ask()
        await asyncio.sleep(AGAIN)


def said_of(thread: str, turn: Turn) -> Said:
    """A turn as a fact."""
    return Said(thread, turn.id, turn.outcome, turn.reply, tuple(turn.decision_ids))
