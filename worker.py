"""The composition root: environment → app, models, store → plugin → worker. One of the two doors.

Only here and in `cli.py` is the environment read.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import secrets
from collections.abc import AsyncGenerator, Mapping
from dataclasses import dataclass, field, replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import httpx
from temporalio import activity
from temporalio.client import Client
from temporalio.envconfig import ClientConfig, ClientConnectConfig
from temporalio.runtime import LoggingConfig, Runtime, TelemetryConfig, TelemetryFilter
from temporalio.service import RPCError
from temporalio.worker import PollerBehaviorAutoscaling, Worker

from activities.deliver import DeliveryActivities
from classifier.app import App, ResolvedApp, load_app
from classifier.audit.postgres import PostgresStore
from classifier.audit.schema import upgrade
from classifier.audit.store import AuditStore
from classifier.errors import ClassifierError, ConfigurationError
from classifier.temporal.plugin import ClassifierPlugin, with_passthrough
from classifier.tracing import installed
from embedded.stack import Addresses, Stack, running
from embedded.state import default_home
from workflows.triage import TriageWorkflow

DEFAULT_APP = "classifier.default_app:app"
DEFAULT_TASK_QUEUE = "classifier"
DEFAULT_CONCURRENCY = 24
"""Fills the local model's batches; what waits in a worker heartbeats, what waits in Temporal is free."""
GRACE = timedelta(seconds=20)
"""How long calls in flight may finish after SIGTERM; a container's own grace must be longer."""

WORKFLOW_MODULES = (
    "activities.messages",
    "classifier.decision_json",
    "workflows.messages",
    "workflows.options",
    "workflows.triage",
)
"""Loaded once for all runs; importing them anew would cost each run 9 ms. A test runs them without this."""


class TemporalUnavailable(ClassifierError):
    """Temporal does not answer any more."""

    code = "TEMPORAL_UNAVAILABLE"


@dataclass(frozen=True, kw_only=True)
class Settings:
    """What the environment says.

    Attributes:
        home: The state folder.
        app: The app as `module:name`.
        task_queue: What the worker polls.
        concurrency: Activities the worker runs at a time; what is over waits in Temporal.
        temporal: How to reach a given Temporal; empty starts the embedded one.
        database_url: A given PostgreSQL; None starts the embedded one.
        hash_key: Keys the hashes of states and persons; None takes the state folder's own.
        environ: For models and destinations, which take keys from it.
    """

    home: Path
    app: str = DEFAULT_APP
    task_queue: str = DEFAULT_TASK_QUEUE
    concurrency: int = DEFAULT_CONCURRENCY
    temporal: ClientConnectConfig = field(default_factory=ClientConnectConfig, repr=False)
    database_url: str | None = field(default=None, repr=False)
    hash_key: bytes | None = field(default=None, repr=False)
    environ: Mapping[str, str] = field(default_factory=dict[str, str], repr=False)

    @classmethod
    def from_environ(cls, environ: Mapping[str, str], **given: Any) -> Settings:
        """Reads `CLASSIFIER_*`, `TEMPORAL_*` (and its profiles) and `DATABASE_URL`; `given` wins.

        Raises:
            ConfigurationError: A Temporal profile or a number cannot be read.
        """
        key = environ.get("CLASSIFIER_HASH_KEY")
        settings = cls(
            home=default_home(environ),
            app=environ.get("CLASSIFIER_APP") or DEFAULT_APP,
            task_queue=environ.get("CLASSIFIER_TASK_QUEUE") or DEFAULT_TASK_QUEUE,
            concurrency=_concurrency(environ.get("CLASSIFIER_CONCURRENCY")),
            temporal=_temporal(environ),
            database_url=environ.get("DATABASE_URL") or None,
            hash_key=key.encode() if key else None,
            environ=environ,
        )
        return replace(settings, **{name: value for name, value in given.items() if value is not None})

    @property
    def embeds_temporal(self) -> bool:
        """Whether Temporal is ours to start."""
        return "target_host" not in self.temporal

    @property
    def embeds_database(self) -> bool:
        """Whether PostgreSQL is ours to start."""
        return self.database_url is None


@dataclass(frozen=True)
class Service:
    """Everything a command needs, connected.

    Attributes:
        settings: What it was opened with.
        addresses: Where the embedded parts answer.
        attached: Whether another process runs the embedded stack, and with it a worker.
        database_url: The history's database.
        store: Writes the history.
        temporal: A client; None where only the history was asked for.
        stack: The embedded stack, where this process runs it.
    """

    settings: Settings
    addresses: Addresses
    attached: bool
    database_url: str = field(repr=False)
    store: AuditStore
    temporal: Client | None
    stack: Stack | None

    async def watch(self) -> None:
        """Waits until a part of the embedded stack dies; without one, for ever.

        Raises:
            EmbeddedError: The sentence that names the part.
        """
        if self.stack is None:
            await asyncio.get_running_loop().create_future()
        else:
            await self.stack.watch()

    @property
    def client(self) -> Client:
        """Temporal.

        Raises:
            ConfigurationError: The service was opened for the history alone.
        """
        if self.temporal is None:
            raise ConfigurationError("this command was opened without Temporal")
        return self.temporal


@contextlib.asynccontextmanager
async def opened(
    settings: Settings, *, temporal: bool = True, alone: bool = False
) -> AsyncGenerator[Service]:
    """Starts or attaches to the embedded stack, connects, and closes everything in reverse.

    Args:
        settings: What the environment says.
        temporal: Whether Temporal is needed; the history alone does without.
        alone: Whether a stack that another process runs on the same folder is an error.

    Raises:
        EmbeddedError: The stack does not start; one sentence says why.
        ConfigurationError: A given server does not answer, or a setting is missing.
        TemporalUnavailable: Temporal stopped answering while it was used.
    """
    async with contextlib.AsyncExitStack() as exits:
        addresses = None if alone else running(settings.home)
        attached = addresses is not None
        stack: Stack | None = None
        if addresses is None:
            stack = Stack(
                settings.home,
                temporal=temporal and settings.embeds_temporal,
                database=settings.embeds_database,
            )
            await exits.enter_async_context(stack)
            addresses = stack.addresses
        database_url = settings.database_url or addresses.database_url
        if database_url is None:
            raise ConfigurationError(
                f"the stack in {settings.home} runs without a database; set DATABASE_URL"
            )
        if settings.embeds_database and not attached:
            await upgrade(database_url)
        store = PostgresStore(database_url, hash_key=hash_key(settings))
        exits.push_async_callback(store.aclose)
        client = await connect(settings, addresses) if temporal else None
        try:
            yield Service(settings, addresses, attached, database_url, store, client, stack)
        except RPCError as error:
            raise TemporalUnavailable(f"Temporal does not answer ({error.status.name})") from error


async def connect(settings: Settings, addresses: Addresses) -> Client:
    """A client of the given or the embedded Temporal.

    Raises:
        ConfigurationError: It does not answer.
    """
    config = settings.temporal
    if settings.embeds_temporal:
        if addresses.temporal_address is None:
            raise ConfigurationError(
                f"the stack in {settings.home} runs without Temporal; set TEMPORAL_ADDRESS"
            )
        config = ClientConnectConfig(target_host=addresses.temporal_address)
    try:
        return await Client.connect(**config, runtime=_runtime())
    except RuntimeError as error:
        raise ConfigurationError(f"Temporal does not answer at {config.get('target_host')}") from error


@contextlib.asynccontextmanager
async def working(service: Service, app: App) -> AsyncGenerator[ResolvedApp]:
    """Runs a worker for the app until the block ends; calls in flight finish first.

    Raises:
        ConfigurationError: Lists everything that keeps the app from starting.
    """
    settings = service.settings
    resolved = app.resolve(settings.environ, tracer=installed(attempt=_attempt))
    async with httpx.AsyncClient(follow_redirects=False) as client:
        delivery = DeliveryActivities(
            resolved, service.store, home=settings.home, client=client, environ=settings.environ
        )
        worker = Worker(
            service.client,
            task_queue=settings.task_queue,
            workflows=[TriageWorkflow],
            activities=[delivery.deliver, delivery.record_review],
            plugins=[ClassifierPlugin(resolved, service.store)],
            workflow_runner=with_passthrough(WORKFLOW_MODULES)(None),
            graceful_shutdown_timeout=GRACE,
            max_concurrent_activities=settings.concurrency,
            workflow_task_poller_behavior=PollerBehaviorAutoscaling(),
            activity_task_poller_behavior=PollerBehaviorAutoscaling(),
        )
        async with worker:
            yield resolved


@functools.cache
def _runtime() -> Runtime:
    """The SDK's core keeps to errors; what it warns of is mostly a completion that came too late."""
    levels = TelemetryFilter(core_level="ERROR", other_level="ERROR")
    return Runtime(telemetry=TelemetryConfig(logging=LoggingConfig(filter=levels)))


def _attempt() -> int | None:
    """The attempt that a span belongs to."""
    return activity.info().attempt if activity.in_activity() else None


def app_of(settings: Settings) -> App:
    """The app that is configured; see `load_app` for errors."""
    return load_app(settings.app)


def hash_key(settings: Settings) -> bytes:
    """The key for hashes: given, or made once and kept in the state folder of an embedded database.

    Raises:
        ConfigurationError: A given database needs a given key, or hashes of two hosts would not compare.
    """
    if settings.hash_key is not None:
        return settings.hash_key
    if not settings.embeds_database:
        raise ConfigurationError(
            "CLASSIFIER_HASH_KEY is not set; a given DATABASE_URL needs it, any long secret will do"
        )
    path = settings.home / "hash.key"
    if not path.exists():
        made = path.with_name("hash.key.partial")
        made.touch(mode=0o600)
        made.write_text(secrets.token_hex(32), encoding="ascii")
        made.replace(path)
    return path.read_bytes()


def _temporal(environ: Mapping[str, str]) -> ClientConnectConfig:
    try:
        return ClientConfig.load_client_connect_config(override_env_vars=dict(environ))
    except RuntimeError as error:
        raise ConfigurationError(f"the Temporal profile cannot be read: {error}") from error


def _concurrency(given: str | None) -> int:
    if not given:
        return DEFAULT_CONCURRENCY
    if not given.isdecimal() or int(given) < 1:
        raise ConfigurationError(
            f"CLASSIFIER_CONCURRENCY is {given!r}; it must be a whole number of at least 1"
        )
    return int(given)
