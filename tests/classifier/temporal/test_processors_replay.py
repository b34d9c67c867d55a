"""Saved histories of guarded runs replay, whatever policy says now; a change that is not patched does not."""

from __future__ import annotations

import json
import socket
from pathlib import Path

import pytest
from temporalio.client import WorkflowHistory
from temporalio.worker import Replayer, WorkflowReplayResult
from temporalio.workflow import NondeterminismError

from classifier.audit.memory import MemoryStore
from classifier.policy import PolicyContext
from classifier.temporal.plugin import ClassifierPlugin
from tests.classifier.temporal.chats import both, scripted
from tests.classifier.temporal.project.changed import ChangedGuardMessages
from tests.classifier.temporal.project.workflows import GuardMessages, Letter
from tests.classifier.temporal.save_histories import HISTORIES, SCENARIOS

SAVED = sorted(HISTORIES.glob("*/*.json"))


def abort_all(answers: Letter, context: PolicyContext[Letter]) -> None:
    context.abort("all")


def allow_all(answers: Letter, context: PolicyContext[Letter]) -> None:
    """Says nothing."""


async def replay(path: Path, workflow: type, **options: object) -> WorkflowReplayResult:
    plugin = ClassifierPlugin(both(scripted(), **options).resolve({}), MemoryStore())
    history = WorkflowHistory.from_json(path.stem, json.loads(path.read_text(encoding="utf-8")))
    replayer = Replayer(workflows=[workflow], plugins=[plugin])
    return await replayer.replay_workflow(history, raise_on_replay_failure=False)


def test_every_scenario_is_saved_for_every_version() -> None:
    assert {path.parent.name for path in SAVED} >= {"0.1"}
    for version in {path.parent.name for path in SAVED}:
        saved = {path.stem for path in SAVED if path.parent.name == version}
        assert saved >= {scenario.__name__ for scenario in SCENARIOS}


@pytest.mark.parametrize("path", SAVED, ids=lambda path: f"{path.parent.name}-{path.stem}")
async def test_a_saved_history_replays_whatever_policy_says_now(path: Path) -> None:
    for policy in (abort_all, allow_all):
        assert (await replay(path, GuardMessages, on_result=policy)).replay_failure is None


@pytest.mark.parametrize("path", SAVED, ids=lambda path: f"{path.parent.name}-{path.stem}")
async def test_a_change_without_a_patch_does_not_replay(path: Path) -> None:
    assert isinstance((await replay(path, ChangedGuardMessages)).replay_failure, NondeterminismError)


@pytest.mark.parametrize("path", SAVED, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_a_saved_history_says_nothing_of_the_machine_it_was_made_on(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert "stackTrace" not in text
    assert socket.gethostname() not in text
