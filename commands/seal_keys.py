"""Which keys sign and verify seals, by what the settings say."""

from __future__ import annotations

from classifier.audit.signing import PublicKeys, SealKey, new_key
from classifier.errors import ConfigurationError
from worker import Settings, secret_in


def seal_key(settings: Settings) -> SealKey:
    """The key that signs seals: given, or made once and kept in the state folder of an embedded database.

    Raises:
        ConfigurationError: It cannot be read, or a given database comes without one.
    """
    given = settings.seal_key
    if given is None and settings.embeds_database:
        given = secret_in(settings.home / "seal.key", new_key)
    if given is None:
        raise ConfigurationError(
            "CLASSIFIER_SEAL_KEY is not set; a given DATABASE_URL needs it: 32 random bytes in base64"
        )
    return SealKey.of(given)


def public_keys(settings: Settings) -> PublicKeys:
    """The keys whose seals count: the public half of the seal's own, where it is at hand, and the given ones.

    Raises:
        ConfigurationError: One cannot be read, or there is none at all.
    """
    own = settings.seal_key is not None or (settings.embeds_database and not settings.seal_public_keys)
    texts = [*settings.seal_public_keys, *([seal_key(settings).public] if own else [])]
    if not texts:
        raise ConfigurationError(
            "CLASSIFIER_SEAL_PUBLIC_KEYS is not set; a given DATABASE_URL needs it to verify: "
            "the public keys that `classifier history seal` prints"
        )
    return PublicKeys.of(texts)
