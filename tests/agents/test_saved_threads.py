"""Saved threads of every version replay on this one; a change that is not patched does not."""

from __future__ import annotations

import json
import socket
from pathlib import Path

import pytest
from temporalio.client import WorkflowHistory
from temporalio.worker import Replayer, WorkflowReplayResult
from temporalio.workflow import NondeterminismError

from classifier.temporal.plugin import PURE_MODULES, RecordsBeforeClose, with_passthrough
from tests.agents.changed import ChangedAgentWorkflow
from tests.agents.save_histories import THREADS
from worker import WORKFLOW_MODULES
from workflows.agent import AgentWorkflow

SAVED = sorted(THREADS.glob("*/*.json"))


async def replay(path: Path, workflow: type) -> WorkflowReplayResult:
    replayer = Replayer(
        workflows=[workflow],
        interceptors=[RecordsBeforeClose()],
        workflow_runner=with_passthrough((*PURE_MODULES, *WORKFLOW_MODULES))(None),
    )
    history = WorkflowHistory.from_json(path.stem, json.loads(path.read_text(encoding="utf-8")))
    return await replayer.replay_workflow(history, raise_on_replay_failure=False)


def test_a_thread_is_saved_for_every_version() -> None:
    assert {path.parent.name for path in SAVED} >= {"0.1"}


@pytest.mark.parametrize("path", SAVED, ids=lambda path: f"{path.parent.name}-{path.stem}")
async def test_a_saved_thread_replays(path: Path) -> None:
    assert (await replay(path, AgentWorkflow)).replay_failure is None


@pytest.mark.parametrize("path", SAVED, ids=lambda path: f"{path.parent.name}-{path.stem}")
async def test_a_change_without_a_patch_does_not_replay(path: Path) -> None:
    assert isinstance((await replay(path, ChangedAgentWorkflow)).replay_failure, NondeterminismError)


@pytest.mark.parametrize("path", SAVED, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_a_saved_thread_says_nothing_of_the_machine_it_was_made_on(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert "stackTrace" not in text
    assert socket.gethostname() not in text
