"""Checkpoints as JSON lines, for keeping them outside the database. Pure."""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Mapping
from datetime import datetime
from typing import Any, cast

from classifier.audit.chain import Checkpoint, Place, checkpoint_body
from classifier.audit.escape import unescape
from classifier.errors import ConfigurationError


def checkpoint_to_json(checkpoint: Checkpoint) -> dict[str, str | int | None]:
    """What is signed, and the signature."""
    signature = base64.b64encode(checkpoint.signature).decode("ascii")
    return {**checkpoint_body(checkpoint), "signature": signature}


def checkpoint_of_json(body: Mapping[str, Any]) -> Checkpoint:
    """What `checkpoint_to_json` was given.

    Raises:
        ConfigurationError: It is no checkpoint.
    """
    try:
        previous = body["previous"]
        return Checkpoint(
            tenant=unescape(str(body["tenant"])),
            number=int(body["number"]),
            leaves=int(body["leaves"]),
            place=Place(int(body["transaction_id"]), int(body["arrival"])),
            chain_hash=bytes.fromhex(body["chain_hash"]),
            previous=None if previous is None else bytes.fromhex(previous),
            sealed_at=datetime.fromisoformat(body["sealed_at"]),
            key_id=str(body["key_id"]).encode("ascii").decode("ascii"),
            signature=base64.b64decode(body["signature"], validate=True),
        )
    except (KeyError, TypeError, ValueError, binascii.Error) as error:
        raise ConfigurationError(f"this is no checkpoint ({type(error).__name__})") from None


def checkpoint_to_line(checkpoint: Checkpoint) -> str:
    """One line of JSON, with its end."""
    return json.dumps(checkpoint_to_json(checkpoint), ensure_ascii=True, allow_nan=False) + "\n"


def checkpoint_of_line(line: str) -> Checkpoint:
    """The checkpoint of a line of JSON.

    Raises:
        ConfigurationError: It is none.
    """
    try:
        body: Any = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise ConfigurationError(f"this is no JSON ({type(error).__name__})") from None
    if not isinstance(body, dict):
        raise ConfigurationError("this is no checkpoint (not an object)")
    return checkpoint_of_json(cast("Mapping[str, Any]", body))
