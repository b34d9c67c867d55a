"""What is kept of a decision's content: all of it, redacted, or none; and what it changes."""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from classifier.audit.contents import (
    KEEP_ALL,
    REDACTED_KEY,
    ContentPolicy,
    Redaction,
    Redactor,
)
from classifier.audit.history import History
from classifier.audit.pii import LONGEST, PiiRedactor
from classifier.audit.postgres import PostgresStore
from classifier.audit.query import DecisionQuery
from classifier.audit.rows import ERASED, rows_of
from classifier.decision import Decision, Ids
from classifier.errors import DecisionMismatch
from tests.classifier.audit.examples import KEY, decision, decisions
from tests.classifier.audit.test_erasure import TEXT, UNSTORABLE, about, reviewed
from tests.classifier.audit.whole import hits

CARD = "4111-1111-1111-1111"


def digits(text: str) -> Redaction:
    """Hides every digit."""
    hidden, count = re.subn(r"\d", "#", text)
    return Redaction(hidden, {"digit": count})


def without_digits(text: str) -> str:
    return re.sub(r"\d", "#", text)


def broken(text: str) -> str:
    raise ValueError(text)


def not_a_text(text: str) -> Any:
    return None


@pytest.fixture(scope="module")
def pii() -> PiiRedactor:
    return PiiRedactor()


@pytest.fixture
async def quiet_store(database_url: str) -> AsyncGenerator[PostgresStore]:
    """A store with content off."""
    store = PostgresStore(database_url, hash_key=KEY, contents=ContentPolicy(keep=False))
    yield store
    await store.aclose()


@given(decisions())
def test_a_policy_changes_no_fact_but_the_note_of_what_it_did(one: Decision) -> None:
    plain = rows_of(one, KEY)
    for policy in (ContentPolicy(keep=False), ContentPolicy(redact=digits), ContentPolicy(redact=broken)):
        rows = rows_of(one, KEY, policy)
        facts = {name: value for name, value in rows.decision.items() if name != "metadata"}
        assert facts == {name: value for name, value in plain.decision.items() if name != "metadata"}
        noted = {key: value for key, value in rows.decision["metadata"].items() if key != REDACTED_KEY}
        assert noted == plain.decision["metadata"]
        assert rows.answers == plain.answers
        assert rows.contents["resource_id"] == plain.contents["resource_id"]


@given(decisions())
def test_what_a_redactor_leaves_alone_is_stored_as_it_was(one: Decision) -> None:
    assert rows_of(one, KEY, ContentPolicy(redact=str)) == rows_of(one, KEY, KEEP_ALL)


@given(st.text(st.characters(categories=["Nd", "L"]), min_size=1))
def test_a_redactor_reaches_every_text_key_and_number(text: str) -> None:
    state: Any = {text: [text, {"n": 12.5, "deep": [[text]]}, 17, True, None]}
    policy = ContentPolicy(redact=digits)
    kept = policy.kept(decision(state=state, original=text, request_context={"x": text}))
    for value in (kept.state, kept.original, kept.request_context):
        assert not re.search(r"\d", str(value))
    assert isinstance(kept.state, dict)
    (items,) = kept.state.values()
    assert isinstance(items, list)
    assert items[3:] == [True, None]


def test_keys_that_redaction_makes_equal_stay_apart() -> None:
    kept = ContentPolicy(redact=digits).kept(decision(state={"1": "a", "2": "b", "3": "c"}))
    assert kept.state == {"#": "a", "# 2": "b", "# 3": "c"}
    assert kept.note == {REDACTED_KEY: {"digit": 3}}


def test_a_redactor_that_gives_only_a_text_has_its_changes_counted() -> None:
    kept = ContentPolicy(redact=without_digits).kept(decision(state=["a1", "b", "c2"]))
    assert (kept.state, kept.note) == (["a#", "b", "c#"], {REDACTED_KEY: {"redacted": 2}})


@pytest.mark.parametrize(("redactor", "error"), [(broken, "ValueError"), (not_a_text, "TypeError")])
def test_where_a_redactor_fails_nothing_is_kept_and_the_record_says_so(
    redactor: Redactor, error: str
) -> None:
    policy = ContentPolicy(redact=redactor)
    kept = policy.kept(decision(state="a1", original="b", request_context={"c": "d"}))
    assert (kept.state, kept.original, kept.request_context) == (None, None, {})
    assert kept.note == {REDACTED_KEY: {"error": error}}
    assert policy.kept_of_event({"reason": "why"}) == {}


def test_personal_data_of_fixed_form_is_replaced_and_counted(pii: PiiRedactor) -> None:
    found = pii(
        f"I am ann@example.org, card {CARD} or 4111111111111111, iban DE89 3704 0044 0532 0130 00, "
        "call +49 30 901820 from 10.1.2.3; order 1234567 of 2026-11-30"
    )
    assert found.text == (
        "I am <EMAIL_ADDRESS>, card <CREDIT_CARD> or <CREDIT_CARD>, iban <IBAN_CODE>, "
        "call <PHONE_NUMBER> from <IP_ADDRESS>; order 1234567 of 2026-11-30"
    )
    assert found.counts == {
        "EMAIL_ADDRESS": 1,
        "CREDIT_CARD": 2,
        "IBAN_CODE": 1,
        "PHONE_NUMBER": 1,
        "IP_ADDRESS": 1,
    }
    nothing = pii("my card has not arrived")
    assert (nothing.text, nothing.counts) == ("my card has not arrived", {})


def test_a_text_too_long_to_be_looked_through_is_not_kept(pii: PiiRedactor) -> None:
    kept = ContentPolicy(redact=pii).kept(decision(state="x" * (LONGEST + 1)))
    assert (kept.state, kept.note) == (None, {REDACTED_KEY: {"error": "ValueError"}})


async def test_what_is_redacted_is_nowhere_in_the_database_and_on_the_record(
    history: History, database_url: str, pii: PiiRedactor
) -> None:
    store = PostgresStore(database_url, hash_key=KEY, contents=ContentPolicy(redact=pii))
    one = decision(
        state={"text": f"card {CARD}", "number": 4111111111111111},
        original=f"card: {CARD}",
        request_context={"from": "ann@example.org"},
        metadata={"own": 1},
    )
    bad = replace(decision("bad", state=CARD), attempts=UNSTORABLE)
    assert list(await store.record([one, bad])) == [one, bad]
    await store.record_events([reviewed("w", f"it is {CARD}")])
    assert list(await store.record([one])) != [one]
    await store.aclose()
    for secret in ("4111", "ann@example.org"):
        assert await hits(database_url, secret) == {}
    kept = await history.get("acme", one.decision_id)
    assert kept is not None
    assert kept.state == {"text": "card <CREDIT_CARD>", "number": "<CREDIT_CARD>"}
    assert kept.metadata == {"own": 1, REDACTED_KEY: {"CREDIT_CARD": 3, "EMAIL_ADDRESS": 1}}
    assert (await history.events("acme", "w"))[0].body["reason"] == "it is <CREDIT_CARD>"


async def test_with_content_off_there_is_no_text_and_a_retry_still_finds_its_decision(
    quiet_store: PostgresStore, history: History, database_url: str
) -> None:
    one = about("w")
    bad = about("bad", attempts=UNSTORABLE)
    assert list(await quiet_store.record([one, bad])) == [one, bad]
    assert await hits(database_url, TEXT) == {}
    bare = replace(one, state=ERASED, original=None, request_context={})
    assert list(await quiet_store.record([replace(one, duration_ms=1.0)])) == [bare]
    assert await quiet_store.find("acme", one.decided_at, [one.decision_id]) == {one.decision_id: bare}
    assert list(await quiet_store.record([replace(bad, duration_ms=1.0)])) == [
        replace(bad, state=ERASED, original=None, request_context={})
    ]
    with pytest.raises(DecisionMismatch):
        await quiet_store.record([replace(one, state="another text")])
    page = await history.page(DecisionQuery(tenant="acme", resource="user-77"))
    assert page.decisions == (bare,)


async def test_the_hash_is_of_what_was_judged_whatever_is_kept(
    postgres_store: PostgresStore, quiet_store: PostgresStore, database_url: str
) -> None:
    one = decision(state=f"card {CARD}", ids=Ids(resource="user-77"))
    redacting = PostgresStore(database_url, hash_key=KEY, contents=ContentPolicy(redact=without_digits))
    await redacting.record([one])
    for store in (postgres_store, quiet_store):
        [kept] = await store.record([one])
        assert kept.state == "card ####-####-####-####"
    await redacting.aclose()
