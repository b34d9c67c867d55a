"""`classifier history stats --shadow`: what runs beside a playbook against what counts."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict

from rich.console import Console

from classifier.audit.query import DecisionQuery
from classifier.audit.shadowing import Cell, Comparison, Pair, Shadows, Side
from classifier.values import JSON
from commands.look import bounds_of
from commands.show import print_json, say, table
from worker import Settings, opened


async def compare(settings: Settings, query: DecisionQuery, *, as_json: bool) -> None:
    """Prints how often each shadow agrees, where it differs, and what both took.

    Raises:
        ConfigurationError: The query asks for another mode than what is live.
    """
    async with opened(settings, temporal=False) as service, Shadows(service.database_url) as shadows:
        found = await shadows.compare(query)
    if as_json:
        made: list[JSON] = [_as_json(one) for one in found]
        print_json({"tenant": query.tenant, **bounds_of(query), "shadows": made})
        return
    console = Console()
    if not found:
        say(console, f"tenant {query.tenant} has no decisions with a shadow; see Playbook(shadow=...)")
        return
    for one in found:
        _print(console, one)


_SIDES = (
    "",
    "policy",
    "classifier",
    "#to a person",
    "#failed",
    "#p50 ms",
    "#p95 ms",
    "#tokens",
    "#US dollars",
)
_CELLS = ("live", "shadow", "#decisions", "", "=such as")


def _print(console: Console, one: Comparison) -> None:
    pair = one.pair
    title = f"Playbook {pair.playbook}: {one.count} decisions with a shadow, {_agreement(one)}"
    rows = [
        _side("live", pair.policy_version, pair.classifier, one.live, one.count),
        _side("shadow", pair.shadow_version, pair.shadow_classifier, one.shadow, one.count),
    ]
    console.print(table(title, _SIDES, rows))
    console.print(table("What became, and what would have", _CELLS, list(_cells(one.cells))))


def _agreement(one: Comparison) -> str:
    return "none comparable" if one.agreement is None else f"{one.agreement:.1%} agree"


def _side(name: str, version: str | None, classifier: str, side: Side, count: int) -> tuple[str, ...]:
    return (
        name,
        version or "",
        classifier,
        f"{side.reviews / count:.1%}",
        str(side.failed),
        *("" if value is None else f"{value:.0f}" for value in (side.p50_ms, side.p95_ms)),
        str(side.input_tokens + side.output_tokens),
        "unknown" if side.cost is None else f"{side.cost:.4f}",
    )


def _cells(cells: Sequence[Cell]) -> Iterable[tuple[str, ...]]:
    for cell in cells:
        mark = "" if cell.live == cell.shadow else "differs"
        yield cell.live, cell.shadow, str(cell.count), mark, str(cell.examples[0]) if cell.examples else ""


def _as_json(one: Comparison) -> dict[str, JSON]:
    return {
        **_pair_json(one.pair),
        "decisions": one.count,
        "compared": one.compared,
        "agreement": one.agreement,
        "changes": [
            {
                "live": cell.live,
                "shadow": cell.shadow,
                "count": cell.count,
                "examples": [str(each) for each in cell.examples],
            }
            for cell in one.cells
        ],
        "live": _side_json(one.live, one.count),
        "shadow": _side_json(one.shadow, one.count),
    }


def _pair_json(pair: Pair) -> dict[str, JSON]:
    return dict(asdict(pair))


def _side_json(side: Side, count: int) -> dict[str, JSON]:
    return {**asdict(side), "review_rate": side.reviews / count}
