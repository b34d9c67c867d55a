"""The command line teaches, says what is wrong in one sentence, and keeps secrets to itself."""

from __future__ import annotations

import asyncio
import os
import socket
from asyncio.subprocess import PIPE
from collections.abc import Generator
from importlib.metadata import version
from pathlib import Path
from typing import cast

import pytest

from embedded.stack import running
from tests.processes import PROGRAM, environment, run, started, state_folder, until
from tests.servers import Answer, Server

SECRET = "s3cret-pa55word"
COMMANDS = (
    ("up",),
    ("worker",),
    ("triage",),
    ("ask",),
    ("history", "list"),
    ("history", "show"),
    ("history", "erase"),
    ("history", "retain"),
    ("history", "hold", "add"),
    ("history", "tail"),
    ("history", "stats"),
    ("history", "export"),
    ("review", "list"),
    ("review", "decide"),
    ("migrate",),
    ("check",),
)


@pytest.fixture
def home() -> Generator[Path]:
    with state_folder() as folder:
        yield folder


@pytest.fixture
def nowhere() -> Generator[str]:
    """A loopback address that refuses every connection while the test runs."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        yield f"127.0.0.1:{taken.getsockname()[1]}"


async def test_it_says_which_version_it_is(home: Path) -> None:
    finished = await run("--version", environ=environment(home))
    assert (finished.code, finished.output) == (0, f"temporal-classifier {version('temporal-classifier')}\n")


async def test_the_help_of_every_command_has_an_example(home: Path) -> None:
    async def help_of(command: tuple[str, ...]) -> str:
        finished = await run(*command, "--help", environ=environment(home))
        assert finished.code == 0, finished.errors
        return " ".join(finished.output.split())

    for command in COMMANDS:
        shown = await help_of(command)
        assert "Example: " in shown, command
        assert f"classifier {' '.join(command)}" in shown.partition("Example: ")[2], command
    assert "classifier triage examples/tickets.jsonl" in await help_of(())


def _words(value: object) -> str:
    return " ".join(map(str, cast("tuple[object, ...]", value))) if isinstance(value, tuple) else ""


@pytest.mark.parametrize(
    ("arguments", "given", "said"),
    [
        (("triage", "/no/such/file"), {}, "/no/such/file cannot be read: No such file or directory"),
        (("triage", "-", "--app", "nonsense"), {}, "an app is named as module:name, or by an entry point"),
        (("triage", "-", "--app", "no.such:[/app]"), {}, "the app 'no.such:[/app]' cannot be imported"),
        (("triage", "-", "--app", "tests.tree:ROOT"), {}, "is not an App; define `ROOT = App(...)`"),
        (("triage", "-", "--playbook", "[/b]"), {}, "there is no playbook '[/b]'; use --playbook with"),
        (("up",), {"CLASSIFIER_CONCURRENCY": "many"}, "CLASSIFIER_CONCURRENCY is 'many'"),
        (("up",), {"CLASSIFIER_HOME": "/proc/nothing"}, "The state folder /proc/nothing"),
        (("up",), {"CLASSIFIER_HOME": "/dev/null"}, "is not a folder"),
        (("worker", "--app", "tests.apps.remote:app"), {}, "COUNTED_MODEL_URL"),
        (("history", "list", "--since", "soon"), {}, "'soon' is no time"),
        (("history", "list", "--where", "nonsense"), {}, "nonsense"),
        (("migrate",), {"DATABASE_URL": f"mysql://me:{SECRET}@db/x"}, "does not start with postgresql://"),
        (
            ("history", "list"),
            {"DATABASE_URL": f"postgresql://me:{SECRET}@127.0.0.1:9/x"},
            "CLASSIFIER_HASH_KEY",
        ),
    ],
    ids=_words,
)
async def test_what_is_wrong_is_one_sentence(
    home: Path, arguments: tuple[str, ...], given: dict[str, str], said: str
) -> None:
    finished = await run(*arguments, environ=environment(home) | given)
    assert finished.code == 1
    assert "Traceback" not in finished.errors
    assert finished.errors.startswith("error ")
    assert said in finished.errors
    assert SECRET not in finished.output + finished.errors


async def test_servers_that_do_not_answer_are_one_sentence_each(home: Path, nowhere: str) -> None:
    url = f"postgresql://me:{SECRET}@{nowhere}/x"
    environ = environment(home, DATABASE_URL=url, TEMPORAL_ADDRESS=nowhere, CLASSIFIER_HASH_KEY=SECRET)
    finished = await asyncio.gather(
        *(run(*command, environ=environ) for command in (("worker",), ("migrate",), ("history", "list")))
    )
    for each in finished:
        assert each.code == 1
        assert each.sentence
        assert SECRET not in each.output + each.errors


async def test_check_names_all_problems_at_once_and_no_secret(home: Path, nowhere: str) -> None:
    environ = environment(
        home,
        CLASSIFIER_HOME="/dev/null/state",
        CLASSIFIER_APP="no.such:app",
        TEMPORAL_ADDRESS=nowhere,
        DATABASE_URL=f"postgresql://me:{SECRET}@{nowhere}/x",
    )
    shown, listed = await asyncio.gather(
        run("check", environ=environ), run("check", "--json", environ=environ)
    )
    assert (shown.code, listed.code) == (1, 1)
    problems = {finding["what"] for finding in listed.json["findings"] if finding["problem"]}
    assert problems == {"state folder", "app", "Temporal", "database"}
    assert "CLASSIFIER_HASH_KEY is not set" in shown.output
    assert SECRET not in shown.output + shown.errors + listed.output + listed.errors


async def test_check_of_a_fresh_folder_starts_and_makes_nothing(home: Path) -> None:
    finished = await run("check", "--json", environ=environment(home / "new"))
    assert (finished.code, finished.json["ok"]) == (0, True), finished.errors
    assert not (home / "new").exists()


async def test_ctrl_c_while_waiting_for_lines_ends_at_once_without_a_traceback(home: Path) -> None:
    environ = environment(home) | {"CLASSIFIER_APP": "tests.apps.remote:app"}
    async with Server(lambda call: Answer(status=500)) as server:
        environ["COUNTED_MODEL_URL"] = server.url
        reads, writes = os.pipe()
        async with started("triage", "-", environ=environ, stdin=reads) as process:
            await until(lambda: running(home) is not None)
            finished = await process.interrupted()
        os.close(reads)
        os.close(writes)
    assert finished.code == 130
    assert "Traceback" not in finished.errors
    assert finished.output == ""


async def test_a_reader_that_has_enough_is_no_error(home: Path) -> None:
    read, write = os.pipe()
    os.close(read)
    process = await asyncio.create_subprocess_exec(
        PROGRAM, "check", "--json", env=environment(home), stdout=write, stderr=PIPE
    )
    os.close(write)
    _, errors = await process.communicate()
    assert b"Traceback" not in errors
