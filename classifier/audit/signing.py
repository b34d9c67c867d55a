"""The keys of the seal: Ed25519, by ids that follow from the keys. Pure."""

from __future__ import annotations

import base64
import binascii
import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Self, TypeVar

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from classifier.audit.chain import Checkpoint, RetainedStub
from classifier.errors import ConfigurationError

Statement = TypeVar("Statement", Checkpoint, RetainedStub)

_KEY_BYTES = 32
_ID_LENGTH = 16


@dataclass(frozen=True, slots=True)
class SealKey:
    """What signs.

    Attributes:
        key_id: The name of its public half.
        public: Its public half, 32 bytes in base64, for whoever verifies.
    """

    key_id: str
    public: str
    _private: Ed25519PrivateKey = field(repr=False, compare=False)

    @classmethod
    def of(cls, text: str) -> Self:
        """The key of 32 bytes in base64.

        Raises:
            ConfigurationError: It is none; the message does not repeat it.
        """
        private = Ed25519PrivateKey.from_private_bytes(_bytes_of(text, "the private key of the seal"))
        public = private.public_key().public_bytes_raw()
        return cls(_id_of(public), base64.b64encode(public).decode("ascii"), private)

    def signed(self, statement: Statement) -> Statement:
        """The statement with this key's id and signature."""
        named = replace(statement, key_id=self.key_id)
        return replace(named, signature=self._private.sign(named.signed))


@dataclass(frozen=True, slots=True)
class PublicKeys:
    """Whom a verifier believes: the key of today, and those of the past."""

    _by_id: Mapping[str, Ed25519PublicKey]

    @classmethod
    def of(cls, texts: Iterable[str]) -> Self:
        """The keys of 32 bytes in base64 each.

        Raises:
            ConfigurationError: One of them is no key.
        """
        raw = [_bytes_of(text, "a public key of the seal") for text in texts]
        return cls({_id_of(each): Ed25519PublicKey.from_public_bytes(each) for each in raw})

    def fault(self, statement: Checkpoint | RetainedStub) -> str | None:
        """What is wrong with the signature of a statement, or None."""
        key = self._by_id.get(statement.key_id)
        if key is None:
            return f"is signed by the key {statement.key_id!r}, which was not given"
        try:
            key.verify(statement.signature, statement.signed)
        except InvalidSignature:
            return f"is not what the key {statement.key_id} signed"
        return None


def new_key() -> str:
    """A private key made now, as `SealKey.of` reads it."""
    return base64.b64encode(Ed25519PrivateKey.generate().private_bytes_raw()).decode("ascii")


def _bytes_of(text: str, what: str) -> bytes:
    try:
        raw = base64.b64decode(text.strip(), validate=True)
    except (binascii.Error, ValueError):
        raw = b""
    if len(raw) != _KEY_BYTES:
        raise ConfigurationError(f"{what} is not {_KEY_BYTES} bytes in base64")
    return raw


def _id_of(public: bytes) -> str:
    return hashlib.sha256(public).hexdigest()[:_ID_LENGTH]
