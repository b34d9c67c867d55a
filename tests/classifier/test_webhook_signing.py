"""What we sign is what the scheme's own authors take, under each secret, and nothing else is."""

from __future__ import annotations

import base64
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st
from standardwebhooks import Webhook as StandardWebhook
from standardwebhooks import WebhookVerificationError

from classifier.errors import ConfigurationError
from classifier.webhook_signing import secrets_in, signatures

SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
OLD_SECRET = "whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD"
keys = st.uuids().map(str)
secrets = st.binary(min_size=24, max_size=64).map(lambda raw: f"whsec_{base64.b64encode(raw).decode()}")


@given(keys, st.text(max_size=50), st.lists(secrets, min_size=1, max_size=3))
def test_whoever_has_one_of_the_secrets_can_verify_it(key: str, body: str, given: list[str]) -> None:
    found = signatures(secrets_in("S", " ".join(given)), key, int(time.time()), body.encode())
    for secret in given:
        StandardWebhook(secret).verify(body.encode(), found, json_parse=False)


@given(st.text(min_size=1, max_size=50))
def test_nobody_takes_another_body_another_id_or_another_secret(body: str) -> None:
    content = body.encode()
    found = signatures(secrets_in("S", SECRET), "k", int(time.time()), content)
    for secret, headers, sent in (
        (SECRET, found, content + b"x"),
        (SECRET, {**found, "webhook-id": "l"}, content),
        (OLD_SECRET, found, content),
    ):
        with pytest.raises(WebhookVerificationError):
            StandardWebhook(secret).verify(sent, headers, json_parse=False)


@pytest.mark.parametrize("text", [None, "", " , ", "whsec_short", f"{SECRET} whsec_not*base64*at*all"])
def test_a_secret_that_cannot_be_one_is_refused_by_its_variable_and_not_repeated(text: str | None) -> None:
    with pytest.raises(ConfigurationError, match="HOOK_SECRET") as refused:
        secrets_in("HOOK_SECRET", text)
    assert "whsec_not" not in str(refused.value)
    assert "short" not in str(refused.value)
