"""The seal's arithmetic: one byte form, one chain, and the first row that is not as it was sealed."""

from __future__ import annotations

import dataclasses
import uuid
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
import rfc8785
from hypothesis import given
from hypothesis import strategies as st

from classifier.audit.chain import (
    ANSWER_ROWS,
    CONTENTS,
    FORMAT,
    SEALED,
    Checkpoint,
    Leaf,
    Place,
    RetainedStub,
    StoredRow,
    broken_link,
    canonical,
    chained,
    contents_hash,
    folded,
    link_of,
    root,
    row_hash,
)
from classifier.audit.checkpoint_json import checkpoint_of_line, checkpoint_to_line
from classifier.audit.compare import (
    Breach,
    Fault,
    checkpoint_breach,
    differences,
    differs_outside,
    settled,
)
from classifier.audit.signing import PublicKeys, SealKey, new_key
from classifier.audit.tables import decision_contents, decisions, history_events
from classifier.errors import ConfigurationError

KEY = b"a key for tests"
WHEN = datetime(2026, 11, 2, 8, tzinfo=UTC)
SEAL = SealKey.of(new_key())
OTHER = SealKey.of(new_key())
KEYS = PublicKeys.of([SEAL.public])

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
names = st.text(st.characters(min_codepoint=32, max_codepoint=126), max_size=8)
whole_numbers = st.integers(-(2**53) + 1, 2**53 - 1)


@given(st.dictionaries(names, texts | whole_numbers | st.none(), max_size=8))
def test_what_is_hashed_is_in_the_form_of_rfc_8785(value: dict[str, str | int | None]) -> None:
    assert canonical(value) == rfc8785.dumps(value)


def test_every_column_is_sealed_or_can_be_erased() -> None:
    sealed, erasable = SEALED[FORMAT], CONTENTS[FORMAT]
    assert {column.name for column in decisions.columns} == {*sealed["decision"]} - {ANSWER_ROWS}
    assert {column.name for column in history_events.columns} == {*sealed["event"], *erasable["event"]}
    identity = {"decision_id", "decided_at"}
    assert {column.name for column in decision_contents.columns} == {*erasable["decision"]} | identity


def row(number: int, **columns: str | None) -> StoredRow:
    """A decision that arrived as the given one."""
    row_id = uuid.UUID(int=number)
    return StoredRow(
        kind="decision",
        row_id=row_id,
        place=Place(number // 3, number),
        moment=WHEN + timedelta(days=number),
        columns={"decision_id": str(row_id), "tenant": "acme", "arrival": str(number), **columns},
        contents={"state": "ab" * 32},
    )


ROWS = [row(number) for number in range(1, 8)]
LEAVES = chained(root("acme"), ROWS, KEY)


@given(st.sampled_from([*SEALED[FORMAT]["decision"]]), texts, st.none() | texts)
def test_a_column_cannot_change_without_the_hash(name: str, one: str, other: str | None) -> None:
    plain = row(1).columns
    same = row_hash("decision", {**plain, name: one}) == row_hash("decision", {**plain, name: other})
    assert same == (one == other)
    assert row_hash("decision", plain) != row_hash("event", plain)


@given(st.sampled_from([*CONTENTS[FORMAT]["decision"]]), texts, st.none() | texts)
def test_contents_cannot_change_without_their_hash(name: str, one: str, other: str | None) -> None:
    first, second = contents_hash(KEY, "decision", {name: one}), contents_hash(KEY, "decision", {name: other})
    assert (first == second) == (one == other)
    assert first != contents_hash(b"another key", "decision", {name: one})
    assert contents_hash(KEY, "decision", None) is None


CHANGES: dict[str, Callable[[Leaf], Any]] = {
    "sequence": lambda leaf: leaf.sequence + 1,
    "kind": lambda _: "event",
    "row_id": lambda _: uuid.UUID(int=99),
    "place": lambda leaf: replace(leaf.place, arrival=leaf.place.arrival - 1),
    "moment": lambda leaf: leaf.moment + timedelta(microseconds=1),
    "format": lambda _: 7,
    "row_hash": lambda leaf: leaf.row_hash[::-1],
    "contents_hash": lambda _: None,
    "chain_hash": lambda leaf: leaf.chain_hash[::-1],
}


def test_every_field_of_a_leaf_has_a_change_to_try() -> None:
    assert set(CHANGES) == {field.name for field in dataclasses.fields(Leaf)}


@given(st.sampled_from(sorted(CHANGES)), st.integers(0, len(LEAVES) - 1))
def test_a_leaf_that_is_changed_is_the_first_that_does_not_follow(name: str, index: int) -> None:
    changed = [*LEAVES]
    changed[index] = replace(LEAVES[index], **{name: CHANGES[name](LEAVES[index])})
    assert broken_link(root("acme"), LEAVES) is None
    assert broken_link(root("acme"), changed) == index + 1


@given(st.integers(0, len(LEAVES) - 2))
def test_a_leaf_that_is_taken_out_leaves_a_gap(index: int) -> None:
    assert broken_link(root("acme"), LEAVES[:index] + LEAVES[index + 1 :]) == index + 1


def test_the_chain_of_one_tenant_is_not_that_of_another() -> None:
    assert broken_link(root("globex"), LEAVES) == 1


def test_a_chain_that_is_made_in_parts_is_the_same() -> None:
    first = chained(root("acme"), ROWS[:3], KEY)
    assert first + chained(link_of(first[-1]), ROWS[3:], KEY) == LEAVES


def first_difference(leaves: list[Leaf], rows: list[StoredRow]) -> Breach | None:
    """The first row of a whole chain that was changed, removed, inserted or reordered, or None."""
    sealed = {leaf.row_id: {each.place for each in leaves if each.row_id == leaf.row_id} for leaf in leaves}
    standing = {row.row_id: {each.place for each in rows if each.row_id == row.row_id} for row in rows}
    among = [row for row in rows if row.place <= leaves[-1].place]
    return next(iter(settled(differences(leaves, among), sealed, standing)), None)


def test_of_two_rows_at_one_place_only_the_first_is_sealed() -> None:
    twin = replace(row(2), row_id=uuid.UUID(int=50))
    leaves = chained(root("acme"), [row(1), row(2), twin, row(3)], KEY)
    assert [leaf.row_id.int for leaf in leaves] == [1, 2, 3]
    breach = first_difference(leaves, [row(1), row(2), twin, row(3)])
    assert breach is not None
    assert (breach.fault, breach.row_id) == ("inserted", twin.row_id)


def test_an_untouched_history_has_no_difference() -> None:
    assert first_difference(LEAVES, ROWS) is None
    assert first_difference(LEAVES, [*ROWS, row(40)]) is None, "what came later is not sealed yet"


def found(rows: list[StoredRow]) -> tuple[Fault, int]:
    """The first fault, and the number of the row it names."""
    breach = first_difference(LEAVES, sorted(rows, key=lambda each: each.place))
    assert breach is not None
    assert breach.row_id is not None
    return breach.fault, breach.row_id.int


@given(st.data())
def test_the_first_row_that_was_changed_is_named(data: st.DataObject) -> None:
    indexes = data.draw(st.sets(st.integers(0, len(ROWS) - 1), min_size=1))
    rows = [
        replace(each, columns={**each.columns, "outcome": "aborted"}) if index in indexes else each
        for index, each in enumerate(ROWS)
    ]
    assert found(rows) == ("changed", min(indexes) + 1)


@given(st.sets(st.integers(0, len(ROWS) - 1), min_size=1))
def test_the_first_row_that_was_removed_is_named(indexes: set[int]) -> None:
    assert found([each for index, each in enumerate(ROWS) if index not in indexes]) == (
        "removed",
        min(indexes) + 1,
    )


@given(st.integers(-5, 2), st.integers(-5, 6))
def test_a_row_that_was_slipped_in_is_named(transaction: int, arrival: int) -> None:
    slipped = replace(row(50), place=Place(transaction, arrival))
    assert found([slipped, *ROWS]) == ("inserted", 50)


@given(st.integers(0, len(ROWS) - 2), st.integers(1, len(ROWS) - 1))
def test_rows_that_changed_places_are_reordered(index: int, distance: int) -> None:
    other = min(index + distance, len(ROWS) - 1)
    rows = [*ROWS]
    rows[index], rows[other] = (
        replace(ROWS[index], place=ROWS[other].place),
        replace(ROWS[other], place=ROWS[index].place),
    )
    assert found(rows) == ("reordered", index + 1)


@given(st.integers(0, len(ROWS) - 1))
def test_a_row_that_was_moved_to_the_end_is_reordered(index: int) -> None:
    moved = replace(ROWS[index], place=Place(99, 99))
    assert found([*ROWS[:index], *ROWS[index + 1 :], moved]) == ("reordered", index + 1)


def test_a_copy_of_a_row_is_inserted_and_its_original_is_fine() -> None:
    copy = replace(ROWS[1], place=Place(0, 0))
    [breach] = differences(LEAVES, [copy, *ROWS])
    assert (breach.fault, breach.place) == ("inserted", Place(0, 0))
    assert found([copy, *ROWS]) == ("inserted", 2)


def test_contents_may_go_but_not_change_or_come_back() -> None:
    gone = [replace(each, contents=None) for each in ROWS]
    assert differences(LEAVES, gone, hash_key=KEY) == []
    changed = [replace(ROWS[0], contents={"state": "cd" * 32}), *ROWS[1:]]
    assert [breach.fault for breach in differences(LEAVES, changed, hash_key=KEY)] == ["contents changed"]
    assert differences(LEAVES, changed) == [], "without the key nobody looks"
    never = chained(root("acme"), gone, KEY)
    assert {breach.fault for breach in differences(never, ROWS, hash_key=KEY)} == {"contents changed"}


def checkpoint(leaves: list[Leaf], previous: Checkpoint | None = None, key: SealKey = SEAL) -> Checkpoint:
    """What a sealer would sign at the end of these leaves."""
    end = link_of(leaves[-1])
    return key.signed(
        Checkpoint(
            tenant="acme\0\ud800",
            number=1 if previous is None else previous.number + 1,
            leaves=end.sequence,
            place=end.place,
            chain_hash=end.chain_hash,
            previous=None if previous is None else previous.hash,
            sealed_at=WHEN,
            key_id="",
        )
    )


FIRST = checkpoint(LEAVES[:3])
SECOND = checkpoint(LEAVES, FIRST)


def test_checkpoints_that_follow_have_no_fault() -> None:
    assert KEYS.fault(FIRST) is None
    assert checkpoint_breach(FIRST, None, link_of(LEAVES[2]), None) is None
    assert checkpoint_breach(SECOND, FIRST, link_of(LEAVES[-1]), None) is None
    assert differs_outside(FIRST, link_of(LEAVES[2])) is None


FORGERIES: dict[str, Any] = {
    "tenant": "globex",
    "number": 7,
    "leaves": 2,
    "place": Place(0, 0),
    "chain_hash": b"\0" * 32,
    "previous": b"\0" * 32,
    "sealed_at": WHEN + timedelta(seconds=1),
    "signature": b"\0" * 64,
}


@pytest.mark.parametrize("name", FORGERIES)
def test_whatever_is_changed_in_a_checkpoint_its_signature_does_not_hold(name: str) -> None:
    fault = KEYS.fault(replace(FIRST, **{name: FORGERIES[name]}))
    assert fault == f"is not what the key {SEAL.key_id} signed"


def test_a_checkpoint_of_an_unknown_key_is_not_believed() -> None:
    forged = checkpoint(LEAVES[:3], key=OTHER)
    assert KEYS.fault(forged) == f"is signed by the key {OTHER.key_id!r}, which was not given"
    assert PublicKeys.of([SEAL.public, OTHER.public]).fault(forged) is None, "keys can be replaced"


def test_a_checkpoint_that_is_missing_or_does_not_fit_is_said() -> None:
    said = [
        checkpoint_breach(SECOND, None, link_of(LEAVES[-1]), None),
        checkpoint_breach(SECOND, replace(FIRST, leaves=2), link_of(LEAVES[-1]), None),
        checkpoint_breach(SECOND, FIRST, link_of(LEAVES[2]), None),
        checkpoint_breach(SECOND, FIRST, None, None),
    ]
    assert [breach.detail.split(":")[0] for breach in said if breach] == [
        "is not the one that should follow",
        "does not follow from the one before it",
        "does not agree with the leaves",
        "stands for 7 leaves; the chain does not have them, or in another order",
    ]


def test_a_chain_that_was_rewritten_or_cut_differs_from_what_was_kept_outside() -> None:
    other = chained(root("acme"), [row(1), row(2), row(3, outcome="x"), *ROWS[3:]], KEY)
    rewritten = differs_outside(FIRST, link_of(other[2]))
    cut = differs_outside(SECOND, link_of(LEAVES[2]))
    assert rewritten is not None
    assert "rewritten" in rewritten
    assert cut is not None
    assert "ends at 3: it was cut" in cut


def test_a_line_of_json_is_the_whole_checkpoint() -> None:
    line = checkpoint_to_line(SECOND)
    assert line.count("\n") == 1
    assert checkpoint_of_line(line) == SECOND
    assert KEYS.fault(checkpoint_of_line(line)) is None


@pytest.mark.parametrize("line", ["", "{", "[]", "{}", '{"tenant": 1}', "7", "[" * 100_000])
def test_a_line_that_is_no_checkpoint_is_said_to_be_none(line: str) -> None:
    with pytest.raises(ConfigurationError, match="this is no"):
        checkpoint_of_line(line)


def stub(**changes: Any) -> RetainedStub:
    """A stub for the rows of the third to the fifth day."""
    digest = b""
    for leaf in LEAVES[2:5]:
        digest = folded(digest, leaf.chain_hash)
    plain = RetainedStub(
        tenant="acme",
        kind="decision",
        since=ROWS[2].moment,
        until=ROWS[5].moment,
        through=len(LEAVES),
        leaves=3,
        digest=digest,
        made_at=WHEN,
        key_id="",
    )
    return SEAL.signed(replace(plain, **changes))


def test_rows_that_a_stub_covers_may_be_gone_and_no_others() -> None:
    kept = [*ROWS[:2], *ROWS[5:]]
    assert differences(LEAVES, kept, stubs=[stub()]) == []
    gone = {breach.row_id.int for breach in differences(LEAVES, kept[1:], stubs=[stub()]) if breach.row_id}
    assert gone == {1}
    assert len(differences(LEAVES, kept, stubs=[stub(through=3), stub(kind="event")])) == 2
    assert KEYS.fault(replace(stub(), until=WHEN)) is not None


def test_no_key_shows_its_private_half() -> None:
    text = new_key()
    assert text not in repr(SealKey.of(text))
    assert SealKey.of(text) == SealKey.of(f" {text}\n")
    for wrong in ("", "secret", text[:20], text + "="):
        with pytest.raises(ConfigurationError, match="is not 32 bytes in base64") as raised:
            SealKey.of(wrong)
        assert not wrong or wrong not in str(raised.value)
