"""The composition root: environment → app, models, store → plugin → worker. One of the two doors.

Only here and in `cli.py` is the environment read.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
from collections.abc import AsyncGenerator, Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import httpx
from temporalio import activity
from temporalio.client import Client
from temporalio.common import WorkerDeploymentVersion
from temporalio.converter import DataConverter
from temporalio.envconfig import ClientConfig, ClientConnectConfig
from temporalio.service import RPCError
from temporalio.worker import Worker

from activities.chat import ChatActivities
from activities.chat_tools import tool_activities
from activities.dead_letters import DeadLetterActivities
from activities.deliver import DeliveryActivities
from activities.reviews import ReviewActivities
from activities.subjects import SubjectActivities
from classifier.app import App, ResolvedApp, load_app
from classifier.audit.postgres import PostgresStore
from classifier.audit.store import AuditStore
from classifier.audit.upkeep import Upkeep
from classifier.errors import ClassifierError, ConfigurationError
from classifier.models.trust import trusted
from classifier.temporal.codec import CodecKeys, Plaintext, encrypted, plaintext_from
from classifier.temporal.deployment import promoting, version_from, versioned
from classifier.temporal.leaving import Leaving
from classifier.temporal.plugin import ClassifierPlugin, with_passthrough
from classifier.temporal.telemetry import Metrics, runtime
from classifier.tracing import installed
from embedded.stack import Addresses, Stack, running
from embedded.state import default_home
from workflows.agent import AgentWorkflow
from workflows.subjects import SubjectWorkflow
from workflows.triage import TriageWorkflow

DEFAULT_APP = "classifier.default_app:app"
DEFAULT_TASK_QUEUE = "classifier"
DEFAULT_CONCURRENCY = 24
"""Fills the local model's batches; what waits in a worker heartbeats, what waits in Temporal is free."""
GRACE = timedelta(seconds=20)
"""How long calls in flight may finish after SIGTERM; a container's own grace must be longer."""

WORKFLOWS = [TriageWorkflow, SubjectWorkflow, AgentWorkflow]
WORKFLOW_MODULES = (
    "activities.chat_messages",
    "activities.chores",
    "activities.dead_letter_messages",
    "activities.messages",
    "activities.review_messages",
    "activities.subject_messages",
    "classifier.decision_json",
    "workflows.agent",
    "workflows.agent_memory",
    "workflows.agent_messages",
    "workflows.agent_seams",
    "workflows.agent_stream",
    "workflows.agent_tools",
    "workflows.agent_turn",
    "workflows.dead_letters",
    "workflows.messages",
    "workflows.options",
    "workflows.reviewing",
    "workflows.subject_messages",
    "workflows.subjects",
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
        seal_key: Signs the seals, 32 bytes in base64; None takes the state folder's own.
        seal_public_keys: Whose seals count besides its own, such as those of its predecessors.
        upkeep: How long what is kept, and how much of it.
        codec_keys: Encrypt what Temporal stores; None leaves it readable.
        codec_plaintext: What becomes of payloads that are not encrypted, while there are keys.
        metrics: Where a worker's metrics go.
        version: Which version of which deployment a worker is; None for a worker without versions.
        promote: Whether its version becomes the current one: None if it never was before, True also again.
        rate: Activities a second that Temporal hands out of the task queue, to all its workers together.
        activities_only: Leaves workflows to other workers, for a queue that exists for its rate.
        environ: For models and destinations, which take keys from it.
    """

    home: Path
    app: str = DEFAULT_APP
    task_queue: str = DEFAULT_TASK_QUEUE
    concurrency: int = DEFAULT_CONCURRENCY
    temporal: ClientConnectConfig = field(default_factory=ClientConnectConfig, repr=False)
    database_url: str | None = field(default=None, repr=False)
    hash_key: bytes | None = field(default=None, repr=False)
    seal_key: str | None = field(default=None, repr=False)
    seal_public_keys: tuple[str, ...] = ()
    upkeep: Upkeep = field(default_factory=Upkeep)
    codec_keys: CodecKeys | None = None
    codec_plaintext: Plaintext = "refuse"
    metrics: Metrics | None = None
    version: WorkerDeploymentVersion | None = None
    promote: bool | None = None
    rate: float | None = None
    activities_only: bool = False
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
            seal_key=environ.get("CLASSIFIER_SEAL_KEY") or None,
            seal_public_keys=tuple(environ.get("CLASSIFIER_SEAL_PUBLIC_KEYS", "").split()),
            upkeep=Upkeep.from_environ(environ),
            codec_keys=CodecKeys.from_environ(environ),
            codec_plaintext=plaintext_from(environ),
            metrics=Metrics.from_environ(environ),
            version=version_from(environ),
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
    settings: Settings, *, temporal: bool = True, alone: bool = False, measured: bool = False
) -> AsyncGenerator[Service]:
    """Starts or attaches to the embedded stack, connects, and closes everything in reverse.

    Args:
        settings: What the environment says.
        temporal: Whether Temporal is needed; the history alone does without.
        alone: Whether a stack that another process runs on the same folder is an error.
        measured: Whether metrics are exported; commands beside a worker would take its port.

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
            from classifier.audit.schema import upgrade  # noqa: PLC0415 - Alembic, which other starts do without

            await upgrade(database_url)
        store = PostgresStore(database_url, hash_key=hash_key(settings), contents=settings.upkeep.contents())
        exits.push_async_callback(store.aclose)
        client = await connect(settings, addresses, measured=measured) if temporal else None
        try:
            yield Service(settings, addresses, attached, database_url, store, client, stack)
        except RPCError as error:
            raise TemporalUnavailable(f"Temporal does not answer ({error.status.name})") from error


async def connect(settings: Settings, addresses: Addresses, *, measured: bool = False) -> Client:
    """A client of the given or the embedded Temporal, and of whatever worker is made from it.

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
    with_metrics = runtime(settings.metrics if measured else None)
    try:
        return await Client.connect(**config, data_converter=converter(settings), runtime=with_metrics)
    except RuntimeError as error:
        raise ConfigurationError(f"Temporal does not answer at {config.get('target_host')}") from error


def converter(settings: Settings) -> DataConverter:
    """How values become payloads; clients, workers and replayers take the same one."""
    if settings.codec_keys is None:
        return DataConverter.default
    return encrypted(keys=settings.codec_keys, plaintext=settings.codec_plaintext)


@contextlib.asynccontextmanager
async def working(
    service: Service, app: App, *, leaving: Leaving | None = None
) -> AsyncGenerator[ResolvedApp]:
    """Runs a worker for the app until the block ends; calls in flight finish first, or `leaving` cuts them.

    Raises:
        ConfigurationError: Lists everything that keeps the app from starting.
    """
    settings = service.settings
    resolved = app.resolve(settings.environ, tracer=installed(attempt=_attempt))
    async with httpx.AsyncClient(follow_redirects=False, verify=trusted()) as client:
        delivery = DeliveryActivities(
            resolved, service.store, home=settings.home, client=client, environ=settings.environ
        )
        reviews = ReviewActivities(service.store)
        dead_letters = DeadLetterActivities(service.store)
        subjects = SubjectActivities(service.store)
        chat = ChatActivities(resolved, service.store, environ=settings.environ)
        worker = Worker(
            service.client,
            task_queue=settings.task_queue,
            workflows=[] if settings.activities_only else WORKFLOWS,
            activities=[
                delivery.deliver,
                delivery.request_review,
                delivery.record_review,
                dead_letters.keep,
                dead_letters.answer,
                reviews.note,
                subjects.apply,
                subjects.note,
                chat.describe,
                chat.chat,
                chat.note,
                *tool_activities(resolved),
            ],
            plugins=[ClassifierPlugin(resolved, service.store)],
            workflow_runner=with_passthrough(WORKFLOW_MODULES)(None),
            graceful_shutdown_timeout=GRACE,
            max_concurrent_activities=settings.concurrency,
            max_task_queue_activities_per_second=settings.rate,
            deployment_config=None if settings.version is None else versioned(settings.version),
            interceptors=[] if leaving is None else [leaving],
        )
        async with (
            contextlib.aclosing(chat),
            worker,
            promoting(service.client, settings.version, again=settings.promote),
        ):
            yield resolved


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
    return secret_in(settings.home / "hash.key", lambda: secrets.token_hex(32)).encode()


def secret_in(path: Path, make: Callable[[], str]) -> str:
    """The secret in a file that only its owner may read; made if it is not there."""
    if not path.exists():
        made = path.with_name(f"{path.name}.partial")
        made.touch(mode=0o600)
        made.write_text(make(), encoding="ascii")
        made.replace(path)
    return path.read_text(encoding="ascii")


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
