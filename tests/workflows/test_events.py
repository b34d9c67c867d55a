"""Lines of events: each is read or refused with a reason, and what is read can travel and be kept."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from classifier.errors import PolicyError
from classifier.playbook import Playbook, text_of_event
from classifier.values import canonical_json
from workflows.events import (
    MAX_EVENT_BYTES,
    MAX_TRAVEL_BYTES,
    Incoming,
    Rejected,
    UndecidableError,
    by_type,
    read_event,
)

ARABIC = "بطاقتي "
PLAIN: dict[str, Any] = {
    "specversion": "1.0",
    "id": "1",
    "source": "/tests",
    "type": "ticket",
    "data": {"text": "hello"},
}


def read(raw: bytes) -> Incoming | Rejected:
    return read_event(raw, 7, "acme", lambda event: text_of_event(event.get("data")))


def line(**changes: Any) -> bytes:
    kept = {name: value for name, value in {**PLAIN, **changes}.items() if value is not ...}
    return json.dumps(kept).encode()


def refused(raw: bytes) -> str:
    found = read(raw)
    assert isinstance(found, Rejected), found
    assert found.line == 7
    return found.reason


def test_an_event_is_known_by_tenant_source_and_id() -> None:
    found = read(line())
    assert isinstance(found, Incoming)
    assert (found.source.tenant, found.source.source, found.source.id) == ("acme", "/tests", "1")
    assert found.event == PLAIN


@pytest.mark.parametrize(
    ("raw", "reason"),
    [
        (b"{", "not JSON"),
        (b"", "not JSON"),
        (b"[1]", "not a JSON object"),
        (b'"text"', "not a JSON object"),
        (b'{"id": "\xff"}', "not UTF-8"),
        (line()[:-1] + b', "n": NaN}', "NaN is no JSON number"),
        (line()[:-1] + b', "n": Infinity}', "Infinity is no JSON number"),
        (line(data={"text": "hello", "n": 0}).replace(b"0}", b"1e400}"), "out of range"),
        (line(data={"text": "hello", "n": 0}).replace(b"0}", b"9" * 5000 + b"}"), "digits"),
        (line(data=0).replace(b"0}", b"[" * 99_999 + b"]" * 99_999 + b"}"), "nested too deeply"),
        (line(data=0).replace(b": 0}", b": " + b"[" * 150 + b"1" + b"]" * 150 + b"}"), "nested too deeply"),
        (line(id=...), "id missing"),
        (line(source=...), "source missing"),
        (line(id=..., type=..., specversion=...), "specversion, id, type missing"),
        (line(id=""), "id invalid"),
        (line(id=5), "id invalid"),
        (line(id=None), "id invalid"),
        (line(id={"a": 1}), "id invalid"),
        (line(source=""), "source invalid"),
        (line(source=["a"]), "source invalid"),
        (line(specversion="0.3"), "specversion invalid"),
        (line(id="a\0b"), "id holds characters"),
        (line(id="\ud800"), "id holds characters"),
        (line(source="/\udfff"), "source holds characters"),
        (line(time="yesterday"), "time invalid"),
        (line(time=5), "time invalid"),
        (line(data_base64="aGk="), "binary data"),
        (line(data=...), "no text"),
        (line(data=None), "no text"),
        (line(data={"text": ""}), "no text"),
        (line(data={"text": " \n\t"}), "no text"),
        (line(data={}), "no text"),
        (line(data="x" * 3_000_000), f"the limit is {MAX_EVENT_BYTES:,}"),
        (
            json.dumps({**PLAIN, "data": ARABIC * 65_000}, ensure_ascii=False).encode(),
            f"{MAX_TRAVEL_BYTES:,}",
        ),
    ],
    ids=lambda value: value[:40] if isinstance(value, str) else "",
)
def test_bad_input_is_refused_with_its_reason(raw: bytes, reason: str) -> None:
    assert reason in refused(raw)


@pytest.mark.parametrize(
    "text",
    ["بطاقتي لا تعمل", "a\0b", "lone \ud800 surrogate", "💳" * 1000, "\u202ereversed", "'; DROP TABLE x;--"],
)
def test_unusual_text_is_taken_as_it_is(text: str) -> None:
    found = read(line(data={"text": text}))
    assert isinstance(found, Incoming)
    assert found.event["data"] == {"text": text}


def test_arabic_without_escapes_is_taken_as_it_is() -> None:
    found = read(json.dumps({**PLAIN, "data": "بطاقتي"}, ensure_ascii=False).encode())
    assert isinstance(found, Incoming)
    assert found.event["data"] == "بطاقتي"


def test_a_state_function_that_raises_refuses_the_line_and_not_the_file() -> None:
    def state_of(data: object) -> str:
        raise PolicyError("the state function of playbook 'tickets' raised KeyError")

    found = read_event(line(), 7, "acme", state_of)
    assert found == Rejected(7, "the state function of playbook 'tickets' raised KeyError")


def playbook(name: str, *kinds: str) -> tuple[str, Playbook[Any]]:
    made: Playbook[Any] = Playbook(
        id=name,
        classifier="c",
        routes=("a",),
        route=lambda answers: "a",
        gates={},
        destinations={},
        event_types=kinds,
    )
    return f"key of {name}", made


def test_the_playbook_that_names_a_type_takes_it_and_one_that_names_none_takes_the_rest() -> None:
    choose = by_type([playbook("bills", "bill", "invoice"), playbook("rest"), playbook("mail", "mail")])
    assert [choose(kind)[0] for kind in ("bill", "invoice", "mail", "fax")] == [
        "key of bills",
        "key of bills",
        "key of mail",
        "key of rest",
    ]


@pytest.mark.parametrize(
    ("playbooks", "complaint"),
    [
        ([playbook("bills", "bill")], "no playbook takes"),
        ([playbook("one", "fax"), playbook("two", "fax")], "several playbooks take"),
        ([playbook("one"), playbook("two")], "several playbooks take"),
    ],
)
def test_a_type_that_none_or_several_take_is_undecidable(
    playbooks: list[tuple[str, Playbook[Any]]], complaint: str
) -> None:
    with pytest.raises(UndecidableError, match=complaint):
        by_type(playbooks)("fax")


def test_a_playbook_under_two_names_is_one() -> None:
    key, made = playbook("bills")
    assert by_type([(key, made), ("bills", made)])("any") == (key, made)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=6,
)
attributes = st.sampled_from(
    ["specversion", "id", "source", "type", "time", "subject", "data", "datacontenttype", "ext"]
)


@given(st.binary(max_size=80))
def test_any_bytes_are_read_or_refused(raw: bytes) -> None:
    read(raw)


@given(st.dictionaries(attributes, json_values, max_size=4))
def test_whatever_is_read_travels_and_has_an_identity(changes: dict[str, Any]) -> None:
    found = read(line(**changes))
    if isinstance(found, Rejected):
        return
    assert len(canonical_json(found.event)) <= MAX_TRAVEL_BYTES
    assert found.source.id
    assert found.source.id.encode()
    assert found.source.source.encode()


@given(st.text(alphabet="sécret4111", min_size=6), st.sampled_from(["id", "source", "type", "time", "ext"]))
def test_no_reason_holds_content(secret: str, name: str) -> None:
    for raw in (
        line(**{name: {"a": secret}}),
        line(**{name: secret, "data": ...}),
        line(data={"text": " ", "other": secret}),
        line(data={secret: float("inf")}),
        line()[:-1] + secret.encode(),
        secret.encode(),
    ):
        found = read(raw)
        assert not isinstance(found, Rejected) or secret not in found.reason
