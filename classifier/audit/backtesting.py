"""Stored decisions, page by page, through a policy of today.

A page for policies that look at answers alone is one text, a line of JSON for each, which PostgreSQL makes:
taking rows apart would cost as much as judging them. Lines are read one by one, so that what is made of one
is gone before the next, and the garbage collector finds nothing to go through.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from classifier.answers import UnreadAnswers
from classifier.audit.escape import ESCAPE, decode
from classifier.audit.query import DecisionQuery, Position
from classifier.audit.reader import TenantReader
from classifier.audit.rows import decision_of
from classifier.audit.sql import FACTS, JOINED, in_order, last_of, newest
from classifier.audit.tables import decision_contents, decisions
from classifier.backtest import Backtest, BacktestReport, StoredAnswers, WantsMore, branch_text

_PAGE = 4000
_JSON = json.JSONDecoder()
_FACTS = decisions.c
_LOOKED_AT = (
    _FACTS.decision_id,
    _FACTS.outcome,
    _FACTS.branch_action,
    _FACTS.branch_route,
    _FACTS.phase,
    _FACTS.message_id,
    _FACTS.answers,
)
_SELECT_ANSWERS = sa.select(_FACTS.decided_at, *_LOOKED_AT).select_from(decisions)
_SELECT_WHOLE = sa.select(
    *FACTS,
    decision_contents.c.request_context,
    decision_contents.c.state.is_(None).label("gone"),
).select_from(JOINED)
"""All that a policy can look at; the text is not among it."""


@dataclass(frozen=True, slots=True)
class _Page:
    """Decisions, and how they are judged.

    Attributes:
        last: The place of the last of them.
        judge: Blocks; raises `WantsMore` where the page does not hold what the policy looks at.
    """

    last: Position
    judge: Callable[[Backtest], BacktestReport]


class Backtester(TenantReader):
    """Runs policies over the history, as `TenantReader` says, in memory that does not grow with it."""

    async def run(
        self,
        query: DecisionQuery,
        backtest: Backtest,
        *,
        progress: Callable[[int], None] = lambda _: None,
    ) -> BacktestReport:
        """What would become of the decisions that `query` asks for.

        The policy runs in a thread of its own; the database makes the next page meanwhile.

        Args:
            query: Which decisions.
            backtest: The policy.
            progress: Told how many more decisions are done.
        """
        report = BacktestReport()
        whole, place = False, cast("Position | None", None)
        following = asyncio.create_task(self._page(query, place, whole=whole))
        try:
            while (page := await following) is not None:
                following = asyncio.create_task(self._page(query, page.last, whole=whole))
                try:
                    found = await asyncio.to_thread(page.judge, backtest)
                except WantsMore:
                    whole = True
                    await following
                    following = asyncio.create_task(self._page(query, place, whole=whole))
                    continue
                place = page.last
                report.add(found)
                progress(found.decisions)
        finally:
            following.cancel()
            await asyncio.gather(following, return_exceptions=True)
        return report

    async def _page(self, query: DecisionQuery, last: Position | None, *, whole: bool) -> _Page | None:
        read = _whole_page if whole else _page_of_answers
        async with self._reading(query.tenant) as connection:
            return await read(connection, query, last)


async def _page_of_answers(
    connection: AsyncConnection, query: DecisionQuery, last: Position | None
) -> _Page | None:
    rows = newest(_SELECT_ANSWERS, query, _PAGE, last).subquery("rows")
    lines = sa.func.json_build_array(*(rows.c[column.name] for column in _LOOKED_AT))
    page = in_order(sa.func.string_agg, rows, sa.cast(lines, sa.Text), "\n")
    select: sa.Select[*tuple[Any, ...]] = sa.select(*last_of(rows), page)
    decided_at, decision_id, text = (await connection.execute(select)).one()
    if not text:
        return None
    return _Page(Position(decided_at, decision_id), lambda backtest: backtest.run(_stored(text)))


async def _whole_page(
    connection: AsyncConnection, query: DecisionQuery, last: Position | None
) -> _Page | None:
    select = newest(_SELECT_WHOLE, query, _PAGE, last)
    rows = cast("Sequence[Mapping[str, Any]]", (await connection.execute(select)).mappings().all())
    if not rows:
        return None
    gone = {row["decision_id"] for row in rows if row["gone"]}
    return _Page(
        Position(rows[-1]["decided_at"], rows[-1]["decision_id"]),
        lambda backtest: backtest.run_whole((decision_of(dict(row)) for row in rows), gone),
    )


def _stored(text: str) -> Iterable[StoredAnswers]:
    escaped = ESCAPE in text
    for line in _lines(text):
        decision_id, outcome, action, route, phase, message, answers = _decoded(line) if escaped else line
        yield StoredAnswers(
            decision_id,
            outcome if action is None else branch_text(action, route),
            phase,
            message,
            None if answers is None else UnreadAnswers(answers),
        )


def _decoded(line: list[Any]) -> list[Any]:
    return cast("list[Any]", decode(line))


def _lines(text: str) -> Iterator[list[Any]]:
    place, end = 0, len(text)
    while place < end:
        line, place = _JSON.raw_decode(text, place)
        place += 1
        yield line
