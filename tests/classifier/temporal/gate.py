"""A way to PostgreSQL that can be closed: connections are refused, or answered by silence."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Literal, Self, TypeAlias

from sqlalchemy import make_url

State: TypeAlias = Literal["open", "refused", "hanging"]


class Gate:
    """A TCP proxy in front of a database."""

    def __init__(self, database_url: str) -> None:
        self._target = make_url(database_url)
        self._tasks: set[asyncio.Task[None]] = set()
        self._writers: set[asyncio.StreamWriter] = set()
        self._moving = asyncio.Event()
        self._moving.set()
        self._refuses = False
        self.knocked = asyncio.Event()

    @property
    def url(self) -> str:
        """The database through the gate."""
        port = self._server.sockets[0].getsockname()[1]
        changed = self._target.set(host="127.0.0.1", port=port, query={})
        return changed.render_as_string(hide_password=False)

    def become(self, state: State) -> None:
        """Lets pass, cuts what is open and refuses what comes, or holds everything still."""
        self.knocked.clear()
        self._refuses = state == "refused"
        if state == "hanging":
            self._moving.clear()
        else:
            self._moving.set()
        if self._refuses:
            for writer in self._writers:
                writer.transport.abort()

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        return self

    async def __aexit__(self, *exits: object) -> None:
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._server.wait_closed()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        self.knocked.set()
        try:
            if self._refuses:
                writer.transport.abort()
                return
            onward, away = await asyncio.open_connection(self._target.host, self._target.port)
            self._writers |= {writer, away}
            await asyncio.gather(self._move(reader, away), self._move(onward, writer))
        except (ConnectionError, asyncio.CancelledError):
            pass
        finally:
            self._tasks.discard(task)
            writer.close()

    async def _move(self, source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError):
            while data := await source.read(65_536):
                self.knocked.set()
                await self._moving.wait()
                target.write(data)
                await target.drain()
        target.close()
