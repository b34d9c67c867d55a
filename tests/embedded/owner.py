"""A process that owns a stack: `python -m tests.embedded.owner HOME`.

Prints one line of JSON, the addresses or the refusal, and stays until its standard input ends.
"""

from __future__ import annotations

import asyncio
import dataclasses
import json
import sys
from pathlib import Path

from embedded.errors import EmbeddedError
from embedded.stack import Stack


def say(**said: str | None) -> None:
    print(json.dumps(said), flush=True)


async def main(home: Path) -> None:
    async with Stack(home) as stack:
        say(**dataclasses.asdict(stack.addresses))
        ended = asyncio.Event()
        asyncio.get_running_loop().add_reader(sys.stdin, ended.set)
        await ended.wait()


if __name__ == "__main__":
    try:
        asyncio.run(main(Path(sys.argv[1])))
    except EmbeddedError as error:
        say(refusal=str(error))
        sys.exit(1)
    except KeyboardInterrupt:
        sys.exit(130)
