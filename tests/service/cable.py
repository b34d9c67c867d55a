"""A cable to a server on this machine that can be cut and mended."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator


class Cable:
    """Forwards connections while it is whole."""

    def __init__(self, host: str, port: int) -> None:
        self._to = host, port
        self._ends: set[asyncio.StreamWriter] = set()
        self._whole = True

    @property
    def address(self) -> str:
        """Where it begins."""
        return f"127.0.0.1:{self._server.sockets[0].getsockname()[1]}"

    def cut(self) -> None:
        """Drops what goes through, and lets nothing more through."""
        self._whole = False
        for end in self._ends:
            end.close()

    def mend(self) -> None:
        """As new."""
        self._whole = True

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if not self._whole:
            writer.close()
            return
        far_reader, far_writer = await asyncio.open_connection(*self._to)
        self._ends |= {writer, far_writer}
        await asyncio.gather(_pump(reader, far_writer), _pump(far_reader, writer))
        self._ends -= {writer, far_writer}

    @contextlib.asynccontextmanager
    async def laid(self) -> AsyncGenerator[Cable]:
        """Listens meanwhile."""
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        try:
            yield self
        finally:
            self._server.close()
            self.cut()
            await self._server.wait_closed()


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(ConnectionError):
        while chunk := await reader.read(65_536):
            writer.write(chunk)
            await writer.drain()
    writer.close()
