"""Encryption of everything that Temporal stores: arguments, results, memos, heartbeats and failures.

    converter = encrypted(keys=CodecKeys.parse("2026-11:…,2026-05:…"))
    Client.connect(…, data_converter=converter)         the client, and every worker made from it
    Replayer(…, data_converter=converter)               the replay of a saved history

One factory for all of them, since one client without it writes plain text. AES-256-GCM; each payload says
which key it was encrypted with, the first key encrypts and every key decrypts. What cannot be decrypted is an
error that names the key, and never passed through. Ids, types, headers and search attributes stay readable:
Temporal works with them.
"""

from __future__ import annotations

import base64
import binascii
import re
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal, TypeAlias, get_args

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from google.protobuf.message import DecodeError
from temporalio.api.common.v1 import Payload
from temporalio.converter import (
    DataConverter,
    DefaultFailureConverter,
    DefaultFailureConverterWithEncodedAttributes,
    PayloadCodec,
)

from classifier.errors import ClassifierError, ConfigurationError

Plaintext: TypeAlias = Literal["refuse", "accept"]

ENCODING = b"binary/classifier-aes-256-gcm"
KEY_ID = "encryption-key-id"
_KEY_BYTES = 32
_NONCE_BYTES = 12
_ID = re.compile(r"[A-Za-z0-9._-]{1,64}", re.ASCII)


class CodecError(ClassifierError):
    """A payload cannot be read. Another worker may have the key, so trying again can help."""

    code = "CODEC"
    retryable = True


class CodecKeyMissing(CodecError):
    """A payload was encrypted with a key that is not among ours. `key_id` names it."""

    code = "CODEC_KEY_MISSING"

    def __init__(self, key_id: str, known: Sequence[str]) -> None:
        shown = key_id if _ID.fullmatch(key_id) else "(malformed)"
        super().__init__(
            f"a payload is encrypted with the key {shown!r}; known keys: {', '.join(known)}; "
            "give the missing one beside the others until no run needs it"
        )
        self.key_id = key_id


class PayloadTampered(CodecError):
    """A payload is not what was encrypted: changed, cut, or under a key of the same id but other bytes."""

    code = "CODEC_TAMPERED"


class PlaintextRefused(CodecError):
    """A payload is not encrypted, although it should be."""

    code = "CODEC_PLAINTEXT"


@dataclass(frozen=True, slots=True)
class CodecKeys:
    """Keys of 32 bytes by id, in order: the first encrypts, every one decrypts.

    Attributes:
        keys: The keys; an id is stored with each payload and is no secret.

    Raises:
        ConfigurationError: There is none, an id is malformed, or a key has another length.
    """

    keys: Mapping[str, bytes] = field(repr=False)

    def __post_init__(self) -> None:
        if not self.keys:
            raise ConfigurationError("encryption needs at least one key")
        for key_id, key in self.keys.items():
            if not _ID.fullmatch(key_id):
                raise ConfigurationError("the id of a codec key is 1 to 64 letters, digits, '.', '_' or '-'")
            if len(key) != _KEY_BYTES:
                raise ConfigurationError(
                    f"the codec key {key_id!r} has {len(key)} bytes; it needs {_KEY_BYTES}"
                )

    def __repr__(self) -> str:
        return f"CodecKeys({', '.join(self.ids)})"

    @property
    def ids(self) -> tuple[str, ...]:
        """Their ids; the first is the one that encrypts."""
        return tuple(self.keys)

    @classmethod
    def parse(cls, text: str) -> CodecKeys:
        """Reads `id:base64,id:base64`.

        Raises:
            ConfigurationError: It is malformed; the message shows no key.
        """
        keys: dict[str, bytes] = {}
        for number, entry in enumerate(text.split(","), start=1):
            key_id, separator, encoded = entry.strip().partition(":")
            if not separator:
                raise ConfigurationError(f"codec key {number} is not of the form id:base64")
            if key_id in keys:
                raise ConfigurationError(f"codec keys {[*keys].index(key_id) + 1} and {number} share an id")
            try:
                keys[key_id] = base64.b64decode(encoded, validate=True)
            except (binascii.Error, ValueError):
                raise ConfigurationError(f"codec key {number} is not base64 behind its id") from None
        return cls(keys)

    @classmethod
    def from_environ(cls, environ: Mapping[str, str]) -> CodecKeys | None:
        """The keys of `CLASSIFIER_CODEC_KEYS`, or None; errors as for `parse`."""
        given = environ.get("CLASSIFIER_CODEC_KEYS")
        try:
            return cls.parse(given) if given else None
        except ConfigurationError as error:
            raise ConfigurationError(f"CLASSIFIER_CODEC_KEYS: {error}") from None


class EncryptionCodec(PayloadCodec):
    """Encrypts whole payloads, their own metadata included.

    Args:
        keys: What to encrypt and decrypt with.
        plaintext: Whether payloads that are not encrypted are an error ("refuse") or read as they are
            ("accept"), for the time in which runs from before encryption go on.

    Raises:
        ConfigurationError: `plaintext` is neither.
    """

    def __init__(self, keys: CodecKeys, *, plaintext: Plaintext = "refuse") -> None:
        if plaintext not in get_args(Plaintext):
            raise ConfigurationError(f"plaintext is 'refuse' or 'accept', not {plaintext!r}")
        self._ciphers = {key_id: AESGCM(key) for key_id, key in keys.keys.items()}
        self._first = keys.ids[0]
        self._plaintext: Plaintext = plaintext

    def __repr__(self) -> str:
        return f"EncryptionCodec({', '.join(self._ciphers)})"

    async def encode(self, payloads: Sequence[Payload]) -> list[Payload]:
        """Each payload, encrypted with the first key."""
        return [self._encrypted(payload) for payload in payloads]

    async def decode(self, payloads: Sequence[Payload]) -> list[Payload]:
        """Each payload as it was.

        Raises:
            CodecKeyMissing: A key is not known.
            PayloadTampered: A payload is not what was encrypted.
            PlaintextRefused: A payload is not encrypted, and that is not accepted.
        """
        return [self._decrypted(payload) for payload in payloads]

    def _encrypted(self, payload: Payload) -> Payload:
        nonce = secrets.token_bytes(_NONCE_BYTES)
        sealed = self._ciphers[self._first].encrypt(nonce, payload.SerializeToString(), _bound(self._first))
        metadata = {"encoding": ENCODING, KEY_ID: self._first.encode("ascii")}
        return Payload(metadata=metadata, data=nonce + sealed)

    def _decrypted(self, payload: Payload) -> Payload:
        if payload.metadata.get("encoding") != ENCODING:
            if self._plaintext == "accept":
                return payload
            raise PlaintextRefused(
                "a payload is not encrypted: whoever wrote it lacks the codec's keys, or it is older than "
                "encryption; for the latter, accept plain text until such runs have ended"
            )
        key_id = payload.metadata.get(KEY_ID, b"").decode("ascii", errors="replace")
        cipher = self._ciphers.get(key_id)
        if cipher is None:
            raise CodecKeyMissing(key_id, list(self._ciphers))
        nonce, sealed = payload.data[:_NONCE_BYTES], payload.data[_NONCE_BYTES:]
        try:
            return Payload.FromString(cipher.decrypt(nonce, sealed, _bound(key_id)))
        except (InvalidTag, ValueError, DecodeError):
            raise PayloadTampered(
                f"a payload under the key {key_id!r} does not decrypt: it was changed, or the key is another"
            ) from None


def encrypted(
    converter: DataConverter = DataConverter.default, *, keys: CodecKeys, plaintext: Plaintext = "refuse"
) -> DataConverter:
    """The converter with encryption, for clients, workers and replayers alike.

    Args:
        converter: Your own, where you have one; how it converts values stays as it is.
        keys: What to encrypt and decrypt with.
        plaintext: As for `EncryptionCodec`.

    Raises:
        ConfigurationError: The converter has a codec already, or its failures would stay readable.
    """
    if converter.payload_codec is not None:
        raise ConfigurationError("the data converter has a codec already; encryption would take its place")
    failures = converter.failure_converter_class
    if failures is DefaultFailureConverter:
        failures = DefaultFailureConverterWithEncodedAttributes
    if not issubclass(failures, DefaultFailureConverterWithEncodedAttributes):
        raise ConfigurationError(
            f"failures would stay readable: derive {failures.__name__} from "
            f"{DefaultFailureConverterWithEncodedAttributes.__name__}"
        )
    codec = EncryptionCodec(keys, plaintext=plaintext)
    return replace(converter, payload_codec=codec, failure_converter_class=failures)


def plaintext_from(environ: Mapping[str, str]) -> Plaintext:
    """What `CLASSIFIER_CODEC_PLAINTEXT` says; "refuse" where it says nothing.

    Raises:
        ConfigurationError: It says something else.
    """
    match environ.get("CLASSIFIER_CODEC_PLAINTEXT") or "refuse":
        case "refuse" | "accept" as plaintext:
            return plaintext
        case other:
            raise ConfigurationError(f"CLASSIFIER_CODEC_PLAINTEXT is 'refuse' or 'accept', not {other!r}")


def _bound(key_id: str) -> bytes:
    """What is authenticated beside the payload: nobody can pass it off under another key or encoding."""
    return ENCODING + b"\n" + key_id.encode("ascii")
