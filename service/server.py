"""Runs the application on a port until it is told to stop; what is under way is finished first."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncGenerator, Generator

import uvicorn
from starlette.types import ASGIApp

from classifier.errors import ConfigurationError

GRACE = 20
"""Seconds that requests in flight have after the signal to stop."""
KEEP_ALIVE = 65
"""Longer than the idle time of common load balancers, so that they close first."""


class _Server(uvicorn.Server):
    """Leaves signals to the command, which has more to stop than this."""

    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None]:
        """Captures none."""
        yield


@contextlib.asynccontextmanager
async def serving(app: ASGIApp, *, host: str, port: int) -> AsyncGenerator[str]:
    """Serves while the block lasts, and gives its address.

    Args:
        app: What answers.
        host: The interface to listen on.
        port: Zero takes a free one.

    Raises:
        ConfigurationError: The port cannot be had.
    """
    listening = _listen(host, port)
    config = uvicorn.Config(
        app,
        log_config=None,
        access_log=False,
        server_header=False,
        lifespan="on",
        timeout_graceful_shutdown=GRACE,
        timeout_keep_alive=KEEP_ALIVE,
    )
    server = _Server(config)
    running = asyncio.create_task(server.serve([listening]))
    try:
        yield f"http://{_bracketed(host)}:{listening.getsockname()[1]}"
    finally:
        server.should_exit = True
        await running


def _listen(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listening = socket.socket(family, socket.SOCK_STREAM)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listening.bind((host, port))
        listening.listen(1024)
    except OSError as error:
        listening.close()
        raise ConfigurationError(f"cannot listen on {host} port {port}: {error.strerror}") from None
    return listening


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host
