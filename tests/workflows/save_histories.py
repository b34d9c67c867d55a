"""Saves this version's histories, once per release: `python -m tests.workflows.save_histories`."""

from __future__ import annotations

import asyncio
import json
import tempfile
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any, cast

from temporalio.client import Client

from embedded.stack import Stack
from tests.workflows.scenarios import SCENARIOS, Runs

HISTORIES = Path(__file__).parent.parent / "histories"


async def save(client: Client, folder: Path, home: Path) -> None:
    """Runs every scenario and writes its history."""
    folder.mkdir(parents=True, exist_ok=True)
    runs = Runs(client, home)
    for scenario in SCENARIOS:
        handle = await scenario(runs)
        history = await handle.fetch_history()
        path = folder / f"{scenario.__name__}.json"
        path.write_text(json.dumps(_portable(history.to_json_dict()), indent=1, sort_keys=True) + "\n")
        print(path.name)


def _portable(value: Any) -> Any:
    """Without stack traces, which replay does not read and which name paths of the machine."""
    if isinstance(value, dict):
        items = cast("dict[str, Any]", value).items()
        return {name: _portable(item) for name, item in items if name != "stackTrace"}
    if isinstance(value, list):
        return [_portable(item) for item in cast("Sequence[Any]", value)]
    return value


async def main() -> None:
    """Into the folder of the installed version."""
    with tempfile.TemporaryDirectory(prefix="classifier-histories-") as home:
        async with Stack(Path(home), database=False) as stack:
            assert stack.addresses.temporal_address is not None
            client = await Client.connect(stack.addresses.temporal_address, identity="saved")
            await save(
                client, HISTORIES / ".".join(version("temporal-classifier").split(".")[:2]), Path(home)
            )


if __name__ == "__main__":
    asyncio.run(main())
