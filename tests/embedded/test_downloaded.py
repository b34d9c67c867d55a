"""Where there is no wheel of the dev server, the SDK runs it; here without fetching anything."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from temporalio.client import Client

from embedded.errors import EmbeddedError
from embedded.state import StateFolder
from embedded.temporal_server import DownloadedTemporalServer
from embedded.wheels import find_temporal
from tests.embedded.helpers import servers

if TYPE_CHECKING:
    from pathlib import Path


async def test_the_sdk_s_own_server_keeps_workflows_and_prints_nothing(
    home: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    folder = StateFolder(home)
    server = DownloadedTemporalServer(folder, find_temporal())
    await server.start()
    client = await Client.connect(f"127.0.0.1:{folder.read_record().temporal_port}")
    await client.start_workflow("Anything", id="survivor", task_queue="nobody-polls-this")
    await server.stop()
    await server.start()
    try:
        client = await Client.connect(f"127.0.0.1:{folder.read_record().temporal_port}")
        assert (await client.get_workflow_handle("survivor").describe()).id == "survivor"
    finally:
        await server.stop()
    assert servers(home) == {}
    assert capfd.readouterr() == ("", "")


async def test_a_server_that_cannot_be_started_is_one_sentence(home: Path) -> None:
    server = DownloadedTemporalServer(StateFolder(home), home / "missing")
    with pytest.raises(
        EmbeddedError, match=r"^Temporal's dev server cannot be downloaded and started: run pip"
    ):
        await server.start()
