"""Rows against what was sealed of them: what was changed, removed, inserted or reordered. Pure.

Works on a stretch of the order of arrival at a time: the leaves of the stretch, and the rows that stand in it
now. Whether a row that is missing at its place stands elsewhere, only a look at the whole can say; `settled`
takes what was seen there.
"""

from __future__ import annotations

import uuid
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal, TypeAlias

from classifier.audit.chain import (
    START,
    Checkpoint,
    Kind,
    Leaf,
    Link,
    Place,
    RetainedStub,
    StoredRow,
    contents_hash,
    row_hash,
)

Fault: TypeAlias = Literal[
    "changed", "contents changed", "removed", "inserted", "reordered", "leaf", "checkpoint", "outside", "stub"
]
Places: TypeAlias = Mapping[uuid.UUID, Collection[Place]]

_ROWS: Mapping[Fault, str] = {
    "changed": "was changed since it was sealed",
    "contents changed": "has other contents than when it was sealed",
    "removed": "was sealed and is gone, and no stub of retention covers it",
    "inserted": "is not sealed, though it stands among rows that are",
    "reordered": "stands elsewhere than where it was sealed",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Breach:
    """Something that is not as it was sealed.

    Attributes:
        fault: What was done. The first five are about a row; "leaf", "checkpoint" and "stub" are about
            the seal's own tables, "outside" is about a checkpoint that was kept outside the database.
        detail: The rest of a sentence that begins with `what`.
        kind: Of the row, where it is about one.
        row_id: Its id.
        place: Where it stands, or stood.
        sequence: The leaf, or the checkpoint's number, where there is one.
    """

    fault: Fault
    detail: str
    kind: Kind | None = None
    row_id: uuid.UUID | None = None
    place: Place | None = None
    sequence: int | None = None

    @property
    def what(self) -> str:
        """What it is about, in a few words."""
        if self.row_id is not None:
            return f"{self.kind} {self.row_id}"
        names = {"outside": f"the outside checkpoint {self.sequence}", "stub": "the stub of"}
        return names.get(self.fault, f"{self.fault} {self.sequence}")

    @property
    def sentence(self) -> str:
        """What was found, as a person reads it."""
        return f"{self.what} {self.detail}"


def differences(
    leaves: Sequence[Leaf],
    rows: Iterable[StoredRow],
    *,
    stubs: Collection[RetainedStub] = (),
    hash_key: bytes | None = None,
) -> list[Breach]:
    """What differs in a stretch, in the order of arrival; a row that was moved is both removed and inserted.

    Args:
        leaves: All leaves of the stretch.
        rows: All rows that stand in it now.
        stubs: Whose rows may be missing.
        hash_key: Keys the hashes of contents; None does not look at them.
    """
    standing: dict[tuple[Place, Kind, uuid.UUID], list[StoredRow]] = {}
    for row in rows:
        standing.setdefault((row.place, row.kind, row.row_id), []).append(row)
    found: list[Breach] = []
    for leaf in leaves:
        here = standing.pop((leaf.place, leaf.kind, leaf.row_id), [])
        found.extend(_at_its_place(leaf, here, stubs, hash_key))
    found.extend(_about_row(row, "inserted") for here in standing.values() for row in here)
    return sorted(found, key=lambda breach: breach.place or START)


def _at_its_place(
    leaf: Leaf, here: list[StoredRow], stubs: Collection[RetainedStub], hash_key: bytes | None
) -> Iterator[Breach]:
    if not here:
        if not any(stub.covers(leaf) for stub in stubs):
            yield _about_leaf(leaf, "removed")
        return
    same = next((row for row in here if row_hash(row.kind, row.columns, leaf.format) == leaf.row_hash), None)
    if same is None:
        yield _about_leaf(leaf, "changed")
    elif hash_key is not None and _contents_differ(leaf, same, hash_key):
        yield _about_leaf(leaf, "contents changed")
    for row in here:
        if row is not (same or here[0]):
            yield _about_row(row, "inserted")


def _contents_differ(leaf: Leaf, row: StoredRow, hash_key: bytes) -> bool:
    """Erased contents do not: that they are gone is no breach."""
    found = contents_hash(hash_key, row.kind, row.contents, leaf.format)
    return found is not None and found != leaf.contents_hash


def _about_leaf(leaf: Leaf, fault: Fault) -> Breach:
    return Breach(
        fault=fault,
        detail=_ROWS[fault],
        kind=leaf.kind,
        row_id=leaf.row_id,
        place=leaf.place,
        sequence=leaf.sequence,
    )


def _about_row(row: StoredRow, fault: Fault) -> Breach:
    return Breach(fault=fault, detail=_ROWS[fault], kind=row.kind, row_id=row.row_id, place=row.place)


def settled(found: Iterable[Breach], sealed: Places, standing: Places) -> list[Breach]:
    """What was found, with a row that is gone from its place and stands at another told once, as reordered.

    Args:
        found: What `differences` gave.
        sealed: The places of the leaves of these rows.
        standing: The places where these rows stand now.
    """
    told: set[uuid.UUID] = set()
    result: list[Breach] = []
    for breach in found:
        moved = breach.fault in {"removed", "inserted"} and _moved(breach.row_id, sealed, standing)
        if moved and breach.row_id in told:
            continue
        if moved and breach.row_id is not None:
            told.add(breach.row_id)
            breach = replace(breach, fault="reordered", detail=_ROWS["reordered"])  # noqa: PLW2901 - the same, renamed
        result.append(breach)
    return result


def _moved(row_id: uuid.UUID | None, sealed: Places, standing: Places) -> bool:
    if row_id is None:
        return False
    before, now = set(sealed.get(row_id, ())), set(standing.get(row_id, ()))
    return bool(before - now) and bool(now - before)


def leaf_breach(sequence: int, *, unsigned: bool = False) -> Breach:
    """The leaf of this number does not follow from the one before it, or no checkpoint signs it."""
    detail = (
        "of the chain and those after it are signed by no checkpoint"
        if unsigned
        else "of the chain is missing or was changed: it does not follow from those before it"
    )
    return Breach(fault="leaf", sequence=sequence, detail=detail)


def checkpoint_breach(
    checkpoint: Checkpoint, previous: Checkpoint | None, reached: Link | None, signature: str | None
) -> Breach | None:
    """What is wrong with the checkpoint that follows `previous`.

    Args:
        checkpoint: The one to judge.
        previous: The one before; None for the first.
        reached: The chain's own link after as many leaves; None where it has not so many.
        signature: What is wrong with its signature, or None.
    """
    detail = signature
    if detail is None and checkpoint.number != (previous.number if previous else 0) + 1:
        detail = "is not the one that should follow: a checkpoint is missing"
    if detail is None and checkpoint.previous != (previous.hash if previous else None):
        detail = "does not follow from the one before it"
    if detail is None and reached is None:
        detail = f"stands for {checkpoint.leaves} leaves; the chain does not have them, or in another order"
    if detail is None and reached != Link(checkpoint.leaves, checkpoint.place, checkpoint.chain_hash):
        first = (previous.leaves if previous else 0) + 1
        detail = f"does not agree with the leaves: some from {first} to {checkpoint.leaves} were rewritten"
    return None if detail is None else Breach(fault="checkpoint", sequence=checkpoint.number, detail=detail)


def differs_outside(checkpoint: Checkpoint, reached: Link) -> str | None:
    """How the chain differs from a checkpoint that was kept outside the database, or None.

    Args:
        checkpoint: The one from outside.
        reached: The chain's own link after as many leaves, or its last where it ends before.
    """
    if checkpoint.leaves > reached.sequence:
        return f"stands for {checkpoint.leaves} leaves, and the chain ends at {reached.sequence}: it was cut"
    if reached != Link(checkpoint.leaves, checkpoint.place, checkpoint.chain_hash):
        return f"does not agree with the database: some of the first {checkpoint.leaves} rows were rewritten"
    return None


def outside_breach(checkpoint: Checkpoint, detail: str | None) -> Breach | None:
    """The breach where something is wrong with a checkpoint that was kept outside the database."""
    if detail is None:
        return None
    return Breach(fault="outside", sequence=checkpoint.number, detail=detail)


def stub_detail(stub: RetainedStub, fault: str) -> str:
    """What is wrong with a stub, for a breach."""
    return f"{stub.kind}s from {stub.since.date()} to {stub.until.date()}, up to leaf {stub.through}: {fault}"
