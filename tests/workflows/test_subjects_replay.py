"""Saved histories of subjects' workflows replay on this version, and a change without a patch does not."""

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
from tests.workflows.changed import ChangedSubjectWorkflow
from tests.workflows.subject_histories import SUBJECTS
from tests.workflows.tickets import ENVIRON, always, app, says
from worker import WORKFLOW_MODULES
from workflows.subjects import SubjectWorkflow

SAVED = sorted(SUBJECTS.glob("*/*.json"))


async def replay(path: Path, workflow: type) -> WorkflowReplayResult:
    replayer = Replayer(
        workflows=[workflow],
        plugins=[ClassifierPlugin(app(always(says("billing"))).resolve(ENVIRON), MemoryStore())],
        workflow_runner=with_passthrough(WORKFLOW_MODULES)(None),
    )
    history = WorkflowHistory.from_json(path.stem, json.loads(path.read_text()))
    return await replayer.replay_workflow(history, raise_on_replay_failure=False)


def test_every_version_has_one_and_it_tells_of_everything_that_happens_to_a_subject() -> None:
    assert {path.parent.name for path in SAVED} >= {"0.1"}
    for path in SAVED:
        text = path.read_text()
        for what in ("classifier.triage", "subject.apply", "subject.note", "offer"):
            assert f'"{what}"' in text
        assert "stackTrace" not in text
        assert socket.gethostname() not in text


@pytest.mark.parametrize("path", SAVED, ids=lambda path: path.parent.name)
async def test_a_saved_subject_replays(path: Path) -> None:
    assert (await replay(path, SubjectWorkflow)).replay_failure is None


@pytest.mark.parametrize("path", SAVED, ids=lambda path: path.parent.name)
async def test_a_change_without_a_patch_does_not_replay(path: Path) -> None:
    assert isinstance((await replay(path, ChangedSubjectWorkflow)).replay_failure, NondeterminismError)
