"""Who signed a delivery, and when, over the bytes as they came. Pure.

Nothing is parsed before a signature fits. Several secrets are good at the same time, so that they can be
changed without a gap.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from standardwebhooks import Webhook as StandardWebhook
from standardwebhooks import WebhookVerificationError
from standardwebhooks.webhooks import EmptyWebhookSecretError

GITHUB_SIGNATURE = "x-hub-signature-256"
_GITHUB_PREFIX = "sha256="


class Scheme(Protocol):
    """A way to sign."""

    name: str

    def is_signed(self, body: bytes, headers: Mapping[str, str]) -> bool:
        """Whether one of the secrets signed this body, lately where the scheme says when."""
        ...


class StandardWebhooks:
    """The Standard Webhooks scheme: id, time and body are signed; good for five minutes.

    Args:
        secrets: Base64, mostly with `whsec_` before it.

    Raises:
        ValueError: One of them is not.
    """

    name = "standard"

    def __init__(self, secrets: Sequence[str]) -> None:
        try:
            self._verifiers = [StandardWebhook(secret) for secret in secrets]
        except EmptyWebhookSecretError as error:
            raise ValueError("an empty secret") from error

    def is_signed(self, body: bytes, headers: Mapping[str, str]) -> bool:
        """Whether one of the secrets signed id, time and body, within five minutes of now."""
        given = dict(headers)
        return any(_fits(verifier, body, given) for verifier in self._verifiers)


class GitHub:
    """GitHub's scheme: the body alone is signed, so nothing else of a delivery can be trusted.

    Args:
        secrets: As they were typed into the webhook's form.
    """

    name = "github"

    def __init__(self, secrets: Sequence[str]) -> None:
        self._keys = [secret.encode("utf-8", "surrogateescape") for secret in secrets]

    def is_signed(self, body: bytes, headers: Mapping[str, str]) -> bool:
        """Whether one of the secrets signed the body."""
        given = headers.get(GITHUB_SIGNATURE, "").encode("utf-8", "replace")
        expected = [
            (_GITHUB_PREFIX + hmac.new(key, body, hashlib.sha256).hexdigest()).encode() for key in self._keys
        ]
        return any(hmac.compare_digest(one, given) for one in expected)


SCHEMES: Mapping[str, Callable[[Sequence[str]], Scheme]] = {
    StandardWebhooks.name: StandardWebhooks,
    GitHub.name: GitHub,
}


def _fits(verifier: StandardWebhook, body: bytes, headers: dict[str, str]) -> bool:
    try:
        verifier.verify(body, headers, json_parse=False)
    except (WebhookVerificationError, ValueError):  # ValueError: a signature or a body that is no such thing
        return False
    return True
