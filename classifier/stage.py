"""One group of processors on a stream: reads ahead, judges several pieces at once, releases in order. Pure.

A reader task takes parts from the source, forms pieces and starts their judgements; whoever iterates over
`parts` decides and records them in order and gets what is released. A slot is free when its judgement is
done, so one slow judgement holds up the release, but not the judging of what follows.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from classifier.decision import Decision
from classifier.errors import ModelUnavailable
from classifier.judging import Asked, Desk, to_its_end
from classifier.messages import TextDelta
from classifier.normalise import visible_length
from classifier.processor import ClassifierProcessor
from classifier.sharing import Group
from classifier.verdict import Judgement, Tripped
from classifier.window import Chunk, Hold, Transcript

log = logging.getLogger("classifier")

MAX_BACKLOG = 256
"""How many pieces may wait for their decision before the source is read on."""


class Stopped(Exception):
    """Somebody stopped the stream."""


@dataclass(slots=True, eq=False)
class _Unit:
    """A piece of the stream that is judged as one; parts that are not text travel in it."""

    number: int
    parts: list[tuple[object, Chunk | None]] = field(default_factory=list[tuple[object, Chunk | None]])
    length: int = 0
    windows: list[str] = field(default_factory=list[str])
    judging: asyncio.Task[list[Asked | None]] | None = None

    @property
    def judged(self) -> bool:
        return self.judging is None or self.judging.done()

    def answers(self) -> list[Asked | None]:
        """The calls of every member.

        Raises:
            ModelUnavailable: The judgement was cancelled from within.
        """
        if self.judging is None:
            return []
        if self.judging.cancelled():
            raise ModelUnavailable("a call of a decision model was cancelled by the model")
        return self.judging.result()

    @property
    def chunks(self) -> list[Chunk]:
        return [chunk for _, chunk in self.parts if chunk is not None]


class Stage:
    """Processors that judge the same windows of one stream, for one run.

    Args:
        desk: Makes the judgements.
        members: Processors with the same stream options; none at all lets everything pass.
        source: The stream before them.
        judgements: Where completed judgements are noted.
    """

    def __init__(
        self,
        desk: Desk,
        members: Sequence[ClassifierProcessor[Any]],
        source: AsyncIterable[object],
        judgements: list[Judgement],
    ) -> None:
        self._desk = desk
        self._group = Group(members)
        self._source = source
        self._judgements = judgements
        first = members[0] if members else None
        self._coalesce = first.coalesce if first else None
        self._slots = asyncio.Semaphore(first.max_in_flight if first else 1)
        self._count = visible_length if any(member.normalise for member in members) else len
        self._transcript = Transcript(
            chunk_window=first.chunk_window if first else 0, hold_back=first.hold_back if first else 0
        )
        self._hold = Hold(first.hold_back if first else 0)
        self._open = _Unit(0)
        self._timer: asyncio.TimerHandle | None = None
        self._waiting: deque[_Unit] = deque()
        self._judging: set[asyncio.Task[list[Asked | None]]] = set()
        self._changed = asyncio.Event()
        self._room = asyncio.Event()
        self._ended = self._stopped = False
        self._source_error: BaseException | None = None
        self._outcome: Exception | None = None

    def stop(self) -> None:
        """Ends the stream for its reader with `Stopped`; calls under way are closed."""
        self._stopped = True
        for task in self._judging:
            task.cancel()
        self._changed.set()

    async def parts(self) -> AsyncGenerator[object, None]:
        """What is released, in order.

        Raises:
            Tripped: A processor aborted; what was released before stays released.
            Stopped: `stop` was called.
            PolicyError: A policy raised instead of deciding.
            Exception: What the source raised, after the text before it was judged and released.
        """
        reader = asyncio.create_task(self._read())
        try:
            while await self._next():
                await to_its_end(self._settle())
                for part in self._hold.release():
                    self._raise_if_stopped()
                    yield part
            for part in self._hold.release(everything=True):
                self._raise_if_stopped()
                yield part
            if isinstance(self._source_error, asyncio.CancelledError):
                raise Stopped
            if self._source_error is not None:
                raise self._source_error
        finally:
            await self._close(reader)

    async def _read(self) -> None:
        try:
            async for part in self._source:
                self._accept(part)
                while len(self._waiting) >= MAX_BACKLOG:
                    self._room.clear()
                    await self._room.wait()
        except BaseException as error:
            self._source_error = error  # raised to the reader, after what came before it
            if not isinstance(error, Exception):
                raise
        finally:
            self._flush()
            self._ended = True
            self._changed.set()

    def _accept(self, part: object) -> None:
        unit = self._open
        if isinstance(part, TextDelta) and part.text and self._group.members:
            chunk = Chunk(part.text, self._count(part.text), unit.number)
            self._transcript.append(chunk)
            unit.parts.append((part, chunk))
            unit.length += len(part.text)
        else:
            unit.parts.append((part, None))
        if unit.length == 0 or self._coalesce is None or unit.length >= self._coalesce.characters:
            self._flush()
        elif self._timer is None:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(self._coalesce.seconds, self._flush)

    def _flush(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        unit = self._open
        if not unit.parts:
            return
        judged = bool(unit.chunks)
        self._open = _Unit(unit.number + judged)
        if judged and not self._stopped:
            self._launch(unit)
        self._waiting.append(unit)
        self._changed.set()

    def _launch(self, unit: _Unit) -> None:
        unit.windows = self._windows(unit)
        unit.judging = task = asyncio.create_task(self._judge(unit.number, unit.windows))
        self._judging.add(task)
        task.add_done_callback(self._judged)

    def _judged(self, task: asyncio.Task[list[Asked | None]]) -> None:
        self._judging.discard(task)
        self._changed.set()

    def _windows(self, unit: _Unit) -> list[str]:
        return [self._transcript.window(unit.number, member) for member in range(len(self._group.members))]

    async def _judge(self, number: int, windows: Sequence[str]) -> list[Asked | None]:
        async with self._slots:
            return [await self._ask(number, windows, member) for member in range(len(windows))]

    async def _ask(self, number: int, windows: Sequence[str], member: int) -> Asked | None:
        prepared = self._group.members[member].prepare(windows[member], newest=True)
        if prepared.blank:
            return None
        others = [later for later in range(member + 1, len(windows)) if windows[later] == windows[member]]
        return await self._desk.ask(self._group, member, prepared, number, others=others)

    async def _next(self) -> bool:
        """Waits until the oldest piece is judged; False when there will be no more."""
        while True:
            self._raise_if_stopped()
            if self._outcome is not None:
                raise self._outcome
            if self._waiting and self._waiting[0].judged:
                return True
            if self._ended and not self._waiting:
                return False
            self._changed.clear()
            await self._changed.wait()

    def _raise_if_stopped(self) -> None:
        if self._stopped:
            raise Stopped

    async def _settle(self) -> None:
        """Decides on the judged pieces, records all decisions at once, and acts on what is stored."""
        made: list[tuple[_Unit, list[Decision]]] = []
        while self._waiting and self._waiting[0].judged and not self._stopped:
            unit = self._waiting.popleft()
            decisions = await self._decisions(unit)
            made.append((unit, decisions))
            if self._outcome is not None or any(_effective(decision) for decision in decisions):
                break
        self._room.set()
        failed = made[-1][0] if self._outcome is not None else None
        stored = iter(await self._desk.keep([each for _, decisions in made for each in decisions]))
        for unit, decisions in made:
            aborted = self._note(unit, kept := [next(stored) for _ in decisions])
            if aborted or unit is failed:
                return
            self._act(unit, kept)

    async def _decisions(self, unit: _Unit) -> list[Decision]:
        decisions: list[Decision] = []
        try:
            for asked in unit.answers():
                decision = None if asked is None else await self._desk.decide(asked)
                if decision is not None:
                    decisions.append(decision)
                    if _effective(decision):
                        break
        except Exception as error:  # noqa: BLE001 - raised when the decisions before it are recorded
            self._outcome = error
        return decisions

    def _note(self, unit: _Unit, stored: Sequence[Decision]) -> bool:
        for decision in stored:
            judgement = self._desk.judgement(decision, unit.number)
            self._judgements.append(judgement)
            if judgement.effect == "aborted" and judgement.tripwire is not None:
                self._outcome = Tripped(judgement.tripwire, judgement.processor_id, self._judgements)
                return True
        return False

    def _act(self, unit: _Unit, stored: Sequence[Decision]) -> None:
        filtering = next((decision for decision in stored if _effective(decision)), None)
        if filtering is not None:
            self._drop(unit, [each.id for each in self._group.members].index(filtering.processor_id or ""))
        for part, chunk in unit.parts:
            if chunk is None or filtering is None:
                self._hold.add(part, chunk)

    def _drop(self, unit: _Unit, member: int) -> None:
        """Drops a piece and the text that is held before it, for the verdict is about both."""
        for chunk in unit.chunks:
            chunk.dropped_by = member
        self._hold.drop(member)
        for later in self._waiting:
            if later.judging is not None and later.windows != self._windows(later):
                later.judging.cancel()
                self._launch(later)

    async def _close(self, reader: asyncio.Task[None]) -> None:
        if self._timer is not None:
            self._timer.cancel()
        tasks: list[asyncio.Task[Any]] = [reader, *self._judging]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        close = getattr(self._source, "aclose", None)
        if close is None:
            return
        try:
            await close()
        except Exception as error:  # noqa: BLE001 - the stream has ended; how it did is already known
            log.error("closing a guarded stream raised %s", type(error).__name__)  # noqa: TRY400


def _effective(decision: Decision) -> bool:
    return decision.outcome != "allowed" and decision.mode == "enforce"
