"""The product under fire.

    python -m tests.chaos [--seconds 300] [--events 2000] [--turns 50] [--seed N] [--only worker,database]
                          [--workers 2] [--json FILE]

The plan is printed before the run: the same seed, seconds, workers and kinds give the same one again. Exits
with 1 where an invariant is broken.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import sys
from dataclasses import asdict
from pathlib import Path
from typing import cast

from tests.chaos.arena import arena
from tests.chaos.bout import Settings
from tests.chaos.plan import KINDS, Kind
from tests.chaos.report import print_outcome, print_plan
from tests.chaos.run import Outcome, run


async def fight(settings: Settings) -> Outcome:
    """A run on servers of its own."""
    async with arena() as servers:
        return await run(servers, settings)


def main() -> int:
    """Plays, checks and tells; the exit code."""
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    arguments.add_argument("--seconds", type=float, default=300.0, help="of traffic and faults")
    arguments.add_argument("--events", type=int, default=2000)
    arguments.add_argument("--turns", type=int, default=50, help="of agents")
    arguments.add_argument("--seed", type=int, default=None, help="default: a new one, which is printed")
    arguments.add_argument("--workers", type=int, default=2)
    arguments.add_argument("--only", default=",".join(KINDS), help="kinds of faults, comma between")
    arguments.add_argument("--json", type=Path, help="write figures and findings to this file")
    given = arguments.parse_args()
    unknown = set(given.only.split(",")) - set(KINDS)
    if unknown:
        arguments.error(f"--only knows {', '.join(KINDS)}, not {', '.join(sorted(unknown))}")
    settings = Settings(
        seed=random.randrange(1, 1_000_000) if given.seed is None else given.seed,
        seconds=given.seconds,
        events=given.events,
        turns=given.turns,
        workers=given.workers,
        only=tuple(cast("Kind", kind) for kind in given.only.split(",")),
    )
    print_plan(settings)
    outcome = asyncio.run(fight(settings))
    print_outcome(outcome)
    if given.json is not None:
        findings = [asdict(finding) for finding in outcome.findings]
        whole = {"seed": settings.seed, "figures": outcome.figures, "findings": findings}
        given.json.write_text(json.dumps(whole, indent=2), encoding="utf-8")
    return 0 if outcome.sound else 1


if __name__ == "__main__":
    sys.exit(main())
