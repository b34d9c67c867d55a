"""What people read of a run: the plan before it, a line for each invariant after it."""

from __future__ import annotations

from rich.console import Console

from tests.chaos.bout import Settings
from tests.chaos.checker import Finding
from tests.chaos.run import Outcome

SHOWN = 10


def print_plan(settings: Settings) -> None:
    """Everything that will go wrong, and how to have it go wrong again."""
    only = ",".join(settings.only)
    print(
        f"{settings.events} events and {settings.turns} turns in {settings.seconds:.0f} s; again with: "
        f"python -m tests.chaos --seed {settings.seed} --seconds {settings.seconds:.0f} "
        f"--events {settings.events} --turns {settings.turns} --workers {settings.workers} --only {only}"
    )
    for fault in settings.plan:
        print(fault)
    print(flush=True)


def print_outcome(outcome: Outcome) -> None:
    """Figures, then invariants, then what is broken."""
    console = Console(width=120, highlight=False)
    for name, figure in outcome.figures.items():
        console.print(f"{name:>24}  {figure}", markup=False)
    console.print()
    for finding in outcome.findings:
        console.print(line_of(finding), markup=False)
    print(f"\n{'sound' if outcome.sound else 'BROKEN'}", flush=True)


def line_of(finding: Finding) -> str:
    """An invariant in a line, and the first of its breaches below."""
    count = len(finding.breaches)
    verdict = f"BROKEN {count:4}" if count else "holds"
    shown = "".join(f"\n             {breach}" for breach in finding.breaches[:SHOWN])
    more = f"\n             and {count - SHOWN} more" if count > SHOWN else ""
    return f"{verdict:11}  {finding.name} ({finding.checked} checked){shown}{more}"
