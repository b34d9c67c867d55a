"""One thread that loads the engine and runs its work, so that the event loop never waits for arithmetic.

Texts that arrive while a batch is being encoded make the next batch. Under load the batches grow by
themselves and the cost per text halves; a lone text waits for nobody.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Generic, TypeAlias, TypeVar

if TYPE_CHECKING:
    from .encoder import Floats
    from .engine import Engine

T = TypeVar("T")

Finish: TypeAlias = "Callable[[Floats], T]"
"""Makes the result of a job from the vector of its text."""

_LARGEST_BATCH: Final = 32


@dataclass(frozen=True, slots=True)
class _Job(Generic[T]):
    text: str
    prepare: Callable[[Engine], Finish[T]]
    future: Future[T]


class EngineThread(Generic[T]):
    """Runs an engine on a thread of its own, loaded with the first job. Usable from several event loops."""

    def __init__(self, load: Callable[[], Engine]) -> None:
        self._load = load
        self._jobs: queue.SimpleQueue[_Job[T] | None] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None

    def submit(self, text: str, prepare: Callable[[Engine], Finish[T]]) -> Future[T]:
        """Encode `text`, together with whatever else is waiting, and finish with what `prepare` gives.

        Args:
            text: What to encode.
            prepare: Called with the engine before anything is encoded.
        """
        job = _Job(text, prepare, Future[T]())
        with self._lock:
            self._jobs.put(job)
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="local-model", daemon=True)
                self._thread.start()
        return job.future

    def close(self) -> None:
        """Finish what was asked for, then end the thread; the next job starts another. Blocks."""
        with self._lock:
            thread, self._thread = self._thread, None
            if thread is not None:
                self._jobs.put(None)
        if thread is not None:
            thread.join()

    def _run(self) -> None:
        try:
            engine = self._load()
        except Exception as error:  # noqa: BLE001 - it belongs to everyone who waits
            self._fail(error)
            return
        while (batch := self._next_batch()) is not None:
            _run_batch(engine, batch)

    def _next_batch(self) -> list[_Job[T]] | None:
        """The next job and those that wait behind it; None where the thread is to end."""
        job = self._jobs.get()
        batch: list[_Job[T]] = []
        while job is not None:
            batch.append(job)
            if len(batch) == _LARGEST_BATCH or self._jobs.empty():
                return batch
            job = self._jobs.get()
        if batch:
            self._jobs.put(None)  # nothing but the end itself can come after the end
            return batch
        return None

    def _fail(self, error: Exception) -> None:
        """Give the error to everyone who waits; the next job tries to load again."""
        with self._lock:
            self._thread = None
            while not self._jobs.empty():
                job = self._jobs.get()
                if job is not None and job.future.set_running_or_notify_cancel():
                    job.future.set_exception(error)


def _run_batch(engine: Engine, batch: list[_Job[T]]) -> None:
    ready: list[tuple[_Job[T], Finish[T]]] = []
    for job in batch:
        if not job.future.set_running_or_notify_cancel():
            continue
        try:
            ready.append((job, job.prepare(engine)))
        except Exception as error:  # noqa: BLE001 - it belongs to whoever waits for this job
            job.future.set_exception(error)
    try:
        rows = engine.encoder.encode([job.text for job, _ in ready])
    except Exception as error:  # noqa: BLE001 - it belongs to whoever waits for these jobs
        for job, _ in ready:
            job.future.set_exception(error)
        return
    for (job, finish), row in zip(ready, rows, strict=True):
        try:
            job.future.set_result(finish(row))
        except Exception as error:  # noqa: BLE001 - it belongs to whoever waits for this job
            job.future.set_exception(error)
