"""`evaluate` from another project's workflow: default sandbox, the plugin, and nothing else."""

from __future__ import annotations

from typing import Any, cast

import pytest
from temporalio.client import Client, WorkflowFailureError
from temporalio.converter import DataConverter, DefaultPayloadConverter
from temporalio.exceptions import ApplicationError
from temporalio.worker import Replayer, UnsandboxedWorkflowRunner, Worker, WorkflowRunner
from temporalio.worker.workflow_sandbox import SandboxedWorkflowRunner

from classifier.app import App
from classifier.audit.memory import MemoryStore
from classifier.classifier import Classifier
from classifier.errors import AuthenticationFailed
from classifier.models.scripted import ScriptedModel
from classifier.temporal.plugin import ClassifierPlugin
from tests.classifier.temporal.letters import activities, always, app, start
from tests.classifier.temporal.project.activities import file_away
from tests.classifier.temporal.project.worker import WORKFLOWS, worker
from tests.classifier.temporal.project.workflows import Letter, SortLetter


def runner_of(running: Worker) -> WorkflowRunner:
    config: Any = running._config
    return cast("WorkflowRunner", config["workflow_runner"])


class ProjectsOwnConverter(DefaultPayloadConverter):
    """What a project brings along."""


async def test_another_projects_workflow_gets_typed_answers_with_the_default_sandbox(
    client: Client, queue: str
) -> None:
    store = MemoryStore()
    async with worker(client, app(always()), store, queue) as running:
        handle = await start(client, queue, SortLetter.run, "it crashes")
        filed, decision_id = await handle.result()
        assert isinstance(runner_of(running), SandboxedWorkflowRunner)
    (decision,) = store.decisions.values()
    assert (filed, decision_id) == ("filed in bug", str(decision.decision_id))
    assert decision.coordinates.workflow_id == handle.id
    assert await activities(handle) == ["classifier.decide", "file_away"]


async def test_a_failed_step_is_an_application_error_with_our_code_that_nobody_retries(
    client: Client, queue: str
) -> None:
    model = ScriptedModel(lambda request: AuthenticationFailed("the key is wrong"))
    async with worker(client, app(model), MemoryStore(), queue):
        with pytest.raises(WorkflowFailureError) as failed:
            await (await start(client, queue, SortLetter.run, "it crashes")).result()
    cause = failed.value.cause
    assert isinstance(cause, ApplicationError)
    assert (cause.type, cause.non_retryable) == ("AUTHENTICATION_FAILED", True)
    assert len(model.requests) == 1


async def test_a_classifier_nobody_registered_is_named_and_asks_nobody(client: Client, queue: str) -> None:
    model = always()
    project = App(classifiers=[Classifier("other", model, Letter)])
    async with worker(client, project, MemoryStore(), queue):
        with pytest.raises(WorkflowFailureError) as failed:
            await (await start(client, queue, SortLetter.run, "it crashes")).result()
    cause = failed.value.cause
    assert isinstance(cause, ApplicationError)
    assert (cause.type, cause.non_retryable) == ("CONFIGURATION", True)
    assert "'letters'" in cause.message
    assert model.requests == []


async def test_the_plugin_keeps_a_converter_and_a_runner_of_the_users_own(
    temporal_address: str, queue: str
) -> None:
    converter = DataConverter(payload_converter_class=ProjectsOwnConverter)
    client = await Client.connect(temporal_address, data_converter=converter)
    runner = UnsandboxedWorkflowRunner()
    async with worker(client, app(always()), MemoryStore(), queue, workflow_runner=runner) as running:
        filed, _ = await (await start(client, queue, SortLetter.run, "it crashes")).result()
        assert runner_of(running) is runner
        assert client.data_converter is converter
    assert filed == "filed in bug"


async def test_the_plugin_may_be_given_to_the_client_instead(temporal_address: str, queue: str) -> None:
    plugin = ClassifierPlugin(app(always()).resolve({}), MemoryStore())
    converter = DataConverter(payload_converter_class=ProjectsOwnConverter)
    client = await Client.connect(temporal_address, plugins=[plugin], data_converter=converter)
    assert client.data_converter.payload_converter_class is ProjectsOwnConverter
    async with Worker(client, task_queue=queue, workflows=WORKFLOWS, activities=[file_away]):
        filed, _ = await (await start(client, queue, SortLetter.run, "it crashes")).result()
    assert filed == "filed in bug"


async def test_a_replayer_takes_the_plugin(client: Client, queue: str) -> None:
    async with worker(client, app(always()), MemoryStore(), queue):
        handle = await start(client, queue, SortLetter.run, "it crashes")
        await handle.result()
    replayer = Replayer(
        workflows=WORKFLOWS, plugins=[ClassifierPlugin(app(always()).resolve({}), MemoryStore())]
    )
    result = await replayer.replay_workflow(await handle.fetch_history())
    assert result.replay_failure is None
