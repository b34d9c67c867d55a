"""The command in a process of its own that has its imports already: they take it two seconds of CPU.

A server, which holds nothing but imported modules, forks one process for each command. `started` in
`tests.processes` starts the interpreter anew, as people do.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import sys
import tempfile
from collections.abc import Mapping, Sequence
from multiprocessing.context import ForkServerProcess
from pathlib import Path

from cli import main
from tests.tree import ROOT

_FORKING = multiprocessing.get_context("forkserver")
_FORKING.set_forkserver_preload(
    [
        "commands.look",
        "commands.maintain",
        "commands.reviews",
        "commands.triage_file",
        "pytest",
        "tests.forked",
        "worker",
    ]
)
_STREAMS = (("given", os.O_RDONLY), ("output", os.O_WRONLY), ("errors", os.O_WRONLY))


async def run_forked(
    program: str, arguments: Sequence[str], environ: Mapping[str, str], given: bytes, patience: float
) -> tuple[int, str, str]:
    """Exit code, standard output and standard error of `program` with these arguments."""
    with tempfile.TemporaryDirectory(prefix="classifier-run-") as name:
        folder = Path(name)
        for stream, _ in _STREAMS:
            (folder / stream).write_bytes(given if stream == "given" else b"")
        process = _FORKING.Process(target=_command, args=(program, arguments, dict(environ), folder))
        await asyncio.to_thread(process.start)
        try:
            code = await _ended(process, patience)
        finally:
            process.kill()
            process.join()
            process.close()
        return code, (folder / "output").read_text("utf-8"), (folder / "errors").read_text("utf-8")


async def _ended(process: ForkServerProcess, patience: float) -> int:
    ended = asyncio.Event()
    loop = asyncio.get_running_loop()
    loop.add_reader(process.sentinel, ended.set)
    try:
        async with asyncio.timeout(patience):
            await ended.wait()
    finally:
        loop.remove_reader(process.sentinel)
    process.join()
    assert process.exitcode is not None
    return process.exitcode


def _command(program: str, arguments: Sequence[str], environ: Mapping[str, str], folder: Path) -> None:
    for number, (stream, flags) in enumerate(_STREAMS):
        os.dup2(os.open(folder / stream, flags), number)
    os.chdir(ROOT)
    os.environ.clear()
    os.environ.update(environ)
    sys.argv = [program, *arguments]
    main()
