"""Signatures of what we send, as Standard Webhooks has them: id, time and body, under each secret. Pure.

While a secret is changed the variable holds both, and a delivery carries a signature of each.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import re
from collections.abc import Sequence

from classifier.errors import ConfigurationError

SHORTEST_SECRET = 16
PREFIX = "whsec_"
_SEPARATOR = re.compile(r"[\s,]+")


def secrets_in(variable: str, text: str | None) -> tuple[bytes, ...]:
    """The secrets in the value of a variable, in their order: base64, mostly with `whsec_` before it.

    Raises:
        ConfigurationError: There is none, or one is malformed; names the variable, repeats no secret.
    """
    given = [part for part in _SEPARATOR.split(text or "") if part]
    if not given:
        raise ConfigurationError(f"{variable} is not set; a webhook signs with the secret in it")
    return tuple(_secret(variable, part) for part in given)


def signatures(secrets: Sequence[bytes], key: str, moment: int, body: bytes) -> dict[str, str]:
    """The headers that sign a body.

    Args:
        secrets: One, or several while they change.
        key: The id of the message: what its receiver knows a repeat by.
        moment: Seconds since 1970; receivers mostly refuse what is more than five minutes off.
        body: As it is sent.
    """
    signed = f"{key}.{moment}.".encode() + body
    found = [base64.b64encode(hmac.digest(secret, signed, hashlib.sha256)).decode() for secret in secrets]
    return {
        "webhook-id": key,
        "webhook-timestamp": str(moment),
        "webhook-signature": " ".join(f"v1,{one}" for one in found),
    }


def _secret(variable: str, text: str) -> bytes:
    if len(text) < SHORTEST_SECRET:
        raise ConfigurationError(f"{variable}: a secret has at least {SHORTEST_SECRET} characters")
    try:
        return base64.b64decode(text.removeprefix(PREFIX), validate=True)
    except (binascii.Error, ValueError):
        raise ConfigurationError(f"{variable}: a secret is base64, mostly with {PREFIX} before it") from None
