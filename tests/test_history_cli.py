"""The commands that read the history, as processes: filters, figures, exports, and following."""

from __future__ import annotations

import asyncio
import csv
import io
import json
import shutil
import tempfile
from collections.abc import Generator, Mapping
from contextlib import AsyncExitStack
from dataclasses import fields
from datetime import UTC, datetime, timedelta
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from classifier.audit.postgres import PostgresStore
from classifier.audit.query import AnswerCondition, DecisionQuery
from classifier.audit.schema import upgrade
from classifier.decision_json import decision_from_json
from classifier.errors import ConfigurationError
from commands.filters import Filters
from embedded.stack import Stack
from tests.classifier.audit.examples import KEY, NOW, decision
from tests.classifier.audit.many import fill
from tests.markdown import documents
from tests.processes import PROGRAM, Running, environment, run, run_on_a_terminal, started, until

WIDE = "\N{FULLWIDTH LATIN CAPITAL LETTER A}"
BLOCKED = decision(
    "blocked",
    outcome="aborted",
    processor_id="guard",
    phase="input",
    state="A\0",
    original=f"{WIDE}\0",
    normalised=("nfkc",),
)
PLAIN = decision("plain", metadata={"n": float("inf")})


@pytest.fixture
async def environ(database_url: str, tmp_path: Path) -> dict[str, str]:
    store = PostgresStore(database_url, hash_key=KEY)
    await store.record([PLAIN, BLOCKED])
    await store.aclose()
    return of_database(database_url, tmp_path)


def of_database(url: str, home: Path) -> dict[str, str]:
    return environment(home, DATABASE_URL=url.replace("+asyncpg", ""), CLASSIFIER_HASH_KEY=KEY.decode())


def test_every_filter_of_a_query_is_an_option() -> None:
    asked = {field.name for field in fields(DecisionQuery)} - {"tenant", "answers"}
    assert {field.name for field in fields(Filters)} - {"where"} == asked


def test_options_become_the_query_they_name() -> None:
    now = datetime(2026, 3, 8, tzinfo=UTC)
    filters = Filters(where=["topic = billing", "unsafe > 0.5"], since="7d", phase="input", truncated=False)
    assert filters.query("acme", now) == DecisionQuery(
        tenant="acme",
        since=now - timedelta(days=7),
        phase="input",
        truncated=False,
        answers=(AnswerCondition("topic", "=", "billing"), AnswerCondition("unsafe", ">", 0.5)),
    )


@pytest.mark.parametrize("given", [{"since": "soon"}, {"until": "2026-13-01"}, {"where": ["nonsense"]}])
def test_options_that_cannot_be_read_are_named(given: Mapping[str, Any]) -> None:
    with pytest.raises(ConfigurationError, match=r"soon|2026-13-01|nonsense"):
        Filters(**given).query("acme")


async def test_a_list_takes_the_filters_and_names_the_choices(environ: dict[str, str]) -> None:
    listed, wrong, paged = await asyncio.gather(
        run(
            *["history", "list", "--tenant", "acme", "--processor", "guard", "--phase", "input", "--json"],
            environ=environ,
        ),
        run(*["history", "list", "--outcome", "blocked"], environ=environ),
        run(*["history", "list", "--tenant", "acme", "--since", "7d", "--limit", "1"], environ=environ),
    )
    [found] = listed.json["decisions"]
    assert decision_from_json(found) == BLOCKED
    assert wrong.code == 2
    assert "'blocked' is not one of 'allowed', 'filtered', 'aborted'" in " ".join(wrong.errors.split())
    assert "more: --since 20" in paged.output
    hint = paged.output.partition("more: ")[2].split()
    following = await run(*["history", "list", "--tenant", "acme", "--json"], *hint, environ=environ)
    assert len(following.json["decisions"]) == 1
    assert following.json["next_cursor"] is None


async def test_a_decision_is_shown_with_the_text_before_normalising(environ: dict[str, str]) -> None:
    shown, as_json, endless = await asyncio.gather(
        run("history", "show", str(BLOCKED.decision_id), "--tenant", "acme", environ=environ),
        run("history", "show", str(BLOCKED.decision_id), "--tenant", "acme", "--json", environ=environ),
        run("history", "show", str(PLAIN.decision_id), "--tenant", "acme", "--json", environ=environ),
    )
    words = " ".join(shown.output.split())
    assert f"text A\\x00 text before {WIDE}\\x00 normalised nfkc" in words
    assert as_json.json["original"] == BLOCKED.original
    assert endless.json["metadata"] == {"n": "Infinity"}


async def test_figures_are_tables_for_people_and_numbers_for_machines(environ: dict[str, str]) -> None:
    shown, as_json, nothing = await asyncio.gather(
        run("history", "stats", "--tenant", "acme", environ=environ),
        run("history", "stats", "--tenant", "acme", "--by", "hour", "--json", environ=environ),
        run("history", "stats", "--tenant", "nobody", environ=environ),
    )
    words = " ".join(shown.output.split())
    assert f"{NOW:%Y-%m-%d} guard 1 ████████████████████ 100.0%" in words
    assert "guard tickets 1 12 12 12" in words
    body = as_json.json
    assert {one["decider"]["processor"] for one in body["volumes"]} == {"guard", None}
    assert {one["failure_rate"] for one in body["health"]} == {0.0}
    assert [one["unpriced"] for one in body["spendings"]] == [2]
    assert datetime.fromisoformat(body["since"]) <= datetime.now(UTC) - timedelta(hours=24)
    assert nothing.code == 0


async def test_an_export_takes_its_format_from_the_name_and_appears_when_it_is_whole(
    environ: dict[str, str], tmp_path: Path
) -> None:
    names = ("all.jsonl", "all.csv", "all.parquet")
    for name, done in zip(
        names,
        await asyncio.gather(
            *(
                run("history", "export", str(tmp_path / name), "--tenant", "acme", environ=environ)
                for name in names
            )
        ),
        strict=True,
    ):
        assert (done.code, done.output) == (0, "")
        assert done.errors.splitlines()[-1] == f"2 decisions exported to {tmp_path / name}"
    lines = (tmp_path / "all.jsonl").read_text().splitlines()
    assert {json.loads(line)["coordinates"]["workflow_id"] for line in lines} == {"plain", "blocked"}
    rows = list(csv.DictReader(io.StringIO((tmp_path / "all.csv").read_text())))
    assert {row["workflow_id"] for row in rows} == {"plain", "blocked"}
    assert import_module("pyarrow.parquet").read_table(tmp_path / "all.parquet").num_rows == 2
    assert sorted(path.name for path in tmp_path.glob("all*")) == sorted(names)


async def test_an_export_to_standard_output_holds_nothing_else(environ: dict[str, str]) -> None:
    done, parquet = await asyncio.gather(
        run(*["history", "export", "-", "--tenant", "acme", "--outcome", "aborted"], environ=environ),
        run(*["history", "export", "-", "--tenant", "acme", "--format", "csv"], environ=environ),
    )
    assert decision_from_json(done.json) == BLOCKED
    assert done.errors.splitlines()[-1] == "1 decisions exported"
    assert len(list(csv.reader(io.StringIO(parquet.output)))) == 3


async def test_what_is_in_the_way_of_an_export_is_one_sentence(
    environ: dict[str, str], tmp_path: Path
) -> None:
    target = str(tmp_path / "x.parquet")
    without = "tests.apps.no_parquet"
    async with started("history", "export", target, environ=environ, module=without) as running:
        missing = await running.finished()
    unknown, nowhere = await asyncio.gather(
        run("history", "export", "x.xlsx", environ=environ),
        run("history", "export", str(tmp_path / "no" / "x.csv"), environ=environ),
    )
    assert (
        missing.sentence
        == "Parquet needs pyarrow; install temporal-classifier[parquet], or take --format jsonl"
    )
    assert (
        unknown.sentence
        == "x.xlsx does not say its format; name it .jsonl, .csv or .parquet, or use --format"
    )
    assert "x.csv cannot be written: No such file or directory" in nowhere.sentence
    assert [missing.code, unknown.code, nowhere.code] == [1, 1, 1]
    assert list(tmp_path.glob("x*")) == []


@pytest.mark.slow
async def test_a_reader_who_leaves_ends_an_export_quietly(database_url: str, tmp_path: Path) -> None:
    await fill(database_url, "acme", 2000)
    environ = of_database(database_url, tmp_path)
    process = await asyncio.create_subprocess_shell(
        f"{PROGRAM} history export - --tenant acme | head -n 1; exit ${{PIPESTATUS[0]}}",
        env=environ,
        executable=shutil.which("bash"),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    output, errors = await process.communicate()
    assert len(output.splitlines()) == 1
    assert b"Traceback" not in errors
    assert b"Exception" not in errors
    assert process.returncode == 1


@pytest.mark.slow
async def test_an_export_shows_a_bar_on_a_terminal(database_url: str, tmp_path: Path) -> None:
    await fill(database_url, "acme", 300)
    target = tmp_path / "all.jsonl"
    environ = of_database(database_url, tmp_path) | {"TERM": "xterm"}
    code, screen = await run_on_a_terminal(
        "history", "export", str(target), "--tenant", "acme", environ=environ
    )
    assert code == 0
    assert "300/300" in screen
    assert len(target.read_text().splitlines()) == 300


async def test_following_shows_what_arrives_and_ends_cleanly(
    environ: dict[str, str], database_url: str
) -> None:
    store = PostgresStore(database_url, hash_key=KEY)
    arguments = "history tail --tenant acme --outcome aborted --every 0.1"
    async with (
        started(*arguments.split(), environ=environ) as people,
        started(*arguments.split(), "--json", environ=environ) as machine,
    ):
        for running in (people, machine):
            await running.said("following tenant acme; stop with Ctrl-C")
        new = decision("new", outcome="aborted", processor_id="guard")
        await store.record([new, decision("other")])
        await store.record([decision("theirs", tenant="globex", outcome="aborted")])
        await store.aclose()
        await printed(people, str(new.decision_id))
        await printed(machine, "\n")
        ended = [await running.interrupted() for running in (people, machine)]
    assert [one.code for one in ended] == [130, 130]
    assert "guard  aborted  topic: billing 0.70, unsafe: P(yes) 0.10" in ended[0].output
    assert len(ended[0].output.splitlines()) == 1
    assert decision_from_json(ended[1].json) == new
    assert ended[1].errors == "following tenant acme; stop with Ctrl-C\n"


async def test_following_nothing_says_what_to_start(tmp_path: Path) -> None:
    done = await run("history", "tail", environ=environment(tmp_path))
    assert "nothing can arrive; start `classifier up`, or set DATABASE_URL" in done.sentence


@pytest.fixture
def folder() -> Generator[Path]:
    """A folder that another account may enter, as the database's needs to be."""
    made = Path(tempfile.mkdtemp(prefix="classifier-tests-"))
    yield made
    shutil.rmtree(made, ignore_errors=True)


@pytest.mark.slow
async def test_following_goes_on_when_the_database_is_back(folder: Path, tmp_path: Path) -> None:
    async with AsyncExitStack() as exits:
        async with Stack(folder, temporal=False) as stack:
            url = stack.addresses.database_url
            assert url is not None
            await upgrade(url)
            await record(url, "before")
            arguments = ["history", "tail", "--tenant", "acme", "--every", "0.1", "--json"]
            running = await exits.enter_async_context(started(*arguments, environ=of_database(url, tmp_path)))
            await running.said("following")
            await record(url, "first")
            await printed(running, '"first"')
        await running.said("waiting: ")
        async with Stack(folder, temporal=False) as stack:
            assert stack.addresses.database_url == url
            await running.said("the audit store answers again")
            await record(url, "second")
            await printed(running, '"second"')
            ended = await running.interrupted()
    names = [json.loads(line)["coordinates"]["workflow_id"] for line in ended.output.splitlines()]
    assert names == ["first", "second"]
    assert ended.errors.count("waiting: ") == 1


async def record(url: str, name: str) -> None:
    store = PostgresStore(url, hash_key=KEY)
    await store.record([decision(name)])
    await store.aclose()


async def printed(running: Running, text: str) -> None:
    """Returns when `text` has appeared on standard output."""
    await until(lambda: text in running._said["output"].decode())


async def test_the_snippet_of_the_document_reads_the_history(
    environ: dict[str, str], database_url: str
) -> None:
    document = next(each for each in documents() if each.path.name == "history.md")
    [snippet] = document.blocks("python")
    names: dict[str, Any] = {}
    exec(compile(snippet.code, str(snippet), "exec"), names)
    found = await names["report"](database_url, "acme")
    assert found == {"listed": 1, "counted": 1, "exported": 1, "unsafe": 0}
