"""A process that is started again whenever it ends, as a system would do it, with its output in a file."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import AsyncGenerator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tests.processes import until
from tests.tree import ROOT

PAUSE = 0.5
"""Seconds before it is started again, where nobody says how long it stays away."""
GRACE = 30.0


@dataclass
class Supervised:
    """One process after another under the same name.

    Attributes:
        name: Of it, and of its log.
        command: What is run.
        environ: All of its environment.
        log: Where all of them write to.
        starts: How often it was started.
        alone: The exit codes with which it ended although nobody had made it.
    """

    name: str
    command: Sequence[str]
    environ: Mapping[str, str]
    log: Path
    starts: int = 0
    alone: list[int] = field(default_factory=list[int])
    _process: asyncio.subprocess.Process | None = None
    _hit: bool = False
    _away: float = PAUSE

    @property
    def pid(self) -> int | None:
        """The process that runs now."""
        return None if self._process is None or self._process.returncode is not None else self._process.pid

    def killed(self, away: float) -> None:
        """SIGKILL: no chance to tidy up; it is back after so many seconds."""
        pid = self.pid
        self._away = away
        if pid is not None:
            self._hit = True
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    async def said(self, text: str) -> None:
        """Returns when the log holds this."""
        await until(lambda: text in self.log.read_text("utf-8", "replace") or bool(self.alone))
        assert not self.alone, (
            f"{self.name} ended by itself: {self.log.read_text('utf-8', 'replace')[-2000:]}"
        )

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncGenerator[Supervised]:
        """Runs meanwhile; then it is told to stop, and killed where it does not listen."""
        self.log.touch()
        keeping = asyncio.create_task(self._keep())
        try:
            yield self
        finally:
            keeping.cancel()
            await asyncio.wait({keeping})
            await self._stop()

    async def _keep(self) -> None:
        while True:
            self._hit = False
            with self.log.open("ab") as log:
                self._process = await asyncio.create_subprocess_exec(
                    *self.command,
                    cwd=ROOT,
                    env=dict(self.environ),
                    stdin=asyncio.subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    start_new_session=True,
                )
            self.starts += 1
            code = await self._process.wait()
            if not self._hit:
                self.alone.append(code)
            away, self._away = self._away, PAUSE
            await asyncio.sleep(away)

    async def _stop(self) -> None:
        process = self._process
        if process is None:
            return
        for each in (signal.SIGTERM, signal.SIGKILL):
            if process.returncode is None:
                with contextlib.suppress(ProcessLookupError):
                    process.send_signal(each)
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(process.wait(), GRACE)
