"""The processors of both projects: `strict` aborts what is bad, `dropping` filters it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from temporalio.client import WorkflowFailureError
from temporalio.exceptions import ApplicationError

from classifier.app import App
from classifier.audit.memory import MemoryStore
from classifier.policy import PolicyContext
from tests.agents.support import guarding
from tests.classifier.conformance import SafetyQuestions, filter_unsafe

Row = tuple[str | None, str, str, str]


def raising(answers: SafetyQuestions, context: PolicyContext[SafetyQuestions]) -> None:
    raise RuntimeError("a policy with a fault")


def app() -> App:
    return App(
        processors=[
            guarding("strict", "bad"),
            guarding("dropping", "bad", policy=filter_unsafe),
            guarding("faulty", "bad", policy=raising),
        ]
    )


def rows(store: MemoryStore) -> list[Row]:
    """What was recorded, in order: who, where, on what, and the outcome."""
    return [(each.processor_id, each.phase, each.state, each.outcome) for each in _decisions(store)]


def ids(store: MemoryStore) -> list[str]:
    """The ids of what was recorded."""
    return [str(each.decision_id) for each in _decisions(store)]


def owners(store: MemoryStore) -> set[tuple[str, str | None]]:
    """Whose decisions these are: tenant and thread."""
    return {(each.coordinates.tenant, each.ids.thread) for each in _decisions(store)}


def failure_of(error: WorkflowFailureError) -> ApplicationError:
    """What a run failed with."""
    assert isinstance(error.cause, ApplicationError)
    return error.cause


def _decisions(store: MemoryStore) -> list[Any]:
    decisions: Mapping[Any, Any] = store.decisions
    return list(decisions.values())
