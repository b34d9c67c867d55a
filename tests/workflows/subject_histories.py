"""A subject's workflow worth keeping; `python -m tests.workflows.subject_histories` saves it."""

from __future__ import annotations

import asyncio
import json
import tempfile
import uuid
from datetime import timedelta
from importlib.metadata import version
from pathlib import Path
from typing import Any

from temporalio.client import Client, WorkflowHandle

from classifier.audit.memory import MemoryStore
from classifier.audit.records import SourceEvent
from embedded.stack import Addresses, Stack
from tests.classifier.temporal.letters import until
from tests.workflows.save_histories import HISTORIES, _portable
from tests.workflows.tickets import always, app, event, says
from worker import Service, Settings, working
from workflows.events import Incoming
from workflows.intake import Gathering, Intake

SUBJECTS = HISTORIES / "subjects"
SOON = timedelta(milliseconds=300)


async def gathered(client: Client, home: Path) -> WorkflowHandle[Any, Any]:
    """A burst that became one run, a state that came too late, a newer one, and then a loop; goes on."""
    queue, store = f"queue-{uuid.uuid4()}", MemoryStore()
    settings = Settings(home=home, task_queue=queue, environ={"HOOK_TOKEN": "sk-test-123"})
    service = Service(settings, Addresses(None, None, None), True, "", store, client, None)

    def happened(kind: str) -> int:
        return sum(each.kind == kind for each in store.history.values())

    async def offered(*numbers: int) -> WorkflowHandle[Any, Any]:
        gathering = Gathering(SOON, SOON * 2, runs_a_minute=2)
        intake = Intake(client, store, task_queue=queue, playbook="tickets", gathering=gathering)
        started = await intake.accept([_state(number) for number in numbers])
        return client.get_workflow_handle(started[0].workflow_id)

    async def delivered(count: int) -> None:
        async def so_many() -> bool:
            return happened("delivery") == count

        await until(so_many, 30)

    async def noted(kind: str) -> None:
        async def it_is() -> bool:
            return happened(kind) > 0

        await until(it_is, 30)

    async with working(service, app(always(says("billing")))):
        await offered(2, 3, 4)
        await delivered(1)
        await offered(1)
        await noted("stale")
        await offered(5)
        await delivered(2)
        handle = await offered(6)
        await noted("loop")
    return handle


def _state(number: int) -> Incoming:
    given = {**event(str(number)), "subject": "ticket-9", "sequence": str(number)}
    return Incoming(1, given, SourceEvent("acme", given["source"], given["id"]))


async def main() -> None:
    """Into the folder of the installed version."""
    with tempfile.TemporaryDirectory(prefix="classifier-histories-") as home:
        async with Stack(Path(home), database=False) as stack:
            assert stack.addresses.temporal_address is not None
            client = await Client.connect(stack.addresses.temporal_address, identity="saved")
            handle = await gathered(client, Path(home))
            history = await handle.fetch_history()
    folder = SUBJECTS / ".".join(version("temporal-classifier").split(".")[:2])
    folder.mkdir(parents=True, exist_ok=True)
    text = json.dumps(_portable(history.to_json_dict()), indent=1, sort_keys=True)
    (folder / f"{gathered.__name__}.json").write_text(f"{text}\n")


if __name__ == "__main__":
    asyncio.run(main())
