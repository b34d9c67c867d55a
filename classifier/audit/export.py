"""The history as a file: PostgreSQL writes each page of decisions as one text, and the pages stream out.

Making a `Decision` of every row would cost several times what the whole export may, and even taking rows
apart costs more than the rest. So the select spells the lines and joins them; what is left to do here is to
undo what `classifier.audit.escape` did, on whole pages and only where it did something.

JSON has no numbers that are not finite: those are texts here, "NaN", "Infinity" and "-Infinity".
"""

from __future__ import annotations

import asyncio
import functools
import math
import re
from collections.abc import AsyncGenerator, Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any, Literal, TypeAlias, cast

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import JSONB
from sqlalchemy.dialects.postgresql.asyncpg import PGDialect_asyncpg

from classifier.audit.escape import ESCAPE
from classifier.audit.query import DecisionQuery, Position
from classifier.audit.reader import TenantReader
from classifier.audit.sql import CONTENTS, FACTS, JOINED, conditions, in_order, last_of, newest
from classifier.audit.tables import decision_contents, decisions
from classifier.decision_json import LISTS, OBJECTS, PLAIN
from classifier.errors import StoreError, StoreUnavailable
from classifier.values import JSON

Form: TypeAlias = Literal["jsonl", "csv", "flat"]
"""JSON lines as `decision_to_json` has them, CSV, or JSON lines without nesting."""

_Part: TypeAlias = str | sa.ColumnElement[str]
"""Of a line: what is in all of them, or what is of each."""

_FIRST_PAGE = 250
_LARGEST_PAGE = 5000
_CHARACTERS_AT_ONCE = 16_000_000
_TOO_LARGE = 16
"""By what a page is divided that PostgreSQL refuses, since it makes no text of more than a gigabyte."""

_FACTS = decisions.c
_CONTENTS = decision_contents.c
FLAT: Mapping[str, sa.Column[Any]] = {
    **{
        column.name: column
        for column in FACTS
        if column.name not in {"transaction_id", "arrival", "state_hash", "state_length"}
    },
    **{column.name: column for column in CONTENTS},
}
"""The columns of the forms without nesting; JSON values are texts in them."""

_OF_CONTENTS: Mapping[str, sa.ColumnElement[Any]] = {
    "state": sa.case(
        (_CONTENTS.state_is_json, _CONTENTS.state),
        else_=sa.cast(sa.func.to_json(sa.func.coalesce(_CONTENTS.state, "")), sa.Text),
    ),
    "request_context": sa.func.coalesce(
        _CONTENTS.request_context, sa.literal_column("CAST('{}' AS jsonb)", JSONB)
    ),
    "original": _CONTENTS.original,
}
_STRUCTURE: Mapping[str, Any] = {
    "decision_id": _FACTS.decision_id,
    "decided_at": _FACTS.decided_at,
    "coordinates": {
        name: _FACTS[name] for name in ("tenant", "namespace", "workflow_id", "run_id", "activity_id")
    },
    "ids": {
        "thread": _FACTS.thread_id,
        "resource": _CONTENTS.resource_id,
        "message": _FACTS.message_id,
        "trace": _FACTS.trace_id,
        "span": _FACTS.span_id,
    },
    "usage": {name: _FACTS[name] for name in ("input_tokens", "output_tokens", "cost")},
    "answers": _FACTS.answers,
    "failure": (
        _FACTS.failure_code,
        {"code": _FACTS.failure_code, "message": sa.func.coalesce(_FACTS.failure_message, "")},
    ),
    "tripwire": (
        _FACTS.tripwire_reason,
        {"reason": _FACTS.tripwire_reason, "metadata": _FACTS.tripwire_metadata},
    ),
    "branch": (
        _FACTS.branch_action,
        {"action": _FACTS.branch_action, "route": _FACTS.branch_route, "reasons": _FACTS.branch_reasons},
    ),
    "truncation": (
        _FACTS.truncated_from,
        {"original": _FACTS.truncated_from, "sent": _FACTS.truncated_to, "by": _FACTS.truncated_by},
    ),
    **{
        name: _OF_CONTENTS[name] if name in _OF_CONTENTS else _FACTS[name]
        for name in (*PLAIN, *OBJECTS, *LISTS)
    },
}
"""`decision_to_json` as columns; a pair is what is NULL where the part is absent, and the part."""

_ALREADY_JSON = frozenset({"state"})
_NAMES = {
    column.name: column
    for column in (*FACTS, _CONTENTS.resource_id)
    if isinstance(column.type, sa.String) and column.name not in {"failure_message", "tripwire_reason"}
}
"""Texts that nearly never hold anything that JSON has to escape."""
_FLOAT = re.compile(r'\{("|""|\\")␛float\1: ?\1([^"\\]+)\1\}')
_ESCAPED = re.compile(f"{ESCAPE}([0-9a-f]{{4}})")
_FORMULA = "=+-@\t\r"
"""What a cell may not begin with, since a spreadsheet would run it."""
_LINE_ENDS = "\x85\u2028\u2029"
"""What some readers of lines take for the end of one."""
_REPLACEMENT = "\N{REPLACEMENT CHARACTER}"


@dataclass(frozen=True, slots=True)
class ExportPage:
    """A part of an export.

    Attributes:
        text: Whole lines, each with its end.
        count: How many decisions are in them.
    """

    text: str
    count: int


class Exporter(TenantReader):
    """Streams decisions as text, as `TenantReader` says, in memory that does not grow with their number."""

    async def pages(self, query: DecisionQuery, form: Form) -> AsyncGenerator[ExportPage]:
        """The decisions that `query` asks for, newest first, each once that was there at the beginning.

        The database makes the next page while the caller deals with this one.
        """
        following = asyncio.create_task(self._page(query, form, _FIRST_PAGE, None))
        try:
            while (page := await following) is not None:
                size = _next_size(page.size, len(page.text)) if page.count == page.size else 0
                following = asyncio.create_task(self._page(query, form, size, page.last))
                await asyncio.sleep(0)  # lets the question for the next page leave first
                yield ExportPage(unescaped(page.text, form) + "\n", page.count)
        finally:
            following.cancel()
            await asyncio.gather(following, return_exceptions=True)

    async def count(self, query: DecisionQuery) -> int:
        """How many decisions `query` asks for; as slow as reading them."""
        select = sa.select(sa.func.count()).select_from(decisions).where(*conditions(query))
        async with self._reading(query.tenant) as connection:
            return (await connection.execute(select)).scalar_one()

    async def _page(self, query: DecisionQuery, form: Form, size: int, last: Position | None) -> _Page | None:
        if size == 0:
            return None
        try:
            async with self._reading(query.tenant) as connection:
                row = (await connection.execute(select_page(query, form, size, last))).one()
        except StoreError as error:
            if isinstance(error, StoreUnavailable) or size == 1:
                raise
            return await self._page(query, form, max(1, size // _TOO_LARGE), last)
        decided_at, decision_id, text, count = row
        return None if text is None else _Page(Position(decided_at, decision_id), text, count, size)


@dataclass(frozen=True, slots=True)
class _Page:
    """The lines of some decisions, their number, the place of the last, and how many were asked for."""

    last: Position
    text: str
    count: int
    size: int


def _next_size(size: int, characters: int) -> int:
    """How many decisions may come at once, so that long texts do not fill the memory."""
    fitting = size * _CHARACTERS_AT_ONCE // characters
    return max(1, min(fitting, 4 * size, _LARGEST_PAGE))


def header(form: Form) -> str:
    """What comes before the lines."""
    return ",".join(FLAT) + "\n" if form == "csv" else ""


def select_page(
    query: DecisionQuery, form: Form, limit: int, position: Position | None = None
) -> sa.Select[*tuple[Any, ...]]:
    """One row: time and id of the last of these decisions, newest first, their lines, and their number."""
    lines = newest(_select(form), query, limit, position).subquery("lines")
    return sa.select(
        *last_of(lines), in_order(sa.func.string_agg, lines, lines.c.line, "\n"), sa.func.count()
    )


@functools.cache
def _select(form: Form) -> sa.Select[*tuple[Any, ...]]:
    """With the line as plain SQL: thousands of elements would be gone through for every page."""
    match form:
        case "jsonl":
            line = _unless_odd(_STRUCTURE)
        case "flat":
            flat = {name: _flat(column) for name, column in FLAT.items()}
            line = _unless_odd(flat | {"state": _json(_CONTENTS.state)})
        case "csv":
            line = _joined(_row(FLAT.values()))
    dialect = PGDialect_asyncpg()  # type: ignore[no-untyped-call] # has no annotations
    spelled = str(line.compile(dialect=dialect, compile_kwargs={"literal_binds": True}))
    return sa.select(
        _FACTS.decided_at, _FACTS.decision_id, sa.literal_column(spelled, sa.Text).label("line")
    ).select_from(JOINED)


def unescaped(text: str, form: Form) -> str:
    """The lines with the texts and numbers that were given to `classifier.audit.escape`."""
    if text.isascii():
        return text
    if form != "csv":
        for end in _LINE_ENDS:
            text = text.replace(end, f"\\u{ord(end):04x}")
    if ESCAPE not in text:
        return text
    text = _FLOAT.sub(lambda found: _as_json(float(found[2]), found[1]), text)
    # Within JSON, nested or not, four hexadecimal digits are how such a character is written anyway.
    return _ESCAPED.sub((lambda found: f"\\u{found[1]}") if form == "jsonl" else _character, text)


def strict(value: JSON) -> JSON:
    """`value` without numbers that JSON does not have, as the export spells them."""
    if isinstance(value, float) and not math.isfinite(value):
        return _spelled(value)
    if isinstance(value, Mapping):
        return {key: strict(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [strict(item) for item in value]
    return value


def _character(found: re.Match[str]) -> str:
    """What PostgreSQL cannot store cannot be in such a file either."""
    return ESCAPE if found[1] == "241b" else _REPLACEMENT


def _as_json(number: float, quote: str) -> str:
    return repr(number) if math.isfinite(number) else f"{quote}{_spelled(number)}{quote}"


def _spelled(number: float) -> str:
    return "NaN" if math.isnan(number) else ("Infinity" if number > 0 else "-Infinity")


def _unless_odd(structure: Mapping[str, Any]) -> sa.ColumnElement[str]:
    """As JSON; escaping names one by one is a quarter of all work, so it is done where one needs it."""
    odd = sa.func.concat(*_NAMES.values()).regexp_match(_literal(r'["\\[:cntrl:]]'))
    return sa.case(
        (odd, _joined(_object(structure, _carefully))), else_=_joined(_object(structure, _quickly))
    )


def _carefully(value: sa.ColumnElement[Any]) -> Sequence[_Part]:
    return (_json(value),)


def _quickly(value: sa.ColumnElement[Any]) -> Sequence[_Part]:
    if not isinstance(value, sa.Column) or _NAMES.get(value.name) is not value:
        return (_json(value),)
    quoted = ('"', value, '"')
    return (
        (sa.case((value.is_(None), _literal("null")), else_=_joined(quoted)),) if value.nullable else quoted
    )


def _object(
    structure: Mapping[str, Any], spell: Callable[[sa.ColumnElement[Any]], Sequence[_Part]]
) -> Iterator[_Part]:
    yield "{"
    for index, (name, value) in enumerate(structure.items()):
        yield f'{"," if index else ""}"{name}":'
        if isinstance(value, Mapping):
            yield from _object(cast("Mapping[str, Any]", value), spell)
        elif isinstance(value, tuple):
            present, part = cast("tuple[sa.ColumnElement[Any], Mapping[str, Any]]", value)
            yield sa.case((present.is_(None), _literal("null")), else_=_joined(_object(part, spell)))
        else:
            yield from (value,) if name in _ALREADY_JSON else spell(value)
    yield "}"


def _json(value: sa.ColumnElement[Any]) -> sa.ColumnElement[str]:
    if isinstance(value.type, sa.String | sa.DateTime | sa.Uuid | sa.Double):
        spelled = sa.cast(sa.func.to_json(value), sa.Text)
    else:
        spelled = sa.cast(value, sa.Text)
    return sa.case((value.is_(None), _literal("null")), else_=spelled)


def _flat(value: sa.ColumnElement[Any]) -> sa.ColumnElement[Any]:
    if isinstance(value.type, JSONB):
        return sa.cast(value, sa.Text)
    if isinstance(value.type, sa.Double):
        infinity = sa.literal_column("CAST('Infinity' AS double precision)", sa.Double)
        return sa.case((sa.and_(value < infinity, value > -infinity), value))  # NaN is above infinity
    return value


def _row(columns: Iterable[sa.Column[Any]]) -> Iterator[_Part]:
    for index, column in enumerate(columns):
        if index:
            yield ","
        yield _cell(column)


def _cell(column: sa.Column[Any]) -> sa.ColumnElement[str]:
    if isinstance(column.type, sa.DateTime):
        return sa.func.to_char(column, 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"')
    text = sa.cast(column, sa.Text)
    if not isinstance(column.type, sa.String | JSONB):
        return sa.func.coalesce(text, "")
    quoted = _joined(['"', sa.func.replace(text, '"', '""'), '"'])
    if isinstance(column.type, JSONB):
        return sa.case((column.is_(None), ""), else_=quoted)
    guarded = _joined(["\"''", sa.func.replace(text, '"', '""'), '"'])
    formula = sa.and_(text != "", sa.func.strpos(_FORMULA, sa.func.left(text, 1)) > 0)
    return sa.case((column.is_(None), ""), (formula, guarded), else_=quoted)


def _joined(parts: Iterable[_Part]) -> sa.ColumnElement[str]:
    """The parts as one text, none of which is NULL; halved again and again, so that little is copied."""
    arguments: list[sa.ColumnElement[str]] = []
    for plain, group in groupby(parts, key=lambda part: isinstance(part, str)):
        if plain:
            arguments.append(_literal("".join(cast("Iterator[str]", group))))
        else:
            arguments.extend(cast("Iterator[sa.ColumnElement[str]]", group))
    return _balanced(arguments)


def _balanced(arguments: Sequence[sa.ColumnElement[str]]) -> sa.ColumnElement[str]:
    if len(arguments) == 1:
        return arguments[0]
    half = len(arguments) // 2
    left, right = _balanced(arguments[:half]), _balanced(arguments[half:])
    return sa.func.textcat(left, right, type_=sa.Text)


def _literal(text: str) -> sa.ColumnElement[str]:
    """A text of our own, spelled out: a statement takes only so many parameters."""
    return sa.literal_column(f"'{text}'", sa.Text)
