"""What waits for a person: by its decision, or by an event where something else asked for one."""

from __future__ import annotations

import itertools
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import timedelta

from classifier.audit.history import History
from classifier.audit.postgres import PostgresStore
from classifier.audit.records import EventKind, HistoryEvent, event_id_of
from classifier.audit.waiting import OpenReview
from classifier.decision import Branch, Decision
from tests.classifier.audit.examples import NOW, decision

UNSURE, CLEAR = Branch("review", "cards", ("low_probability:topic",)), Branch("route", "cards")
BRANCHES: Sequence[Branch | None] = (UNSURE, CLEAR, None)
KINDS: Sequence[EventKind] = ("review_requested", "review", "delivery")


def happened(about: Decision, kind: EventKind, minutes: int) -> HistoryEvent:
    """Something that happened so many minutes after the decision."""
    body = {"route": "cards␛", "reasons": [f"delivery_failed {minutes}\0"]}
    return HistoryEvent(
        event_id=event_id_of(about.tenant, kind, about.coordinates.workflow_id, str(minutes)),
        at=about.decided_at + timedelta(minutes=minutes),
        tenant=about.tenant,
        kind=kind,
        workflow_id=about.coordinates.workflow_id,
        run_id="run",
        decision_id=about.decision_id,
        body=body if kind == "review_requested" else {"route": "fraud"},
    )


def stories() -> Iterator[tuple[str, Branch | None, tuple[EventKind, ...]]]:
    """Every branch with every sequence of up to three events, as runs of their own."""
    for branch, length in itertools.product(BRANCHES, range(4)):
        for kinds in itertools.product(KINDS, repeat=length):
            yield f"{branch and branch.action} {' '.join(kinds)}", branch, kinds


async def test_whoever_was_asked_for_last_and_has_not_answered_waits_and_is_listed_once(
    postgres_store: PostgresStore, history: History
) -> None:
    told = {name: (decision(name, branch=branch), kinds) for name, branch, kinds in stories()}
    await postgres_store.record([about for about, _ in told.values()])
    await postgres_store.record_events(
        [happened(about, kind, n) for about, kinds in told.values() for n, kind in enumerate(kinds, 1)]
    )
    found = await history.settled("acme", told)
    listed = {
        one.decision.coordinates.workflow_id: one for one in await history.open_reviews("acme", len(told))
    }
    for name, (about, kinds) in told.items():
        asked = about.branch == UNSURE if not kinds else kinds[-1] == "review_requested"
        assert (name in found and found[name].waiting) == (name in listed) == asked, name
        if asked:
            one = listed[name]
            assert one.decision == about
            assert (one.since, one.route, one.reasons) == expected(about, kinds)
            assert found[name].reasons == one.reasons
        if kinds:
            assert found[name].delivered == ("delivery" in kinds), name
            assert found[name].reviewed == ("review" in kinds), name


def expected(about: Decision, kinds: Sequence[EventKind]) -> tuple[object, ...]:
    if not kinds:
        return about.decided_at, "cards", ("low_probability:topic",)
    number = len(kinds)
    return about.decided_at + timedelta(minutes=number), "cards␛", (f"delivery_failed {number}\0",)


async def test_a_review_of_an_earlier_decision_does_not_answer_a_later_one(
    postgres_store: PostgresStore, history: History
) -> None:
    earlier = decision("w", branch=UNSURE)
    later = decision("w", ordinal=1, branch=UNSURE, decided_at=NOW + timedelta(minutes=5))
    await postgres_store.record([earlier, later])
    await postgres_store.record_events([happened(earlier, "review", 1)])
    assert (await history.settled("acme", ["w"]))["w"].waiting
    assert [one.decision for one in await history.open_reviews("acme")] == [later]


async def test_pages_of_both_kinds_are_walked_oldest_first_each_once(
    postgres_store: PostgresStore, history: History
) -> None:
    """Of one moment, too; what its decision asked for and what an event asked for take turns."""
    asked = [
        decision(f"w{n}", branch=UNSURE if n % 2 else CLEAR, decided_at=NOW - timedelta(minutes=n // 4))
        for n in range(20)
    ]
    refused = [one for one in asked if one.branch == CLEAR]
    await postgres_store.record(asked)
    await postgres_store.record_events([happened(one, "review_requested", 0) for one in refused])
    seen: list[OpenReview] = []
    while page := await history.open_reviews("acme", 3, seen[-1].position if seen else None):
        seen += page
    assert [one.position for one in seen] == sorted(
        (one.position for one in seen), key=lambda place: (place.decided_at, place.decision_id)
    )
    assert {one.decision.decision_id for one in seen} == {one.decision_id for one in asked}
    assert len(seen) == len(asked)


async def test_sec_o05_a_request_of_another_tenant_is_neither_seen_nor_an_answer(
    postgres_store: PostgresStore, history: History
) -> None:
    ours, theirs = decision("w", branch=UNSURE), decision("w", tenant="globex", branch=CLEAR)
    await postgres_store.record([ours, theirs])
    await postgres_store.record_events(
        [
            happened(theirs, "review_requested", 1),
            happened(replace(ours, coordinates=theirs.coordinates), "review", 2),
        ]
    )
    [one] = await history.open_reviews("acme")
    assert (one.decision, one.reasons) == (ours, ("low_probability:topic",))
    assert (await history.settled("acme", ["w"]))["w"].waiting


async def test_a_request_whose_decision_is_not_on_record_is_not_listed(
    postgres_store: PostgresStore, history: History
) -> None:
    lost = replace(decision("w", branch=CLEAR), decision_id=uuid.uuid4())
    await postgres_store.record_events([happened(lost, "review_requested", 1)])
    assert await history.open_reviews("acme") == ()
    assert (await history.settled("acme", ["w"]))["w"].waiting
