"""What the service says when a part it needs is away: 503, not ready, alive; and nothing is half taken."""

from __future__ import annotations

from pathlib import Path

import pytest
from temporalio.client import Client

from tests.service.cable import Cable
from tests.service.house import House, house

NOWHERE = "127.0.0.1:9"


async def test_a_service_whose_parts_answer_is_ready(door: House) -> None:
    for address in ("healthz", "readyz"):
        response = await door.http.get(f"{door.url}/{address}")
        assert (response.status_code, response.json()) == (200, {"status": "ok"})


@pytest.mark.slow
async def test_without_temporal_it_is_alive_and_not_ready_and_takes_events_again_when_it_is_back(
    temporal_address: str, queue: str, tmp_path: Path, database_url: str
) -> None:
    host, _, port = temporal_address.rpartition(":")
    async with Cable(host, int(port)).laid() as cable:
        client = await Client.connect(cable.address)
        async with house(client, queue, tmp_path, database_url, works=False) as desk:
            cable.cut()
            await _is_away(desk, "temporal", "TEMPORAL_UNAVAILABLE")
            batch = await desk.post(
                [desk.event("e1")], **{"content-type": "application/cloudevents-batch+json"}
            )
            assert (batch.status_code, batch.json()["code"]) == (503, "TEMPORAL_UNAVAILABLE")
            cable.mend()
            taken = await desk.post(desk.event("e1"))
            while taken.status_code == 503:
                taken = await desk.post(desk.event("e1"))
            assert (taken.status_code, taken.json()["event_id"]) == (202, "e1")


async def test_without_the_database_it_is_alive_and_not_ready_and_takes_nothing(
    client: Client, queue: str, tmp_path: Path
) -> None:
    nowhere = f"postgresql://somebody@{NOWHERE}/nothing"
    async with house(client, queue, tmp_path, nowhere, works=False) as desk:
        await _is_away(desk, "database", "STORE_UNAVAILABLE")


async def _is_away(desk: House, part: str, code: str) -> None:
    alive = await desk.http.get(f"{desk.url}/healthz")
    assert alive.status_code == 200
    ready = await desk.http.get(f"{desk.url}/readyz")
    assert (ready.status_code, ready.json()["detail"]) == (503, f"no answer from: {part}")
    response = await desk.post(desk.event("e1"))
    assert (response.status_code, response.json()["code"]) == (503, code)
    assert int(response.headers["Retry-After"]) >= 1
