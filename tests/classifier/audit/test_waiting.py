"""What waits for a person: by its decision, or by an event where something else asked for one."""

from __future__ import annotations

import itertools
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any

from classifier.audit.desks import Claim, Desk
from classifier.audit.history import History
from classifier.audit.postgres import PostgresStore
from classifier.audit.records import EventKind, HistoryEvent, event_id_of
from classifier.audit.waiting import OpenReview, ReviewQuery
from classifier.decision import Branch, Decision
from tests.classifier.audit.examples import NOW, decision

UNSURE, CLEAR = Branch("review", "cards", ("low_probability:topic",)), Branch("route", "cards")
BRANCHES: Sequence[Branch | None] = (UNSURE, CLEAR, None)
KINDS: Sequence[EventKind] = ("review_requested", "review", "review_defaulted", "delivery", "stop")


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
    """Every branch with every sequence of up to two events, as runs of their own."""
    for branch, length in itertools.product(BRANCHES, range(3)):
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


def at_work(about: Decision, kind: EventKind, number: int, by: str | None, **facts: str) -> HistoryEvent:
    """Something that happened to a review at one and the same time of the run's clock."""
    return HistoryEvent(
        event_id=uuid.uuid4(),
        at=about.decided_at + timedelta(minutes=1),
        tenant=about.tenant,
        kind=kind,
        workflow_id=about.coordinates.workflow_id,
        run_id="run",
        decision_id=about.decision_id,
        actor=by,
        body={**facts, "number": number},
    )


async def test_who_is_at_work_is_whoever_claimed_last_and_did_not_give_it_back(
    postgres_store: PostgresStore, history: History
) -> None:
    taken, returned, retaken = (decision(name, branch=UNSURE) for name in ("w1", "w2", "w3"))
    until = NOW + timedelta(minutes=15)
    await postgres_store.record([taken, returned, retaken])
    await postgres_store.record_events(
        [
            at_work(taken, "review_claimed", 1, "kim\0", until=until.isoformat()),
            at_work(returned, "review_released", 2, "kim"),
            at_work(returned, "review_claimed", 1, "kim", until=until.isoformat()),
            at_work(retaken, "review_claimed", 3, "robin", until=until.isoformat()),
            at_work(retaken, "review_released", 2, "kim"),
            at_work(retaken, "review_claimed", 1, "kim", until=until.isoformat()),
            at_work(retaken, "review_escalated", 4, "deadline", queue="leads␛"),
        ]
    )
    desks = {one.decision.decision_id: one.desk for one in await history.open_reviews("acme")}
    assert desks == {
        taken.decision_id: Desk(Claim("kim\0", until)),
        returned.decision_id: Desk(),
        retaken.decision_id: Desk(Claim("robin", until), "leads␛"),
    }
    assert desks[taken.decision_id].held(until - timedelta(seconds=1)) is not None
    assert desks[taken.decision_id].held(until) is None


async def test_a_claim_on_an_earlier_review_of_the_same_run_is_not_one_on_the_later(
    postgres_store: PostgresStore, history: History
) -> None:
    about = decision("w", branch=UNSURE)
    await postgres_store.record([about])
    claim = at_work(about, "review_claimed", 1, "kim", until=(NOW + timedelta(days=1)).isoformat())
    escalated = at_work(about, "review_escalated", 2, "deadline", queue="leads")
    asked_again = [happened(about, "review", 2), happened(about, "review_requested", 3)]
    await postgres_store.record_events([claim, escalated, *asked_again])
    (one,) = await history.open_reviews("acme")
    assert one.desk == Desk()
    assert await history.open_reviews("acme", wanted=ReviewQuery(queue="leads")) == ()


async def test_the_queue_is_asked_by_playbook_age_queue_and_id(
    postgres_store: PostgresStore, history: History
) -> None:
    old, new = decision("w1", branch=UNSURE), decision("w2", branch=CLEAR)
    await postgres_store.record([old, new])
    await postgres_store.record_events(
        [
            happened(new, "review_requested", 5),
            at_work(old, "review_escalated", 1, "deadline", queue="leads"),
            at_work(old, "review_escalated", 2, "deadline", queue="boss"),
        ]
    )

    async def asked(**wanted: Any) -> set[uuid.UUID]:
        found = await history.open_reviews("acme", wanted=ReviewQuery(**wanted))
        return {one.decision.decision_id for one in found}

    everything = {old.decision_id, new.decision_id}
    assert await asked(playbook=old.playbook_id) == everything
    assert await asked(playbook="another") == set()
    assert await asked(before=NOW + timedelta(minutes=5)) == {old.decision_id}
    assert await asked(before=NOW + timedelta(minutes=6)) == everything
    assert await asked(queue="boss") == {old.decision_id}
    assert await asked(queue="leads") == set()
    assert await asked(decision_id=new.decision_id) == {new.decision_id}
