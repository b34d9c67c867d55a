"""Saved histories of every version replay on this one, and a change that is not patched does not pass."""

from __future__ import annotations

import json
import socket
from pathlib import Path

import pytest
from temporalio.client import WorkflowHistory
from temporalio.worker import Replayer, WorkflowReplayResult
from temporalio.workflow import NondeterminismError

from classifier.audit.memory import MemoryStore
from classifier.temporal.plugin import ClassifierPlugin, with_passthrough
from tests.workflows.changed import ChangedTriageWorkflow
from tests.workflows.save_histories import HISTORIES
from tests.workflows.scenarios import SCENARIOS
from tests.workflows.tickets import ENVIRON, always, app, says
from worker import WORKFLOW_MODULES
from workflows.triage import TriageWorkflow

SAVED = sorted(HISTORIES.glob("*/*.json"))


async def replay(path: Path, workflow: type, gate: float = 0.8) -> WorkflowReplayResult:
    plugin = ClassifierPlugin(app(always(says("billing")), gate=gate).resolve(ENVIRON), MemoryStore())
    replayer = Replayer(
        workflows=[workflow],
        plugins=[plugin],
        workflow_runner=with_passthrough(WORKFLOW_MODULES)(None),
    )
    history = WorkflowHistory.from_json(path.stem, json.loads(path.read_text()))
    return await replayer.replay_workflow(history, raise_on_replay_failure=False)


def test_every_scenario_is_saved_for_every_version() -> None:
    assert {path.parent.name for path in SAVED} >= {"0.1"}
    for version in {path.parent.name for path in SAVED}:
        saved = {path.stem for path in SAVED if path.parent.name == version}
        assert saved >= {scenario.__name__ for scenario in SCENARIOS}


def test_what_runs_did_before_there_were_dead_letters_is_saved_too() -> None:
    saved = {path.stem for path in SAVED if path.parent.name == "0.1"}
    assert saved >= {"policy_error", "refused_delivery", "waiting_for_a_delivery"}


@pytest.mark.parametrize("path", SAVED, ids=lambda path: f"{path.parent.name}-{path.stem}")
async def test_a_saved_history_replays_whatever_the_threshold_is_now(path: Path) -> None:
    for gate in (0.8, 0.01, 0.99):
        assert (await replay(path, TriageWorkflow, gate)).replay_failure is None


@pytest.mark.parametrize("path", SAVED, ids=lambda path: f"{path.parent.name}-{path.stem}")
async def test_a_change_without_a_patch_does_not_replay(path: Path) -> None:
    failure = (await replay(path, ChangedTriageWorkflow)).replay_failure
    assert isinstance(failure, NondeterminismError)


@pytest.mark.parametrize("path", SAVED, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_a_saved_history_says_nothing_of_the_machine_it_was_made_on(path: Path) -> None:
    text = path.read_text()
    assert "stackTrace" not in text
    assert socket.gethostname() not in text
