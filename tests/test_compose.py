"""docker-compose.yml and the Dockerfile: valid, pinned, without secrets, and their commands really run.

No container engine is needed: what a container would run is run as a process, with the environment that the
file gives it, against the embedded servers.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
import shlex
import signal
import sys
import tempfile
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import asyncpg
import httpx
import jsonschema
import pytest
import sqlalchemy as sa
import yaml
from temporalio.api.enums.v1 import TaskQueueType
from temporalio.api.taskqueue.v1 import TaskQueue
from temporalio.api.workflowservice.v1 import DescribeTaskQueueRequest
from temporalio.client import Client

from classifier.audit.roles import problems
from embedded.stack import Stack
from embedded.state import StateFolder
from embedded.wheels import find_postgres, find_temporal
from tests.tree import ROOT, pyproject, shipped_names
from worker import GRACE

TEXT = (ROOT / "docker-compose.yml").read_text(encoding="utf-8")
COMPOSE: dict[str, Any] = yaml.safe_load(TEXT)
SERVICES: dict[str, dict[str, Any]] = COMPOSE["services"]
OURS = ("migrate", "worker", "serve")
ONE_SHOT = {"databases", "migrate", "temporal-schema", "temporal-namespace"}
SECRETS = {
    "POSTGRES_PASSWORD": "not-the-superusers",
    "TEMPORAL_DB_PASSWORD": "a0" * 24,
    "CLASSIFIER_DB_PASSWORD": "b1" * 24,
    "CLASSIFIER_HASH_KEY": "c2" * 32,
}
PATIENCE = 60
_VARIABLE = re.compile(
    r"\$(?:(?P<escaped>\$)|\{(?P<name>\w+)(?::(?P<kind>[-?])(?P<rest>[^}]*))?\}|(?P<bare>\w+))"
)
_SECRET_NAME = re.compile(r"PASSWORD|PWD|_KEY$|SECRET|TOKEN")
_REQUIRED = re.compile(r"\$\{\w+:\?[^}]*\}")


class MissingError(Exception):
    """A variable that has to be set is not; compose refuses to start then."""


def interpolated(value: Any, variables: Mapping[str, str]) -> Any:
    """What compose makes of a value: the forms of the specification that the file uses."""
    if isinstance(value, dict):
        return {key: interpolated(each, variables) for key, each in value.items()}  # pyright: ignore[reportUnknownVariableType]
    if isinstance(value, list):
        return [interpolated(each, variables) for each in value]  # pyright: ignore[reportUnknownVariableType]
    if not isinstance(value, str):
        return value

    def replaced(found: re.Match[str]) -> str:
        if found["escaped"]:
            return "$"
        name = found["name"] or found["bare"]
        match found["kind"], variables.get(name):
            case "?", None | "":
                raise MissingError(name)
            case "-", None | "":
                return str(found["rest"])
            case _, given:
                return given or ""

    return _VARIABLE.sub(replaced, value)


def dockerfile() -> list[tuple[str, str]]:
    """Instructions and their arguments, in order."""
    text = (ROOT / "Dockerfile").read_text(encoding="utf-8")
    lines = [line for line in text.splitlines() if line.strip() and not line.lstrip().startswith("#")]
    joined = "\n".join(lines).replace("\\\n", " ")
    return [
        (word.upper(), rest.strip()) for word, _, rest in (line.partition(" ") for line in joined.split("\n"))
    ]


def test_the_file_is_valid_by_the_compose_specification() -> None:
    schema = json.loads((ROOT / "tests" / "data" / "compose-spec.json").read_text(encoding="utf-8"))
    jsonschema.validate(COMPOSE, schema, jsonschema.Draft7Validator)


@pytest.mark.parametrize("name", SERVICES)
def test_every_image_is_pinned_to_a_full_version(name: str) -> None:
    image, _, tag = SERVICES[name]["image"].partition(":")
    assert image
    assert re.match(r"\d+\.\d+(\.\d+)?(-\w+)?$", tag), f"{name} uses {image}:{tag}"


def test_no_secret_stands_in_the_file() -> None:
    for name, service in SERVICES.items():
        for variable, value in service.get("environment", {}).items():
            if _SECRET_NAME.search(variable):
                assert _REQUIRED.fullmatch(value), f"{name}: {variable} has to come from the environment"
    assert re.findall(r"://[^\s:/@]+:(?!\$\{)[^\s@]*@", TEXT) == []


@pytest.mark.parametrize("missing", SECRETS)
def test_nothing_starts_while_a_secret_is_not_set(missing: str) -> None:
    given = {name: value for name, value in SECRETS.items() if name != missing}
    with pytest.raises(MissingError, match=missing):
        interpolated(SERVICES, given)


def test_the_example_environment_lists_every_variable_with_its_default() -> None:
    used = {
        found["name"]: (found["kind"], found["rest"]) for found in _VARIABLE.finditer(TEXT) if found["name"]
    }
    example = (ROOT / ".env.example").read_text(encoding="utf-8")
    required = set(re.findall(r"^(\w+)=", example, re.MULTILINE))
    optional = dict(re.findall(r"^# (\w+)=(.*)$", example, re.MULTILINE))
    assert required == {name for name, (kind, _) in used.items() if kind == "?"} == set(SECRETS)
    assert optional == {name: rest for name, (kind, rest) in used.items() if kind == "-"}


def test_what_stays_is_watched_and_what_ends_is_waited_for() -> None:
    for name, service in SERVICES.items():
        for other, how in service.get("depends_on", {}).items():
            expected = "service_completed_successfully" if other in ONE_SHOT else "service_healthy"
            assert how["condition"] == expected, f"{name} waits for {other}"
        assert ("healthcheck" in service) == (name not in ONE_SHOT), name
        restart = "on-failure" if name in ONE_SHOT else "unless-stopped"
        assert service["restart"].startswith(restart), name


def test_nothing_listens_beyond_this_host() -> None:
    ports = [port for service in SERVICES.values() for port in service.get("ports", [])]
    assert ports
    assert all(port.startswith("127.0.0.1:") for port in ports)


def test_the_worker_gets_more_time_to_stop_than_it_gives_to_calls_in_flight() -> None:
    grace = re.fullmatch(r"(\d+)s", SERVICES["worker"]["stop_grace_period"])
    assert grace
    assert int(grace[1]) >= GRACE.total_seconds() + 5


@pytest.mark.parametrize("name", OURS)
def test_our_image_is_tagged_with_the_version_of_the_project(name: str) -> None:
    assert SERVICES[name]["image"] == f"temporal-classifier:{pyproject()['project']['version']}"


@pytest.mark.parametrize("name", OURS)
def test_our_services_run_without_rights_they_do_not_need(name: str) -> None:
    assert SERVICES[name]["cap_drop"] == ["ALL"]
    assert SERVICES[name]["security_opt"] == ["no-new-privileges:true"]
    assert "user" not in SERVICES[name], "the image says who runs it"


def test_the_image_runs_as_a_plain_user() -> None:
    users = [rest for word, rest in dockerfile() if word == "USER"]
    assert users
    assert users[-1] not in {"root", "0"}
    assert any(
        word == "RUN" and "useradd" in rest and rest.endswith(users[-1]) for word, rest in dockerfile()
    )


def test_the_image_is_built_on_one_pinned_base() -> None:
    bases = {rest.split()[0] for word, rest in dockerfile() if word == "FROM"}
    assert len(bases) == 1
    assert re.fullmatch(r"python:\d+\.\d+\.\d+-slim-\w+", bases.pop())


def test_the_image_installs_the_wheel_under_constraints_from_no_named_host() -> None:
    (install,) = [rest for word, rest in dockerfile() if word == "RUN" and "pip install" in rest]
    assert "--constraint constraints.txt" in install
    assert "://" not in "\n".join(rest for _, rest in dockerfile())


def test_the_image_is_given_everything_the_wheel_is_built_from() -> None:
    copies = [rest.split()[:-1] for word, rest in dockerfile() if word == "COPY" and "--from" not in rest]
    copied = {source for sources in copies for source in sources}
    missing = {source for source in copied if not (ROOT / source).exists()}
    assert missing == set(), "the Dockerfile copies what is not there"
    let_in = {
        line[1:]
        for line in (ROOT / ".dockerignore").read_text(encoding="utf-8").splitlines()
        if line[:1] == "!"
    }
    assert copied == let_in
    assert set(shipped_names()) <= copied


@dataclass(frozen=True)
class Host:
    """The embedded servers in the place of the containers `postgres` and `temporal`."""

    home: Path
    superuser: str
    postgres: tuple[str, int]
    temporal: str

    def translated(self, value: str) -> str:
        """A value of the file, with the addresses and paths that hold on this host."""
        host, port = self.postgres
        exact = {"postgres": host, "5432": str(port), "/var/lib/classifier": str(self.home)}
        if value in exact and value != "postgres":
            return exact[value]
        return value.replace("postgres:5432", f"{host}:{port}").replace("temporal:7233", self.temporal)

    def environment(self, name: str) -> dict[str, str]:
        """What the container of a service would find in its environment, and nothing of ours."""
        variables = {**SECRETS, "POSTGRES_PASSWORD": self.superuser}
        given = interpolated(SERVICES[name]["environment"], variables)
        environment = {variable: self.translated(value) for variable, value in given.items()}
        if "PGHOST" in environment:
            environment["PGHOST"] = self.postgres[0]
        return environment

    def command(self, name: str) -> list[str]:
        """The command of a service, behind its entrypoint or the image's."""
        service = SERVICES[name]
        (entrypoint,) = [json.loads(rest) for word, rest in dockerfile() if word == "ENTRYPOINT"]
        words = [*service.get("entrypoint", entrypoint if name in OURS else []), *service["command"]]
        return [str(interpolated(word, {})) for word in words]

    async def start(self, command: list[str], environment: dict[str, str]) -> Process:
        """Runs a command as a container would."""
        programs = [find_postgres().program("psql"), str(find_temporal()), sys.executable]
        path = ":".join(str(Path(program).parent) for program in programs)
        return await asyncio.create_subprocess_exec(
            *command,
            cwd=self.home,
            env={"PATH": f"{path}:/usr/bin:/bin", **environment},
            stdout=PIPE,
            stderr=PIPE,
        )

    async def run(self, command: list[str], environment: dict[str, str]) -> str:
        """Runs a command to its end, which has to be a good one, and gives back what it said."""
        process = await self.start(command, environment)
        async with asyncio.timeout(PATIENCE):
            output, errors = await process.communicate()
        assert process.returncode == 0, f"{shlex.join(command)}: {errors.decode()}{output.decode()}"
        return output.decode() + errors.decode()

    async def run_service(self, name: str) -> str:
        """Runs a one-shot service to its end."""
        with contextlib.ExitStack() as files:
            command = self.command(name)
            for config in SERVICES[name].get("configs", []):
                file = files.enter_context(tempfile.NamedTemporaryFile("w", dir=self.home, suffix=".sql"))
                file.write(interpolated(COMPOSE["configs"][config["source"]]["content"], SECRETS))
                file.flush()
                command = [word.replace(config["target"], file.name) for word in command]
            return await self.run(command, self.environment(name))

    async def pollers(self) -> int:
        """How many workers poll for workflows on the queue of the worker service."""
        client = await Client.connect(self.temporal)
        described = await client.workflow_service.describe_task_queue(
            DescribeTaskQueueRequest(
                namespace=client.namespace,
                task_queue=TaskQueue(name=self.environment("worker")["CLASSIFIER_TASK_QUEUE"]),
                task_queue_type=TaskQueueType.TASK_QUEUE_TYPE_WORKFLOW,
            )
        )
        return len(described.pollers)


@pytest.fixture(scope="module")
async def bare_host() -> AsyncIterator[Host]:
    """The servers as they are before the first `docker compose up`: without our login and database."""
    with tempfile.TemporaryDirectory(prefix="compose-") as folder:
        async with Stack(Path(folder)) as stack:
            secrets = StateFolder(Path(folder)).read_secrets()
            assert secrets
            assert stack.addresses.database_url
            assert stack.addresses.temporal_address
            url = sa.make_url(stack.addresses.database_url)
            assert url.host
            assert url.port
            superuser = await asyncpg.connect(
                host=url.host, port=url.port, user="postgres", password=secrets.postgres, ssl=False
            )
            await superuser.execute("DROP DATABASE classifier")
            await superuser.execute("DROP ROLE classifier")
            await superuser.close()
            state = Path(folder) / "state"
            state.mkdir()
            yield Host(state, secrets.postgres, (url.host, url.port), stack.addresses.temporal_address)


@pytest.fixture(scope="module")
async def host(bare_host: Host) -> Host:
    """The servers after the one-shot services have run."""
    await bare_host.run_service("databases")
    await bare_host.run_service("migrate")
    return bare_host


async def test_the_databases_are_made_once_with_logins_that_are_no_superusers(bare_host: Host) -> None:
    await bare_host.run_service("databases")
    await bare_host.run_service("databases")
    address, port = bare_host.postgres
    connection = await asyncpg.connect(
        host=address,
        port=port,
        user="classifier",
        password=SECRETS["CLASSIFIER_DB_PASSWORD"],
        database="classifier",
        ssl=False,
    )
    logins = await connection.fetch(
        "SELECT rolname, rolsuper OR rolbypassrls OR rolcreatedb AS above, rolcreaterole FROM pg_roles "
        "WHERE rolname IN ('temporal', 'classifier') ORDER BY 1"
    )
    owners = await connection.fetch(
        "SELECT datname, pg_get_userbyid(datdba) FROM pg_database "
        "WHERE datname !~ '^(template|postgres)' ORDER BY 1"
    )
    await connection.close()
    assert [tuple(login) for login in logins] == [("classifier", False, True), ("temporal", False, False)]
    assert [tuple(owner) for owner in owners] == [
        ("classifier", "classifier"),
        ("temporal", "temporal"),
        ("temporal_visibility", "temporal"),
    ]


async def test_temporals_login_does_not_enter_our_database(host: Host) -> None:
    address, port = host.postgres
    with pytest.raises(asyncpg.InsufficientPrivilegeError):
        await asyncpg.connect(
            host=address,
            port=port,
            user="temporal",
            password=SECRETS["TEMPORAL_DB_PASSWORD"],
            database="classifier",
            ssl=False,
        )


async def test_migrate_ends_well_on_an_empty_database_and_again(host: Host) -> None:
    assert "up to date" in await host.run_service("migrate")
    assert await problems(host.environment("worker")["DATABASE_URL"]) == []


async def test_the_namespace_is_made_once(host: Host) -> None:
    service = "temporal-namespace"
    environment = {
        **host.environment(service),
        "TEMPORAL_NAMESPACE": "made-by-compose",
        "HOME": str(host.home),
    }
    command = host.command(service)
    await host.run(command, environment)
    await host.run(command, environment)
    await Client.connect(host.temporal, namespace="made-by-compose")


@pytest.mark.slow
async def test_the_worker_polls_is_healthy_and_stops_within_its_grace(host: Host) -> None:
    environment = host.environment("worker")
    worker = await host.start(host.command("worker"), environment)
    try:
        assert worker.stderr
        async with asyncio.timeout(PATIENCE):
            said = await worker.stderr.readline()
            assert b"worker polls classifier" in said, (said + await worker.stderr.read()).decode()
            while not await host.pollers():
                await asyncio.sleep(0.1)
        kind, *check = SERVICES["worker"]["healthcheck"]["test"]
        assert kind == "CMD"
        await host.run(check, environment)
        worker.send_signal(signal.SIGTERM)
        async with asyncio.timeout(GRACE.total_seconds()):
            assert await worker.wait() == 0
    finally:
        if worker.returncode is None:
            worker.kill()
            await worker.wait()


def test_the_service_is_started_by_those_who_ask_for_it() -> None:
    assert {name for name, service in SERVICES.items() if "profiles" in service} == {"serve"}
    assert SERVICES["serve"]["env_file"] == [{"path": "serve.env", "required": False}]


@pytest.mark.slow
async def test_the_service_is_healthy_takes_an_event_and_stops(host: Host) -> None:
    """On a port that is free here; who may send is what `serve.env` would say."""
    command = ["0" if word == "8000" else word for word in host.command("serve")]
    token = "a-long-random-token"
    serve = await host.start(command, {**host.environment("serve"), "CLASSIFIER_TOKENS": f"acme:{token}"})
    try:
        assert serve.stderr
        async with asyncio.timeout(PATIENCE):
            said = (await serve.stderr.readline()).decode()
            found = re.search(r"takes events at http://[^:]+:(\d+)/events", said)
            assert found, said + (await serve.stderr.read()).decode()
        _, python, *check = SERVICES["serve"]["healthcheck"]["test"]
        assert python == "python"
        await host.run([sys.executable, *(word.replace("8000", found[1]) for word in check)], {})
        event = {"specversion": "1.0", "id": "1", "source": "/here", "type": "ticket", "data": "my card"}
        async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{found[1]}") as client:
            taken = await client.post(
                "/events",
                content=json.dumps(event),
                headers={
                    "Content-Type": "application/cloudevents+json",
                    "Authorization": f"Bearer {token}",
                },
            )
        assert taken.status_code == 202, taken.text
        serve.send_signal(signal.SIGTERM)
        async with asyncio.timeout(PATIENCE):
            assert await serve.wait() == 0
    finally:
        if serve.returncode is None:
            serve.kill()
            await serve.wait()
