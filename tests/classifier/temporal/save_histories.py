"""Saves histories of guarded runs, once per release: run this module."""

from __future__ import annotations

import asyncio
import contextlib
import json
import tempfile
import uuid
from collections.abc import AsyncGenerator
from importlib.metadata import version
from pathlib import Path
from typing import Any

from temporalio.client import Client, WorkflowFailureError, WorkflowHandle

from classifier.audit.memory import MemoryStore
from classifier.audit.store import DecisionStore
from classifier.models.protocol import DecisionModel
from embedded.stack import Stack
from tests.classifier.temporal.chats import both, given, guarding, scripted
from tests.classifier.temporal.letters import Interrupted, activities, always, until
from tests.classifier.temporal.project.worker import worker
from tests.workflows.save_histories import _portable

HISTORIES = Path(__file__).parent / "histories"
BOTH = ("letters", "tone")
Handle = WorkflowHandle[Any, Any]


class Runs:
    """Each method is a run of its own, on a worker of its own."""

    def __init__(self, client: Client) -> None:
        self._client = client

    async def passed(self) -> Handle:
        """Everything came through, and the run went on."""
        return await self._ended(given("hello", "bye", processors=BOTH, acts=True))

    async def passed_locally(self) -> Handle:
        """The same in local mode."""
        return await self._ended(given("hello", "bye", processors=BOTH, acts=True, local=True))

    async def filtered(self) -> Handle:
        """A message was dropped."""
        return await self._ended(given("hello", "a dull day", processors=BOTH, acts=True))

    async def aborted(self) -> Handle:
        """The run failed with a tripwire."""
        return await self._ended(given("bad", processors=BOTH, acts=True))

    async def lost(self) -> Handle:
        """The activity ran out of time, and its failure was recorded."""
        slow = given("hello", attempt_seconds=1, overall_seconds=1)
        return await self._ended(slow, model=always(latency=30))

    async def store_outage(self) -> Handle:
        """The records came in later."""
        store = Interrupted(MemoryStore())
        store.away = True
        async with self._run(given("hello", processors=BOTH, acts=True), store=store) as handle:
            await until(lambda: _has(handle, "file_away"), 20)
            store.away = False
            await handle.result()
        return handle

    async def required_outage(self) -> Handle:
        """The run waited for its records."""
        store = Interrupted(MemoryStore())
        store.away = True
        async with self._run(given("bad", processors=BOTH, required=True), store=store) as handle:
            await until(lambda: _has(handle, "classifier.record"), 20)
            store.away = False
            await _end(handle)
        return handle

    async def finished_stop(self) -> Handle:
        """Stopped, and let to decide first."""
        return await self._stopped(finish=True)

    async def stopped(self) -> Handle:
        """Stopped while the answer was being written."""
        return await self._stopped(finish=False)

    async def _stopped(self, *, finish: bool) -> Handle:
        store = Interrupted(MemoryStore())
        store.open.clear()
        async with self._run(given("hello", acts=True, finish=finish), store=store) as handle:
            await store.tried.wait()
            await handle.cancel()
            await asyncio.sleep(1)  # until a heartbeat told the activity
            store.open.set()
            await _end(handle)
        return handle

    async def _ended(self, wanted: Any, model: DecisionModel | None = None) -> Handle:
        async with self._run(wanted, model=model) as handle:
            await _end(handle)
        return handle

    @contextlib.asynccontextmanager
    async def _run(
        self, wanted: Any, *, model: DecisionModel | None = None, store: DecisionStore | None = None
    ) -> AsyncGenerator[Handle]:
        queue = f"queue-{uuid.uuid4()}"
        project = both(model or scripted())
        async with worker(self._client, project, store or MemoryStore(), queue, identity="saved"):
            yield await guarding(self._client, queue, wanted)


SCENARIOS = (
    Runs.passed,
    Runs.passed_locally,
    Runs.filtered,
    Runs.aborted,
    Runs.lost,
    Runs.store_outage,
    Runs.required_outage,
    Runs.finished_stop,
    Runs.stopped,
)


async def _end(handle: Handle) -> None:
    with contextlib.suppress(WorkflowFailureError):
        await handle.result()


async def _has(handle: Handle, name: str) -> bool:
    return name in await activities(handle)


async def save(client: Client, folder: Path) -> None:
    """Runs every scenario and writes its history."""
    folder.mkdir(parents=True, exist_ok=True)
    for scenario in SCENARIOS:
        handle = await scenario(Runs(client))
        history = await handle.fetch_history()
        text = json.dumps(_portable(history.to_json_dict()), indent=1, sort_keys=True)
        (folder / f"{scenario.__name__}.json").write_text(text + "\n", encoding="utf-8")
        print(scenario.__name__)


async def main() -> None:
    """Into the folder of the installed version."""
    with tempfile.TemporaryDirectory(prefix="classifier-histories-") as home:
        async with Stack(Path(home), database=False) as stack:
            assert stack.addresses.temporal_address is not None
            client = await Client.connect(stack.addresses.temporal_address, identity="saved")
            await save(client, HISTORIES / ".".join(version("temporal-classifier").split(".")[:2]))


if __name__ == "__main__":
    asyncio.run(main())
