"""Which certificates count for everything that is called over HTTPS."""

from __future__ import annotations

import ssl
from functools import cache

import httpx


@cache
def trusted() -> ssl.SSLContext:
    """What `SSL_CERT_FILE` or `SSL_CERT_DIR` name, or else what comes with certifi.

    One for all: reading the certificates takes 50 ms, longer than many calls.
    """
    return httpx.create_ssl_context()
