"""What a processor sees of a stream when it judges a piece of it. Pure.

Everything is counted over text alone; other parts of a stream do not exist here.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass


@dataclass(slots=True)
class Chunk:
    """One delta of text.

    Attributes:
        text: Exactly as it came.
        length: What it counts for in `hold_back`.
        unit: Number of the piece it is judged with.
        dropped_by: Which member of the group filtered it; None while nobody did.
    """

    text: str
    length: int
    unit: int
    dropped_by: int | None = None


class Transcript:
    """The text one group of processors received in one run.

    A window is the last `chunk_window` pieces, and as many chunks more as it takes to see `hold_back`
    characters before the current piece. A member never sees what an earlier member dropped. With
    `hold_back` nobody sees dropped text at all, since then the window is what the reader will have read,
    and two halves must not meet around a hole.
    """

    def __init__(self, *, chunk_window: int, hold_back: int) -> None:
        self._chunk_window = max(1, chunk_window)
        self._hold_back = hold_back
        self._chunks: list[Chunk] = []

    def append(self, chunk: Chunk) -> None:
        """The newest text."""
        self._chunks.append(chunk)

    def window(self, unit: int, member: int) -> str:
        """What `member` judges when it judges piece `unit`."""
        chosen = [chunk.text for chunk in self._backwards(unit, member)]
        return "".join(reversed(chosen))

    def _backwards(self, unit: int, member: int) -> Iterator[Chunk]:
        units = {unit}
        before = 0
        for chunk in reversed(self._chunks):
            if chunk.unit > unit or self._unseen(chunk, member):
                continue
            units.add(chunk.unit)
            if len(units) > self._chunk_window and before >= self._hold_back:
                return
            if chunk.unit != unit:
                before += chunk.length
            yield chunk

    def _unseen(self, chunk: Chunk, member: int) -> bool:
        if chunk.dropped_by is None:
            return False
        return chunk.dropped_by < member or self._hold_back > 0


class Hold:
    """Judged parts that wait until a verdict covers `hold_back` characters after them."""

    def __init__(self, hold_back: int) -> None:
        self._hold_back = hold_back
        self._parts: deque[tuple[object, Chunk | None, int]] = deque()
        self._free: deque[object] = deque()
        self._covered = 0
        self._freed = 0

    def add(self, part: object, chunk: Chunk | None) -> None:
        """A part that was let through; `chunk` where it is text."""
        self._covered += 0 if chunk is None else chunk.length
        self._parts.append((part, chunk, self._covered))
        self._let_go()

    def drop(self, member: int) -> None:
        """Drops all text that is still held; what is not text stays."""
        for _, chunk, _ in self._parts:
            if chunk is not None:
                chunk.dropped_by = member
        self._covered = self._freed
        self._parts = deque((part, None, self._covered) for part, chunk, _ in self._parts if chunk is None)
        self._let_go()

    def release(self, *, everything: bool = False) -> Iterator[object]:
        """The parts that may leave now, oldest first."""
        if everything:
            self._hold_back = 0
            self._let_go()
        while self._free:
            yield self._free.popleft()

    def _let_go(self) -> None:
        while self._parts:
            part, chunk, end = self._parts[0]
            if chunk is not None and end + self._hold_back > self._covered:
                return
            self._parts.popleft()
            self._freed = end
            self._free.append(part)
