"""`classifier serve` as processes: two at once, told to stop, refused a start, and fed by the documents."""

from __future__ import annotations

import asyncio
import json
import re
import time
from collections.abc import AsyncGenerator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest
from temporalio.client import Client

from embedded.stack import running
from tests.markdown import Document
from tests.postgres import PostgresServer
from tests.processes import Running, environment, run, started, state_folder
from tests.service import deliveries
from tests.service.house import GITHUB_SECRET, github
from tests.tree import ROOT

TOKEN = "a-long-random-token"
DOCUMENT = Document(ROOT / "docs" / "events.md")
pytestmark = pytest.mark.slow


@dataclass
class Street:
    """Two services and a worker behind one Temporal and one database."""

    urls: list[str]
    environ: dict[str, str]


@pytest.fixture(scope="module")
async def street(temporal_address: str, postgres_server: PostgresServer) -> AsyncGenerator[Street]:
    with state_folder() as home:
        async with postgres_server.database() as url:
            environ = environ_of(home, temporal_address, url)
            async with (
                started("worker", environ=environ) as worker,
                started("serve", "--port", "0", environ=environ) as first,
                started("serve", "--port", "0", environ=environ) as second,
            ):
                await asyncio.gather(
                    worker.said("worker polls"), first.said("stop with"), second.said("stop with")
                )
                yield Street([address_of(first), address_of(second)], environ)


def environ_of(home: Path, temporal: str, database_url: str) -> dict[str, str]:
    return environment(
        home,
        TEMPORAL_ADDRESS=temporal,
        DATABASE_URL=database_url,
        CLASSIFIER_HASH_KEY="only-for-tests",
        CLASSIFIER_TASK_QUEUE=f"street-{home.name}",
        CLASSIFIER_APP="tests.apps.desk:app",
        CLASSIFIER_TOKENS=f"acme:{TOKEN}",
        CLASSIFIER_WEBHOOKS="github=github:acme:GITHUB_SECRET",
        GITHUB_SECRET=GITHUB_SECRET,
    )


def address_of(running: Running) -> str:
    found = re.search(r"takes events at (\S+)/events", running.errors)
    assert found
    return found[1]


def event(number: str, source: str, **more: Any) -> dict[str, Any]:
    return {"specversion": "1.0", "id": number, "source": source, "type": "ticket", "data": "my card", **more}


async def post(http: httpx.AsyncClient, url: str, given: dict[str, Any]) -> httpx.Response:
    headers = {"content-type": "application/cloudevents+json", "authorization": f"Bearer {TOKEN}"}
    return await http.post(f"{url}/events", content=json.dumps(given).encode(), headers=headers)


async def test_the_same_delivery_at_two_processes_at_once_is_one_run_and_both_are_told_so(
    street: Street,
) -> None:
    async with httpx.AsyncClient(timeout=60) as http:
        for url in street.urls:
            assert (await http.get(f"{url}/readyz")).status_code == 200
        for number in range(20):
            body = deliveries.issue(f"acme/two-{time.time_ns()}", number=number)
            headers = github(body, "d-1")
            both = [http.post(f"{url}/webhooks/github", content=body, headers=headers) for url in street.urls]
            one, other = await asyncio.gather(*both)
            assert one.status_code == other.status_code == 202
            assert one.json() == other.json()
        for kind in ("ticket", "state", "burst"):
            given = event("d-1", f"/two/{time.time_ns()}", type=kind, subject="order-9")
            one, other = await asyncio.gather(*(post(http, url, given) for url in street.urls))
            assert one.status_code == other.status_code == 202
            assert one.json()["run_id"]
            assert one.json() == other.json()


async def test_told_to_stop_it_finishes_what_is_in_flight_and_takes_nothing_new(street: Street) -> None:
    async with started("serve", "--port", "0", environ=street.environ) as serve:
        await serve.said("stop with")
        url = address_of(serve)
        sent, go_on = asyncio.Event(), asyncio.Event()
        body = json.dumps(event("e1", f"/stop/{time.time_ns()}")).encode()

        async def slowly() -> AsyncGenerator[bytes]:
            yield body[:10]
            sent.set()
            await go_on.wait()
            yield body[10:]

        headers = {"content-type": "application/cloudevents+json", "authorization": f"Bearer {TOKEN}"}
        async with httpx.AsyncClient(timeout=60) as http:
            assert (await http.get(f"{url}/healthz")).status_code == 200
            in_flight = asyncio.create_task(http.post(f"{url}/events", content=slowly(), headers=headers))
            await sent.wait()
            stopping = asyncio.create_task(serve.terminated())
            await _refused(url)
            go_on.set()
            assert (await in_flight).status_code == 202
        finished = await stopping
    assert (finished.code, finished.output) == (0, "")
    assert "Traceback" not in finished.errors


async def test_with_nothing_configured_it_decides_and_keeps_the_house_too() -> None:
    with state_folder() as home:
        environ = environment(home, CLASSIFIER_APP="tests.apps.desk:app", CLASSIFIER_TOKENS=f"acme:{TOKEN}")
        async with started("serve", "--port", "0", environ=environ) as serve:
            await serve.said("stop with")
            async with httpx.AsyncClient(timeout=60, headers={"prefer": "wait=30"}) as http:
                answer = await post(http, address_of(serve), event("e1", "/alone"))
            addresses = running(home)
            assert addresses is not None
            client = await Client.connect(addresses.temporal_address or "")
            schedule = await client.get_schedule_handle("classifier-housekeeping").describe()
            stopped = await serve.terminated()
    assert (answer.status_code, answer.json()["decision"]["route"]) == (200, "billing")
    assert not schedule.schedule.state.paused
    assert stopped.code == 0


async def _refused(url: str) -> None:
    """Returns when nobody new is let in."""
    host, _, port = url.removeprefix("http://").rpartition(":")
    async with asyncio.timeout(60):
        while True:
            try:
                _, writer = await asyncio.open_connection(host, int(port))
            except ConnectionRefusedError:
                return
            writer.close()
            await asyncio.sleep(0.02)


async def test_without_a_secret_it_refuses_to_start_and_names_the_variable(street: Street) -> None:
    environ = {**street.environ, "CLASSIFIER_TOKENS": "", "CLASSIFIER_WEBHOOKS": ""}
    nobody = await run("serve", "--port", "0", environ=environ)
    assert nobody.code == 1
    assert "CLASSIFIER_TOKENS is not set" in nobody.sentence
    unsigned = await run("serve", "--port", "0", environ={**street.environ, "GITHUB_SECRET": ""})
    assert unsigned.code == 1
    assert "GITHUB_SECRET is not set" in unsigned.sentence


async def test_a_port_that_is_taken_is_said_in_a_sentence(street: Street) -> None:
    port = street.urls[0].rpartition(":")[2]
    finished = await run("serve", "--port", port, environ=street.environ)
    assert finished.code == 1
    assert f"cannot listen on 127.0.0.1 port {port}" in finished.sentence


async def test_the_curl_lines_of_the_document_work(street: Street) -> None:
    lines = [block.code for block in DOCUMENT.blocks("sh") if block.code.startswith("curl ")]
    assert len(lines) == 4
    answers: list[Any] = []
    for line in lines:
        command = line.replace("http://127.0.0.1:8000", street.urls[0])
        process = await asyncio.create_subprocess_shell(
            command, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
        )
        output, errors = await process.communicate()
        assert process.returncode == 0, errors.decode() + output.decode()
        answers.append(json.loads(output))
    structured, binary, batch, waited = answers
    assert [structured["event_id"], binary["event_id"]] == ["ticket-4711", "ticket-4712"]
    assert [each["status"] for each in batch] == [202, 202]
    assert waited["decision"]["route"] == "billing"
