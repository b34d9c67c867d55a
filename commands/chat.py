"""`classifier chat`: talks to an agent in the terminal, and shows its reply as it is released."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import sys
import threading
import uuid
from collections.abc import AsyncIterator
from typing import Any

from rich.console import Console
from rich.text import Text

from classifier.app import App
from classifier.context import TENANT_KEY
from classifier.errors import ConfigurationError
from commands.show import plain, say
from commands.signals import taking
from commands.working import a_worker, while_the_stack_runs
from worker import Settings, app_of, opened
from workflows.agent_client import Thread
from workflows.agent_messages import Turn
from workflows.readers import Readers, Seen

_SHOWN = 5
"""Turns of an old thread that are shown again."""
_ENDINGS = {
    "blocked": "blocked",
    "filtered": "filtered: there is nothing to answer",
    "retracted": "the reply above is retracted",
    "stopped": "stopped",
    "failed": "no reply",
}


async def chat(
    settings: Settings, *, agent: str | None, thread: str | None, tenant: str, console: Console
) -> None:
    """Answers lines of standard input until there are no more; Ctrl-C stops a reply, Ctrl-D leaves.

    Raises:
        ConfigurationError: There is no agent to talk to.
    """
    app = app_of(settings)
    chosen = _agent(app, agent)
    async with opened(settings) as service, a_worker(service, app):
        readers = Readers(service.client)
        talk = Thread(
            service.client,
            settings.task_queue,
            chosen,
            thread or uuid.uuid4().hex[:8],
            {TENANT_KEY: tenant},
            readers=readers,
        )
        try:
            await while_the_stack_runs(service, _talk(talk, console))
        finally:
            await readers.aclose()


def _agent(app: App, wanted: str | None) -> str:
    known = [agent.id for _, agent in app.agents]
    if not known:
        raise ConfigurationError(
            "there is no agent to talk to; set CLASSIFIER_APP to an app that has one, such as "
            "examples.support_agent:app, and OPENAI_API_KEY for its model"
        )
    if wanted is None and len(known) == 1:
        return known[0]
    names = {name for key, agent in app.agents for name in (key, agent.id)}
    if wanted is None or wanted not in names:
        raise ConfigurationError(f"say with --agent which agent to talk to: {', '.join(known)}")
    return wanted


async def _talk(talk: Thread, console: Console) -> None:
    await talk.open()
    state = await talk.state()
    for turn in (await talk.transcript())[-_SHOWN:]:
        _show_again(turn)
    say(console, f"talking to {talk.agent}; come back with --thread {talk.name}")
    events = talk.events(after=state.offset)
    async with contextlib.aclosing(events):
        lines = _lines()
        conversation = _Conversation(talk, events, lines, console)
        with taking(signal.SIGINT, act=conversation.interrupted):
            async for line in lines:
                await conversation.say(line)


class _Conversation:
    """One person at a terminal."""

    def __init__(
        self, talk: Thread, events: AsyncIterator[Seen], lines: AsyncIterator[str], console: Console
    ) -> None:
        self._talk = talk
        self._lines = lines
        self._events = events
        self._console = console
        self._replying = False
        self._main = asyncio.current_task()
        self._aside: set[asyncio.Task[Any]] = set()

    async def say(self, line: str) -> None:
        """Sends a line and shows what comes of it."""
        message = str(uuid.uuid4())
        self._replying = True
        sending = asyncio.create_task(self._talk.send(line, message=message))
        try:
            showing = asyncio.create_task(self._follow(message))
            await asyncio.wait({sending, showing}, return_when=asyncio.FIRST_EXCEPTION)
            if sending.done() and sending.exception() is not None:
                showing.cancel()
            await sending
            await showing
        finally:
            self._replying = False
            sending.cancel()

    async def _follow(self, message: str) -> None:
        async for seen in self._events:
            event = seen.event
            if event["turn"] != message:
                continue
            match event["type"]:
                case "text":
                    _write(event["text"])
                case "restart":
                    self._remark("the reply starts anew")
                case "tool":
                    await self._tool(event)
                case "ended":
                    self._ended(event)
                    return
                case _:
                    pass

    async def _tool(self, event: dict[str, Any]) -> None:
        self._remark(f"{event['name']}: {event['state']}")
        if event["state"] != "approval":
            return
        self._remark(f"{event['name']} wants to run with {event['arguments']}; allow it? (y/n)")
        answer = await anext(self._lines, "n")
        decide = self._talk.approve if answer.strip().lower() in {"y", "yes"} else self._talk.deny
        await decide(event["call"], by="terminal")

    def _ended(self, event: dict[str, Any]) -> None:
        _write("\n")
        ending = _ENDINGS.get(event["event"])
        why = event.get("reason") or event.get("code")
        if ending is not None:
            self._remark(ending if why is None else f"{ending} ({why})")

    def _remark(self, text: str) -> None:
        self._console.print(Text(f"\n[{plain(text)}]", style="dim"), soft_wrap=True)

    def interrupted(self) -> None:
        """Ctrl-C stops the reply that is being written; without one it leaves."""
        if self._replying:
            stopping = asyncio.ensure_future(self._talk.stop(by="terminal"))
            self._aside.add(stopping)
            stopping.add_done_callback(self._aside.discard)
        elif self._main is not None:
            self._main.cancel()


async def _lines() -> AsyncIterator[str]:
    """Lines of standard input that are not blank; read in a thread, since reading cannot be interrupted."""
    loop, lines = asyncio.get_running_loop(), asyncio.Queue[str | None]()

    def read() -> None:
        with contextlib.suppress(RuntimeError):  # the loop has ended meanwhile
            for line in sys.stdin:
                loop.call_soon_threadsafe(lines.put_nowait, line.strip())
            loop.call_soon_threadsafe(lines.put_nowait, None)

    threading.Thread(target=read, daemon=True).start()
    while (line := await lines.get()) is not None:
        if line:
            yield line


def _show_again(turn: Turn) -> None:
    if turn.text:
        _write(f"> {turn.text}\n{turn.reply}\n")


def _write(text: str) -> None:
    sys.stdout.write(plain(text))
    sys.stdout.flush()
