"""What people labelled, read back: which label counts, and whose decisions it is about."""

from __future__ import annotations

import uuid
from collections.abc import AsyncGenerator
from datetime import timedelta
from typing import Any

import pytest

from classifier.answers import BooleanAnswer, ChoiceAnswer
from classifier.audit.labelled import LabelledDecisions
from classifier.audit.postgres import PostgresStore
from classifier.audit.query import DecisionQuery
from classifier.audit.records import EventKind, HistoryEvent
from classifier.decision import Branch, Decision
from tests.classifier.audit.examples import NOW, decision

ACME = DecisionQuery(tenant="acme")


def asked(name: str, **changes: Any) -> Decision:
    return decision(name, branch=Branch("review", "billing"), **changes)


def said(
    about: Decision, minute: int, kind: EventKind = "label", by: str = "Ada", **body: Any
) -> HistoryEvent:
    return HistoryEvent(
        event_id=uuid.uuid4(),
        at=NOW + timedelta(minutes=minute),
        tenant=about.tenant,
        kind=kind,
        workflow_id=about.coordinates.workflow_id,
        run_id="run",
        decision_id=about.decision_id,
        actor=by,
        body=body,
    )


def labelled(about: Decision, minute: int, question: str, answer: Any, by: str = "Ada") -> HistoryEvent:
    return said(about, minute, by=by, question=question, answer=answer, reason="because")


def reviewed(about: Decision, minute: int, route: str, suggested: str | None = "billing") -> HistoryEvent:
    return said(about, minute, "review", by="Bob", route=route, suggested=suggested)


@pytest.fixture
async def labels(database_url: str) -> AsyncGenerator[LabelledDecisions]:
    async with LabelledDecisions(database_url) as labels:
        yield labels


async def found(labels: LabelledDecisions, query: DecisionQuery = ACME) -> list[tuple[Any, ...]]:
    return [
        (one.decision.coordinates.workflow_id, one.answer.question, one.answer.label, one.by, one.origin)
        async for one in labels.of(query)
    ]


async def test_the_last_label_of_each_question_counts_in_the_order_of_labels(
    labels: LabelledDecisions, postgres_store: PostgresStore
) -> None:
    one, other = decision("one"), decision("other")
    await postgres_store.record([one, other])
    await postgres_store.record_events(
        [
            labelled(one, 1, "topic", "other"),
            labelled(one, 2, "unsafe", True),
            labelled(other, 3, "topic", "b\0", by="Z\0"),
            labelled(one, 4, "topic", "billing"),
        ]
    )
    assert await found(labels) == [
        ("one", "unsafe", True, "Ada", "label"),
        ("other", "topic", "b\0", "Z\0", "label"),
        ("one", "topic", "billing", "Ada", "label"),
    ]


async def test_a_route_labels_once_and_what_somebody_labels_counts_more(
    labels: LabelledDecisions, postgres_store: PostgresStore
) -> None:
    routed, refused, corrected = asked("routed"), asked("refused"), asked("corrected")
    await postgres_store.record([routed, refused, corrected])
    await postgres_store.record_events(
        [
            reviewed(routed, 1, "other"),
            reviewed(refused, 2, "other"),
            reviewed(refused, 3, "billing", "other"),
            labelled(corrected, 4, "topic", "billing"),
            reviewed(corrected, 5, "other"),
        ]
    )
    assert await found(labels) == [
        ("routed", "topic", "other", "Bob", "review"),
        ("refused", "topic", "other", "Bob", "review"),
        ("corrected", "topic", "billing", "Ada", "label"),
    ]


async def test_filters_say_which_decisions_and_other_events_label_nothing(
    labels: LabelledDecisions, postgres_store: PostgresStore
) -> None:
    many = [asked(f"w{number}", classifier_id="many") for number in range(250)]
    other = asked("other", answers={"topic": ChoiceAnswer("billing"), "unsafe": BooleanAnswer(0.5)})
    await postgres_store.record([*many, other])
    await postgres_store.record_events(
        [
            *(reviewed(one, number, "other") for number, one in enumerate(many)),
            labelled(other, 1, "unsafe", False),
            said(other, 2, "delivery", route="billing", destination="out"),
        ]
    )
    assert await found(labels, DecisionQuery(tenant="acme", classifier="many")) == [
        (f"w{number}", "topic", "other", "Bob", "review") for number in range(250)
    ]
    assert await found(labels, DecisionQuery(tenant="acme", classifier="tickets")) == [
        ("other", "unsafe", False, "Ada", "label")
    ]


async def test_sec_o05_no_label_crosses_tenants(
    labels: LabelledDecisions, postgres_store: PostgresStore
) -> None:
    theirs = decision("theirs", tenant="globex")
    await postgres_store.record([theirs])
    of_ours = HistoryEvent(
        event_id=uuid.uuid4(),
        at=NOW,
        tenant="acme",
        kind="label",
        workflow_id="",
        run_id="",
        decision_id=theirs.decision_id,
        body={"question": "topic", "answer": "other"},
    )
    await postgres_store.record_events([labelled(theirs, 1, "topic", "other"), of_ours])
    assert await found(labels) == []
