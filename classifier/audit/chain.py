"""The arithmetic of the seal: what is hashed of a row, how rows are chained, what a checkpoint signs. Pure.

Each tenant has one chain. A leaf holds the hash of one row, in the order in which rows became visible, and
its link is a hash over the link before and all that the leaf says; so one link stands for everything up to
it, and a signed checkpoint holds one link.

What is hashed is a JSON object in the form of RFC 8785. Its values are texts, whole numbers and null: a
column is what PostgreSQL prints for it, so no number has two spellings, and two verifiers agree to the byte.
Hashes are SHA-256 over a name for what is hashed, a zero byte and the object.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Literal, TypeAlias

from classifier.audit.escape import escape

Kind: TypeAlias = Literal["decision", "event"]
Columns: TypeAlias = Mapping[str, str | None]
"""A row by its columns, each as PostgreSQL prints it."""

FORMAT = 1
"""Which columns a new leaf's hash covers."""

_DECISION = (
    "decision_id decided_at tenant namespace workflow_id run_id activity_id ordinal classifier_id "
    "processor_id playbook_id phase outcome mode answers question_set gates duration_ms attempts "
    "failure_code failure_message tripwire_reason tripwire_metadata branch_action branch_route "
    "branch_reasons thread_id message_id trace_id span_id policy_version provider requested_model "
    "resolved_model provider_request_id input_tokens output_tokens cost warnings truncated_from "
    "truncated_to truncated_by normalised metadata refused reason_text state_hash state_length subject "
    "recorded_at transaction_id arrival"
)
_EVENT = (
    "event_id at tenant kind workflow_id run_id decision_id actor body recorded_at transaction_id arrival"
)
ANSWER_ROWS = "decision_answers"
"""Stands in a decision's object for its rows in the table of answers."""

SEALED: Mapping[int, Mapping[Kind, tuple[str, ...]]] = {
    1: {"decision": (*_DECISION.split(), ANSWER_ROWS), "event": tuple(_EVENT.split())}
}
"""The columns by format. A column that is added needs a new format, or old rows would seem changed."""

CONTENTS: Mapping[int, Mapping[Kind, tuple[str, ...]]] = {
    1: {
        "decision": ("tenant", "resource_id", "state", "state_is_json", "request_context", "original"),
        "event": ("content",),
    }
}
"""The same of what may be erased."""

_ROW, _CONTENTS, _ROOT, _LINK = (
    f"classifier.audit.{what}.v1" for what in ("row", "contents", "root", "link")
)
_CHECKPOINT, _STUB = (f"classifier.audit.{what}.v1" for what in ("checkpoint", "stub"))
_ENCODER = json.JSONEncoder(sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)


@dataclass(frozen=True, slots=True, order=True)
class Place:
    """Where a row stands in the order in which rows became visible.

    Attributes:
        transaction_id: The transaction that wrote it, as a number that never wraps round.
        arrival: Its number, unique in a database.
    """

    transaction_id: int
    arrival: int


START = Place(-(2**63), -(2**63))
"""Before the first row."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredRow:
    """A row as it is now.

    Attributes:
        kind: Whether it is a decision or another event of the history.
        row_id: Its id.
        place: Where it stands.
        moment: When it was decided or happened.
        columns: What it holds.
        contents: What may be erased, each column as its SHA-256 in hex; None where there is nothing.
    """

    kind: Kind
    row_id: uuid.UUID
    place: Place
    moment: datetime
    columns: Columns
    contents: Columns | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Leaf:
    """What the seal keeps of a row; the row itself may be gone one day.

    Attributes:
        sequence: Its number in the chain of its tenant, from 1.
        kind: What kind of row.
        row_id: Which one.
        place: Where it stood when it was sealed.
        moment: When it was decided or happened, which says in which month's partition it was.
        format: Which columns `row_hash` covers.
        row_hash: Of the facts.
        contents_hash: Keyed, of what may be erased; None where it already was.
        chain_hash: The link: everything up to here.
    """

    sequence: int
    kind: Kind
    row_id: uuid.UUID
    place: Place
    moment: datetime
    format: int
    row_hash: bytes
    contents_hash: bytes | None
    chain_hash: bytes


@dataclass(frozen=True, slots=True)
class Link:
    """How far a chain has come."""

    sequence: int
    place: Place
    chain_hash: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint:
    """A signed statement: this tenant's chain was so long, and came to this.

    Attributes:
        tenant: Whose.
        number: Its number, from 1.
        leaves: How many rows the chain holds up to here.
        place: Up to where it reaches.
        chain_hash: The last link.
        previous: The hash of the checkpoint before; None for the first.
        sealed_at: When.
        key_id: Which key signed.
        signature: Ed25519, over `signed`.
    """

    tenant: str
    number: int
    leaves: int
    place: Place
    chain_hash: bytes
    previous: bytes | None
    sealed_at: datetime
    key_id: str
    signature: bytes = b""

    @property
    def signed(self) -> bytes:
        """What the signature is over."""
        return _named(_CHECKPOINT, checkpoint_body(self))

    @property
    def hash(self) -> bytes:
        """What the next checkpoint repeats."""
        return hashlib.sha256(self.signed).digest()


@dataclass(frozen=True, slots=True, kw_only=True)
class RetainedStub:
    """A signed statement: retention dropped the rows of these leaves.

    It covers the leaves of its kind whose moment lies in [`since`, `until`), up to the number `through`.

    Attributes:
        tenant: Whose.
        kind: Of which kind the rows were.
        since: First moment.
        until: End, exclusive.
        through: The last number there was.
        leaves: How many it covers.
        digest: Of their links, in order (`folded`).
        made_at: When.
        key_id: Which key signed.
        signature: Ed25519, over `signed`.
    """

    tenant: str
    kind: Kind
    since: datetime
    until: datetime
    through: int
    leaves: int
    digest: bytes
    made_at: datetime
    key_id: str
    signature: bytes = b""

    @property
    def signed(self) -> bytes:
        """What the signature is over."""
        return _named(_STUB, _stub_body(self))

    def covers(self, leaf: Leaf) -> bool:
        """Whether this leaf is one of them."""
        return (
            leaf.kind == self.kind
            and self.since <= leaf.moment < self.until
            and leaf.sequence <= self.through
        )


def canonical(value: Mapping[str, str | int | None]) -> bytes:
    """RFC 8785 of an object of texts, whole numbers of at most 53 bits, and null, with ASCII keys.

    For these, and for no more, it is what Python's own encoder does.
    """
    return _ENCODER.encode(value).encode()


def row_hash(kind: Kind, columns: Columns, sealed_format: int = FORMAT) -> bytes:
    """The hash of a row's facts; columns that are null are left out."""
    covered = {name: columns.get(name) for name in SEALED[sealed_format][kind]}
    present: dict[str, str | int | None] = {name: text for name, text in covered.items() if text is not None}
    return _hash(f"{_ROW}.{kind}", present)


def contents_hash(
    hash_key: bytes, kind: Kind, contents: Columns | None, sealed_format: int = FORMAT
) -> bytes | None:
    """HMAC-SHA256 over the hashes of what may be erased: says nothing of a text to who lacks the key."""
    if contents is None:
        return None
    covered: dict[str, str | int | None] = {
        name: contents.get(name) for name in CONTENTS[sealed_format][kind]
    }
    return hmac.digest(hash_key, _named(f"{_CONTENTS}.{kind}", covered), "sha256")


def root(tenant: str) -> Link:
    """The beginning of a tenant's chain."""
    return Link(0, START, _hash(_ROOT, {"tenant": escape(tenant)}))


def chained(link: Link, rows: Iterable[StoredRow], hash_key: bytes) -> list[Leaf]:
    """The leaves of rows that come after `link`, in the order of their places.

    No two rows stand at one place unless somebody forged one; only the first is sealed.
    """
    leaves: list[Leaf] = []
    for row in rows:
        if row.place <= link.place:
            continue
        leaf = Leaf(
            sequence=link.sequence + 1,
            kind=row.kind,
            row_id=row.row_id,
            place=row.place,
            moment=row.moment,
            format=FORMAT,
            row_hash=row_hash(row.kind, row.columns),
            contents_hash=contents_hash(hash_key, row.kind, row.contents),
            chain_hash=b"",
        )
        leaf = replace(leaf, chain_hash=link_hash(link.chain_hash, leaf))
        leaves.append(leaf)
        link = link_of(leaf)
    return leaves


def link_of(leaf: Leaf) -> Link:
    """How far the chain has come with this leaf."""
    return Link(leaf.sequence, leaf.place, leaf.chain_hash)


def link_hash(previous: bytes, leaf: Leaf) -> bytes:
    """The link of a leaf that comes after `previous`."""
    body: dict[str, str | int | None] = {
        "previous": previous.hex(),
        "sequence": leaf.sequence,
        "kind": leaf.kind,
        "row_id": str(leaf.row_id),
        "transaction_id": str(leaf.place.transaction_id),
        "arrival": str(leaf.place.arrival),
        "moment": _time(leaf.moment),
        "format": leaf.format,
        "row_hash": leaf.row_hash.hex(),
        "contents_hash": None if leaf.contents_hash is None else leaf.contents_hash.hex(),
    }
    return _hash(_LINK, body)


def broken_link(link: Link, leaves: Sequence[Leaf]) -> int | None:
    """The number of the first leaf that does not follow from `link` and those before it; None if all do."""
    for leaf in leaves:
        follows = leaf.sequence == link.sequence + 1 and leaf.place > link.place
        if not follows or leaf.format not in SEALED or link_hash(link.chain_hash, leaf) != leaf.chain_hash:
            return link.sequence + 1
        link = link_of(leaf)
    return None


def folded(digest: bytes, link: bytes) -> bytes:
    """A stub's digest with one more link; it begins as no bytes at all."""
    return hashlib.sha256(digest + link).digest()


def checkpoint_body(checkpoint: Checkpoint) -> dict[str, str | int | None]:
    """What a checkpoint says, but for its signature."""
    return {
        "tenant": escape(checkpoint.tenant),
        "number": checkpoint.number,
        "leaves": checkpoint.leaves,
        "transaction_id": str(checkpoint.place.transaction_id),
        "arrival": str(checkpoint.place.arrival),
        "chain_hash": checkpoint.chain_hash.hex(),
        "previous": None if checkpoint.previous is None else checkpoint.previous.hex(),
        "sealed_at": _time(checkpoint.sealed_at),
        "key_id": checkpoint.key_id,
    }


def _stub_body(stub: RetainedStub) -> dict[str, str | int | None]:
    return {
        "tenant": escape(stub.tenant),
        "kind": stub.kind,
        "since": _time(stub.since),
        "until": _time(stub.until),
        "through": stub.through,
        "leaves": stub.leaves,
        "digest": stub.digest.hex(),
        "made_at": _time(stub.made_at),
        "key_id": stub.key_id,
    }


def _time(moment: datetime) -> str:
    return moment.astimezone(UTC).isoformat(timespec="microseconds")


def _named(name: str, value: Mapping[str, str | int | None]) -> bytes:
    return name.encode() + b"\0" + canonical(value)


def _hash(name: str, value: Mapping[str, str | int | None]) -> bytes:
    return hashlib.sha256(_named(name, value)).digest()
