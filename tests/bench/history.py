"""The history at a million rows: questions, filters, writing, sealing, exporting, trying a policy again.

    python -m tests.bench.history [--out DIR] [--rows N]

The embedded PostgreSQL, a thousand tenants of which one holds half, rare answers and long reasons. Everything
goes through row-level security as the restricted roles, but for the yardstick of writing: the owner's COPY
into the same indexed tables. `--rows` scales it. Medians are printed, with what the client and the server
took of the CPU, which neighbours on a busy machine disturb less, and written to `DIR/history.json`.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import shutil
import statistics
import sys
import tempfile
import time
import uuid
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import asyncpg
import psutil
import sqlalchemy as sa

from classifier.audit.backtesting import Backtester
from classifier.audit.engine import create_engine, set_tenant
from classifier.audit.export import Exporter
from classifier.audit.history import History
from classifier.audit.inserts import INSERT_DECISIONS, parameters
from classifier.audit.partitions import ensure_partitions
from classifier.audit.postgres import PostgresStore
from classifier.audit.query import AnswerCondition, DecisionQuery
from classifier.audit.rows import Row, Rows, rows_of
from classifier.audit.schema import upgrade
from classifier.audit.sealing import seal
from classifier.audit.signing import PublicKeys, SealKey, new_key
from classifier.audit.sql import SELECT_DECISIONS, newest
from classifier.audit.tables import decision_answers, decision_contents, decisions
from classifier.audit.verifying import verify
from classifier.backtest import Backtest
from classifier.classifier import Classifier
from classifier.decision import Decision
from classifier.models.scripted import ScriptedModel
from classifier.policy import PolicyContext
from classifier.processor import ClassifierProcessor
from classifier.questions import Boolean, Choice, Questions, Score
from embedded.stack import Stack
from tests.bench._million import LARGE, SLICES, SMALL, fill, settle
from tests.classifier.audit.many import fill as fill_one
from tests.classifier.audit.test_plans import plan_of, read_whole

ROWS = 1_000_000
PAGE = 50
REPEATS = 15
BATCH = 500
WRITTEN = 10_000
SEALED = 20_000
ROUNDS = 3
UNSAFE, UNHAPPY = 0.98, 2
KEY = b"a key for benchmarks, long enough"
TARGETS = {
    "newest_ms": 20.0,
    "filter_ms": 100.0,
    "insert_against_copy": 0.5,
    "export_rows_per_second": 50_000,
    "backtest_decisions_per_second": 100_000,
}

FILTERS: dict[str, dict[str, Any]] = {
    "since": {"since": datetime.now(UTC) - timedelta(days=30)},
    "until": {"until": datetime.now(UTC) - timedelta(days=30)},
    "processor": {"processor": "guard-2"},
    "processor and outcome": {"processor": "guard-2", "outcome": "allowed"},
    "classifier": {"classifier": "safety-1"},
    "classifier and outcome": {"classifier": "safety-1", "outcome": "aborted"},
    "playbook": {"playbook": "desk"},
    "phase": {"phase": "input"},
    "phase that never was": {"phase": "stream"},
    "outcome": {"outcome": "aborted"},
    "outcome that never was": {"outcome": "filtered"},
    "action": {"action": "review"},
    "route": {"action": "route", "route": "fraud"},
    "thread": {"thread": "t-77"},
    "resource": {"resource": "person-77"},
    "message": {"message": "m-77"},
    "run": {"run": "r-77"},
    "workflow": {"workflow": "w-77"},
    "trace": {"trace": "00000000000000000000000000000000"},
    "model": {"model": "jev-2026"},
    "rare model": {"model": "jev-2025"},
    "failed": {"failed": True},
    "refused": {"refused": True},
    "truncated": {"truncated": True},
    "reason": {"reason": "unsafe"},
    "rare word in long reasons": {"reason": "Zanzibar"},
    "word that never was": {"reason": "timbuktu"},
    "topic = billing": {"answers": ("topic = billing",)},
    "topic = fraud (1 in 10,000)": {"answers": ("topic = fraud",)},
    "topic != billing": {"answers": ("topic != billing",)},
    "topic = nothing": {"answers": ("topic = nothing",)},
    "unsafe >= 0.8": {"answers": ("unsafe >= 0.8",)},
    "unsafe >= 0.9999 (1 in 10,000)": {"answers": ("unsafe >= 0.9999",)},
    "mood < 0.02": {"answers": ("mood < 0.02",)},
    "topic = fraud, unsafe >= 0.5": {"answers": ("topic = fraud", "unsafe >= 0.5")},
    "topic = billing, mood >= 4": {"answers": ("topic = billing", "mood >= 4")},
    "topic = fraud, aborted": {"answers": ("topic = fraud",), "outcome": "aborted"},
    "unsafe >= 0.8, aborted, since": {
        "answers": ("unsafe >= 0.8",),
        "outcome": "aborted",
        "since": datetime.now(UTC) - timedelta(days=30),
    },
}


class Looks(Questions):
    topic = Choice({"billing": None, "fraud": None, "other": None})
    unsafe = Boolean("Is it unsafe?")
    mood = Score(["angry", "annoyed", "neutral", "friendly", "happy"])


def guard(answers: Looks, context: PolicyContext[Looks]) -> None:
    """As a user would write it."""
    if answers.unsafe.at_least(UNSAFE, unsure=True):
        context.abort("unsafe", {"threshold": UNSAFE})
    if answers.topic.choice_or(None) == "fraud" and answers.mood.score_or(0.0) < UNHAPPY:
        context.filter()


@dataclass
class Cpu:
    """CPU seconds of the client and of PostgreSQL, since it was made."""

    servers: list[psutil.Process]

    def __post_init__(self) -> None:
        self._client, self._server = time.process_time(), self._of_servers()
        self._began = time.perf_counter()

    @classmethod
    def now(cls) -> Cpu:
        """From now on."""
        return cls([each for each in psutil.Process().children(recursive=True) if "postgres" in each.name()])

    @property
    def seconds(self) -> float:
        """What a clock says."""
        return time.perf_counter() - self._began

    def taken(self, count: int) -> dict[str, float]:
        """Microseconds of CPU for each of `count`."""
        own, server = time.process_time() - self._client, Cpu.now()._of_servers() - self._server
        return {"client_us": own / count * 1e6, "server_us": server / count * 1e6}

    def _of_servers(self) -> float:
        total = 0.0
        for server in self.servers:
            try:
                times = server.cpu_times()
            except psutil.NoSuchProcess:
                continue
            total += times.user + times.system + times.children_user + times.children_system
        return total


def query_of(tenant: str, filters: dict[str, Any]) -> DecisionQuery:
    given: dict[str, Any] = dict(filters)
    given["answers"] = tuple(AnswerCondition.parse(text) for text in filters.get("answers", ()))
    return DecisionQuery(tenant=tenant, **given)


async def repeated(work: Callable[[], Awaitable[object]]) -> dict[str, float]:
    """The median by the clock, and the mean of the CPU, in milliseconds."""
    await work()
    taken: list[float] = []
    cpu = Cpu.now()
    for _ in range(REPEATS):
        began = time.perf_counter()
        await work()
        taken.append((time.perf_counter() - began) * 1000)
    spent = cpu.taken(REPEATS)
    return {
        "ms": statistics.median(taken),
        "client_ms": spent["client_us"] / 1000,
        "server_ms": spent["server_us"] / 1000,
    }


async def questions(url: str) -> dict[str, Any]:
    """The newest page of every filter, for the large tenant and a small one, and whether a plan reads all."""
    found: dict[str, Any] = {}
    async with History(url, timeout=120) as history:
        for name, filters in {"newest": {}, **FILTERS}.items():
            for tenant in (LARGE, SMALL):
                query = query_of(tenant, filters)
                taken = await repeated(partial(history.page, query, PAGE))
                plan = await plan_of(url, tenant, newest(SELECT_DECISIONS, query, PAGE + 1, None))
                found.setdefault(name, {})[tenant] = {**taken, "seq_scans": read_whole(plan)}
            pair = found[name]
            print(
                f"  {name:34} {_shown(pair[LARGE])} | {_shown(pair[SMALL])}"
                f"{'   reads a table whole' if any(one['seq_scans'] for one in pair.values()) else ''}",
                flush=True,
            )
    return found


def _shown(one: dict[str, Any]) -> str:
    return f"{one['ms']:7.1f} ms, CPU {one['client_ms']:4.1f} + {one['server_ms']:5.1f} ms"


async def written(url: str) -> dict[str, Any]:
    """Rows a second, in turn: batches through row-level security, the store itself, and the owner's COPY."""
    async with History(url) as history:
        like = (await history.page(DecisionQuery(tenant=LARGE), 500)).decisions
    rates: dict[str, list[float]] = {"insert": [], "store": [], "copy": []}
    cpu: dict[str, dict[str, float]] = {}
    for _ in range(ROUNDS):
        for name, write in (("insert", _insert), ("copy", _copy), ("store", _store)):
            made = _new(like, WRITTEN)
            rates[name].append(await _rate(name, write, url, made, cpu))
    median = {name: statistics.median(each) for name, each in rates.items()}
    return {
        "rows_per_second": median,
        "rounds": rates,
        "cpu": cpu,
        "insert_against_copy": median["insert"] / median["copy"],
        "store_against_copy": median["store"] / median["copy"],
    }


async def _rate(
    name: str,
    write: Callable[[str, list[Decision], Callable[[], None]], Awaitable[None]],
    url: str,
    made: list[Decision],
    cpu: dict[str, dict[str, float]],
) -> float:
    measured: list[Cpu] = []
    await write(url, made, lambda: measured.append(Cpu.now()))
    [began] = measured
    seconds = began.seconds
    cpu[name] = began.taken(len(made))
    return len(made) / seconds


def _new(like: Iterable[Decision], count: int) -> list[Decision]:
    """Decisions that are like these, now, in the tenant's order of arrival."""
    now, kinds = datetime.now(UTC), list(like)
    made: list[Decision] = []
    for number in range(count):
        kind = kinds[number % len(kinds)]
        key = uuid.uuid4().hex
        made.append(
            replace(
                kind,
                decision_id=uuid.uuid4(),
                decided_at=now + timedelta(microseconds=number),
                coordinates=replace(kind.coordinates, workflow_id=f"w-{key}", run_id=f"r-{key}"),
            )
        )
    return made


async def _insert(url: str, made: list[Decision], begin: Callable[[], None]) -> None:
    """The statement of the store over rows that are ready, a transaction for each batch."""
    batches = [_parameters(made[start : start + BATCH]) for start in range(0, len(made), BATCH)]
    engine = create_engine(url, role="classifier_writer", timeout=120)
    async with engine.connect() as connection:
        await connection.execute(sa.text("SELECT 1"))
        await connection.rollback()
        begin()
        for batch in batches:
            async with connection.begin():
                await set_tenant(connection, LARGE)
                await connection.execute(INSERT_DECISIONS, batch)
    await engine.dispose()


def _parameters(batch: list[Decision]) -> dict[str, str]:
    return parameters([rows_of(decision, KEY) for decision in batch])


async def _store(url: str, made: list[Decision], begin: Callable[[], None]) -> None:
    """All of it: decisions into rows, batches, hashes, two writers."""
    store = PostgresStore(url, hash_key=KEY, timeout=120)
    await store.find(LARGE, made[0].decided_at, [made[0].decision_id])
    begin()
    await asyncio.gather(*(store.record(made[start : start + BATCH]) for start in range(0, len(made), BATCH)))
    await store.aclose()


async def _copy(url: str, made: list[Decision], begin: Callable[[], None]) -> None:
    """The owner's COPY of rows that are ready, in one transaction; row-level security forbids it else."""
    rows = [rows_of(decision, KEY) for decision in made]
    tables = (decisions, decision_contents, decision_answers)
    records = [_records(table, rows) for table in tables]
    async with _owner(url) as connection:
        begin()
        async with connection.transaction():
            for table, (columns, lines) in zip(tables, records, strict=True):
                await connection.copy_records_to_table(
                    table.name, schema_name="classifier", columns=columns, records=lines
                )


@asynccontextmanager
async def _owner(url: str) -> AsyncGenerator[Any]:
    connection = await asyncpg.connect(url.replace("+asyncpg", ""))
    tables = [f"classifier.{table.name}" for table in (decisions, decision_contents, decision_answers)]
    try:
        await connection.execute("SET ROLE classifier_owner; SET search_path = pg_catalog")
        for table in tables:
            await connection.execute(f"ALTER TABLE {table} NO FORCE ROW LEVEL SECURITY")
        yield connection
    finally:
        for table in tables:
            await connection.execute(f"ALTER TABLE {table} FORCE ROW LEVEL SECURITY")
        await connection.close()


def _records(table: sa.Table, rows: list[Rows]) -> tuple[list[str], list[tuple[Any, ...]]]:
    columns = [column for column in table.columns if column.server_default is None]
    if table is decision_answers:
        lines: list[Row] = [answer for each in rows for answer in each.answers]
    else:
        lines = [each.decision if table is decisions else each.contents for each in rows]
    return (
        [column.name for column in columns],
        [tuple(_plain(column, line[column.name]) for column in columns) for line in lines],
    )


def _plain(column: sa.Column[Any], value: Any) -> Any:
    if value is None:
        return None
    if isinstance(column.type, sa.JSON):
        return json.dumps(value)
    if isinstance(column.type, sa.Uuid):
        return uuid.UUID(value)
    return datetime.fromisoformat(value) if isinstance(column.type, sa.DateTime) else value


async def exported(url: str) -> dict[str, Any]:
    """Rows a second of JSON lines, of the large tenant."""
    count = size = 0
    async with Exporter(url, timeout=120) as exporter:
        began = Cpu.now()
        async for page in exporter.pages(DecisionQuery(tenant=LARGE), "jsonl"):
            count += page.count
            size += len(page.text)
        seconds = began.seconds
        cpu = began.taken(count)
    return {
        "rows": count,
        "rows_per_second": count / seconds,
        "mb_per_second": size / seconds / 1e6,
        "cpu": cpu,
        "bare_rows_per_second": await _copied_out(url),
    }


async def _copied_out(url: str) -> float:
    """The yardstick: PostgreSQL's own JSON of the same rows, by the owner's COPY, thrown away."""
    size = 0

    async def count(data: bytes) -> None:
        nonlocal size
        size += data.count(b"\n")

    rows = (
        "SELECT to_json(d), to_json(c) FROM classifier.decisions d"
        " LEFT JOIN classifier.decision_contents c USING (decided_at, decision_id, tenant)"
        f" WHERE d.tenant = '{LARGE}'"
    )
    async with _owner(url) as connection:
        began = time.perf_counter()
        await connection.copy_from_query(rows, output=count)
        return size / (time.perf_counter() - began)


async def tried(url: str) -> dict[str, Any]:
    """Decisions a second through a user's `on_result`."""
    looks = Classifier("looks", ScriptedModel([]), Looks)
    backtest = Backtest(ClassifierProcessor(classifier=looks, on_result=guard))
    async with Backtester(url, timeout=120) as backtester:
        began = Cpu.now()
        report = await backtester.run(DecisionQuery(tenant=LARGE), backtest)
        seconds = began.seconds
        cpu = began.taken(report.decisions)
    assert not report.errors
    return {
        "decisions": report.decisions,
        "decisions_per_second": report.decisions / seconds,
        "changed": report.changes.total(),
        "cpu": cpu,
        "bare_decisions_per_second": await _looked_at(url),
    }


async def _looked_at(url: str) -> float:
    """The yardstick: the owner's rows as a driver gives them, `json.loads`, and the policy by hand."""
    count = hits = 0
    async with _owner(url) as connection, connection.transaction():
        began = time.perf_counter()
        select = f"SELECT decision_id, outcome, answers FROM classifier.decisions WHERE tenant = '{LARGE}'"
        async for _, outcome, text in connection.cursor(select, prefetch=4000):
            answers = json.loads(text)
            count += 1
            if answers["unsafe"]["probability"] >= UNSAFE:
                hits += outcome != "aborted"
            elif answers["topic"]["choice"] == "fraud" and answers["mood"]["score"] < UNHAPPY:
                hits += outcome != "filtered"
        return count / (time.perf_counter() - began)


async def sealing(url: str) -> dict[str, Any]:
    """Rows a second that are sealed, and verified; in a database of their own, since all of one is sealed."""
    connection = await asyncpg.connect(url.replace("+asyncpg", ""))
    await connection.execute("CREATE DATABASE sealed")
    await connection.close()
    apart = url.rsplit("/", 1)[0] + "/sealed"
    await upgrade(apart)
    await fill_one(apart, LARGE, SEALED)
    key = SealKey.of(new_key())
    public = PublicKeys.of([key.public])
    began = Cpu.now()
    done = await seal(apart, key, keys=public, hash_key=KEY)
    sealed = {"rows_per_second": SEALED / began.seconds, "cpu": began.taken(SEALED)}
    assert sum(one.rows for one in done) == SEALED
    began = Cpu.now()
    [found] = [one async for one in verify(apart, public, hash_key=KEY)]
    verified = {"rows_per_second": SEALED / began.seconds, "cpu": began.taken(SEALED)}
    assert (found.leaves, found.breaches) == (SEALED, ())
    return {"sealed": sealed, "verified": verified}


async def measured(rows: int) -> dict[str, Any]:
    home = Path(tempfile.mkdtemp(prefix="classifier-bench-"))
    try:
        async with Stack(home, temporal=False) as stack:
            url = stack.addresses.database_url
            assert url is not None
            await upgrade(url)
            await ensure_partitions(url, now=datetime.now(UTC) - timedelta(days=60))
            began = time.perf_counter()
            await fill(url, rows, lambda done: print(f"  {done:,} rows", file=sys.stderr, flush=True))
            await settle(url)
            filled = time.perf_counter() - began
            print(f"{rows:,} rows made in {filled:.0f} s; the newest {PAGE} of the large and a small tenant,")
            print("median by the clock, mean CPU of client + PostgreSQL:", flush=True)
            asked = await questions(url)
            tried_again = await tried(url)
            _print_rate("backtest", tried_again["decisions_per_second"], tried_again["cpu"])
            streamed = await exported(url)
            _print_rate("export", streamed["rows_per_second"], streamed["cpu"])
            chained = await sealing(url)
            for name, one in chained.items():
                _print_rate(name, one["rows_per_second"], one["cpu"])
            wrote = await written(url)
            for name, rate in wrote["rows_per_second"].items():
                _print_rate(name, rate, wrote["cpu"][name])
            return {
                "rows": rows,
                "made_in_seconds": filled,
                "slices": SLICES,
                "questions": asked,
                "backtest": tried_again,
                "export": streamed,
                "sealing": chained,
                "writing": wrote,
                "targets": TARGETS,
            }
    finally:
        shutil.rmtree(home, ignore_errors=True)


def _print_rate(name: str, rate: float, cpu: dict[str, float]) -> None:
    print(
        f"{name:10} {rate:10,.0f}/s   CPU each: client {cpu['client_us']:5.0f} us, "
        f"PostgreSQL {cpu['server_us']:5.0f} us",
        flush=True,
    )


def _against(figure: dict[str, Any], rate: str) -> float:
    return float(figure[rate] / figure[f"bare_{rate}"])


def summary(figures: dict[str, Any]) -> Iterable[str]:
    """A line for each figure, with what it aims at."""
    asked, wrote = figures["questions"], figures["writing"]
    worst = max(
        (one["ms"], f"{name}, {tenant}") for name, pair in asked.items() for tenant, one in pair.items()
    )
    whole = [name for name, pair in asked.items() if any(one["seq_scans"] for one in pair.values())]
    newest_ms, filter_ms = f"under {TARGETS['newest_ms']:.0f} ms", f"under {TARGETS['filter_ms']:.0f} ms"
    lines = (
        ("newest 50 of the large tenant", newest_ms, f"{asked['newest'][LARGE]['ms']:.1f} ms"),
        ("newest 50 of a small tenant", newest_ms, f"{asked['newest'][SMALL]['ms']:.1f} ms"),
        ("slowest filter", filter_ms, f"{worst[0]:.1f} ms ({worst[1]})"),
        ("filters over the aim", "none", ", ".join(_slow(asked)) or "none"),
        ("plans that read a table whole", "none", ", ".join(whole) or "none"),
        ("insert / COPY", f"{TARGETS['insert_against_copy']}", f"{wrote['insert_against_copy']:.2f}"),
        ("the whole store / COPY", "", f"{wrote['store_against_copy']:.2f}"),
        ("export", _per_second(TARGETS["export_rows_per_second"]), _rate_of(figures["export"])),
        ("backtest", _per_second(TARGETS["backtest_decisions_per_second"]), _rate_of(figures["backtest"])),
        ("export / bare COPY of JSON", "", f"{_against(figures['export'], 'rows_per_second'):.2f}"),
        ("backtest / bare loop", "", f"{_against(figures['backtest'], 'decisions_per_second'):.2f}"),
        ("seal", "", _rate_of(figures["sealing"]["sealed"])),
        ("verify", "", _rate_of(figures["sealing"]["verified"])),
    )
    yield f"{figures['rows']:,} rows".ljust(34) + "aim".ljust(16) + "measured"
    for what, aim, found in lines:
        yield what.ljust(34) + aim.ljust(16) + found


def _slow(asked: dict[str, Any]) -> Iterable[str]:
    limit = TARGETS["filter_ms"]
    return [name for name, pair in asked.items() if any(one["ms"] >= limit for one in pair.values())]


def _rate_of(found: dict[str, Any]) -> str:
    rate = next(found[name] for name in ("rows_per_second", "decisions_per_second") if name in found)
    cpu = found["cpu"]
    return f"{_per_second(rate)} (CPU {cpu['client_us']:.0f} + {cpu['server_us']:.0f} us each)"


def _per_second(rate: float) -> str:
    return f"{rate:,.0f}/s"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=None, help="folder for history.json")
    parser.add_argument("--rows", type=int, default=ROWS)
    given = parser.parse_args()
    figures = asyncio.run(measured(given.rows))
    print("\n".join(summary(figures)))
    if given.out is not None:
        given.out.mkdir(parents=True, exist_ok=True)
        (given.out / "history.json").write_text(json.dumps(figures, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
