"""A decision model that is asked no faster than agreed. Pure; the model inside does the I/O."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Mapping, Sequence

from classifier.errors import ConfigurationError
from classifier.models.protocol import DecisionModel, DecisionRequest
from classifier.questions import QuestionType
from classifier.result import DecisionResponse


class Limited:
    """Bounds the requests to a model; who comes too early waits, first come, first served.

    The bounds hold per instance, so give one instance to everything that shares a limit. A caller that is
    cancelled while it waits gives its place up and uses nothing of the limit.

    Args:
        model: The model to ask.
        per_second: Most requests started per second, evenly spaced; may be below one.
        in_flight: Most requests that wait for an answer at once.

    Raises:
        ConfigurationError: A bound that lets nothing through.
    """

    def __init__(
        self, model: DecisionModel, *, per_second: float | None = None, in_flight: int | None = None
    ) -> None:
        if per_second is not None and not per_second > 0:
            raise ConfigurationError(f"per_second of {model.name!r} must be above 0, not {per_second}")
        if in_flight is not None and in_flight < 1:
            raise ConfigurationError(f"in_flight of {model.name!r} must be at least 1, not {in_flight}")
        self._model = model
        self._interval = 0.0 if per_second is None else 1 / per_second
        self._in_flight = in_flight
        self._gate: _Gate | None = None

    @property
    def provider(self) -> str:
        """The model's provider."""
        return self._model.provider

    @property
    def name(self) -> str:
        """The model's name."""
        return self._model.name

    @property
    def question_types(self) -> frozenset[QuestionType]:
        """What the model can answer."""
        return self._model.question_types

    def __repr__(self) -> str:
        return f"Limited({self._model!r})"

    def configure(self, environ: Mapping[str, str]) -> Sequence[str]:
        """Configures the model."""
        return self._model.configure(environ)

    async def decide(self, request: DecisionRequest) -> DecisionResponse:
        """Waits for its turn, then asks once."""
        gate = self._gate
        if gate is None or gate.loop is not asyncio.get_running_loop():
            gate = self._gate = _Gate(self._interval, self._in_flight)
        async with gate.passed():
            return await self._model.decide(request)

    async def aclose(self) -> None:
        """Closes the model."""
        await self._model.aclose()


class _Gate:
    """The bounds within one event loop."""

    def __init__(self, interval: float, in_flight: int | None) -> None:
        self.loop = asyncio.get_running_loop()
        self._interval = interval
        self._places = asyncio.Semaphore(in_flight) if in_flight is not None else contextlib.nullcontext()
        self._turn = asyncio.Lock()
        self._next_start = self.loop.time()

    @contextlib.asynccontextmanager
    async def passed(self) -> AsyncGenerator[None]:
        """Holds a place for the length of the block."""
        async with self._places:
            if self._interval:
                await self._start()
            yield

    async def _start(self) -> None:
        async with self._turn:
            await asyncio.sleep(self._next_start - self.loop.time())
            self._next_start = max(self._next_start, self.loop.time()) + self._interval
