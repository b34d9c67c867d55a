"""Reads what a request carries, no more of it than is taken."""

from __future__ import annotations

import asyncio

from starlette.requests import Request

from service.problems import too_large, too_slow

BODY_WITHIN = 20.0
THROWN_AWAY = 4_000_000


async def body_of(request: Request, limit: int) -> bytes:
    """The body as it came, no more of it than the limit.

    A little more is read and thrown away, since who is hung up on while sending never sees the answer.

    Raises:
        Problem: 413 or 408.
    """
    announced = request.headers.get("content-length", "0")
    if announced.isdecimal() and int(announced) > limit + THROWN_AWAY:
        raise too_large(limit)
    body, size = bytearray(), 0
    try:
        async with asyncio.timeout(BODY_WITHIN):
            async for chunk in request.stream():
                size += len(chunk)
                if size <= limit:
                    body += chunk
                elif size > limit + THROWN_AWAY:
                    break
    except TimeoutError:
        raise too_slow(BODY_WITHIN) from None
    if size > limit:
        raise too_large(limit)
    return bytes(body)


def token_of(request: Request) -> str | None:
    """The bearer token that came with it."""
    scheme, _, token = request.headers.get("authorization", "").partition(" ")
    return token.strip() if scheme.lower() == "bearer" else None


def headers_of(request: Request) -> list[tuple[str, str]]:
    """The headers as they came, names in small letters."""
    return [(name.lower(), value) for name, value in request.headers.items()]
