"""The stream guard: text leaves only after it was judged, and every stream ends with one `End`. Pure.

    async with guard(deltas, [safety], run=Run.here(), ports=ports) as parts:
        async for part in parts:
            match part:
                case TextDelta(text): print(text, end="")
                case End(): part.raise_unless_finished()

Parts that are not a `TextDelta` pass untouched and in order, so they wait for the text before them, and
count in no window. Windows span them: a term around a tool call is seen as one. State belongs to one guard;
nothing is shared between streams.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterable, AsyncIterator, Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Generic, Literal, Self, TypeAlias, TypeVar, cast

from classifier.decision import Tripwire
from classifier.errors import ClassifierError
from classifier.judging import Desk
from classifier.messages import TextDelta
from classifier.ports import Ports
from classifier.processor import ClassifierProcessor
from classifier.sharing import grouped
from classifier.stage import Stage, Stopped
from classifier.verdict import Judgement, Run, Tripped

P = TypeVar("P")

Ending: TypeAlias = Literal["finished", "aborted", "failed", "cancelled"]
STREAM_FAILED = "STREAM_FAILED"


class StreamCut(ClassifierError):
    """The stream was stopped or broke off, so its text is not whole."""

    code = "STREAM_CUT"


@dataclass(frozen=True, slots=True)
class End:
    """The one terminal event of a guarded stream.

    Attributes:
        outcome: "finished" (the source ended and all text was let through or filtered), "aborted" (by a
            processor), "failed" (source, policy or record), "cancelled".
        judgements: Every completed judgement, in order.
        tripwire: Reason and metadata, for "aborted".
        code: For "failed", the code of the error, or `STREAM_FAILED`.
        error: What was raised, for "aborted" and "failed".
    """

    outcome: Ending
    judgements: tuple[Judgement, ...] = ()
    tripwire: Tripwire | None = None
    code: str | None = None
    error: Exception | None = field(default=None, repr=False, compare=False)

    def raise_unless_finished(self) -> None:
        """Does nothing after a whole stream.

        Raises:
            Tripped: A processor aborted.
            StreamCut: The stream was cancelled.
            Exception: What made it fail.
        """
        if self.error is not None:
            raise self.error
        if self.outcome != "finished":
            raise StreamCut(f"the stream was {self.outcome} before its end")


class StreamGuard(Generic[P]):
    """A guarded stream: an async iterator of released parts, then exactly one `End`.

    Close it (`async with`, or `aclose`) where reading may stop early. A reader that is cancelled still gets
    the `End` if it reads on.
    """

    def __init__(
        self,
        source: AsyncIterable[P],
        processors: Sequence[ClassifierProcessor[Any]],
        *,
        run: Run,
        ports: Ports,
    ) -> None:
        self._judgements: list[Judgement] = []
        self._text: list[str] = []
        self._end: End | None = None
        self._done = False
        desk = Desk(processors, "stream", run, ports)
        parts: AsyncIterable[object] = source
        for members in grouped(processors, stream=True) or [[]]:
            self._last = Stage(desk, members, parts, self._judgements)
            parts = self._last.parts()
        self._parts = cast("AsyncGenerator[P, None]", parts)

    @property
    def end(self) -> End | None:
        """How it ended; None while it goes on."""
        return self._end

    @property
    def text(self) -> str:
        """All text that was released.

        Raises:
            Tripped: A processor aborted.
            StreamCut: The stream was cancelled, or goes on.
            Exception: What made it fail.
        """
        if self._end is None:
            raise StreamCut("the stream goes on; read it to its end first")
        self._end.raise_unless_finished()
        return "".join(self._text)

    def stop(self) -> None:
        """Ends the stream for its reader as cancelled: calls under way are closed, made decisions kept."""
        self._last.stop()

    async def aclose(self) -> None:
        """Closes the source and everything under way; after it there is only the `End`."""
        await self._parts.aclose()
        self._finish(End("cancelled"))

    def __aiter__(self) -> AsyncIterator[P | End]:
        return self

    async def __anext__(self) -> P | End:
        if self._done:
            raise StopAsyncIteration
        if self._end is None:
            part = await self._next()
            if part is not None:
                return part.value
        self._done = True
        assert self._end is not None
        return self._end

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    async def _next(self) -> _Part[P] | None:
        try:
            part = await anext(self._parts)
        except StopAsyncIteration:
            self._finish(End("finished"))
        except Tripped as error:
            error.judgements = tuple(self._judgements)
            self._finish(End("aborted", tripwire=error.tripwire, error=error))
        except Stopped:
            self._finish(End("cancelled"))
        except asyncio.CancelledError:
            self._finish(End("cancelled"))
            raise
        except Exception as error:  # noqa: BLE001 - handed to the reader in the one terminal event
            code = error.code if isinstance(error, ClassifierError) else STREAM_FAILED
            self._finish(End("failed", code=code, error=error))
        else:
            if isinstance(part, TextDelta):
                self._text.append(part.text)
            return _Part(part)
        return None

    def _finish(self, end: End) -> None:
        if self._end is None:
            self._end = End(end.outcome, tuple(self._judgements), end.tripwire, end.code, end.error)


@dataclass(frozen=True, slots=True)
class _Part(Generic[P]):
    """A released part, which may itself be None."""

    value: P


def guard(
    source: AsyncIterable[P],
    processors: Sequence[ClassifierProcessor[Any]],
    *,
    run: Run,
    ports: Ports,
) -> StreamGuard[P]:
    """Guards a stream; reading it drives everything.

    Args:
        source: Text deltas, and other parts of any kind.
        processors: Ready to be asked; in list order, each fed with what those before it released.
        run: Where this happens and for whom. Streams of different attempts need different coordinates.
        ports: How models and records are reached.

    Raises:
        ConfigurationError: What is declared cannot work.
    """
    return StreamGuard(source, processors, run=run, ports=ports)
