"""Playbooks on the command line: written by `init`, found by name, chosen by type, compared with a shadow."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import uuid
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import pytest

from classifier.audit.query import DecisionQuery
from classifier.audit.shadowing import Shadows
from commands.starting import EVENTS, WRITTEN
from tests.postgres import PostgresServer
from tests.processes import Finished, environment, run, started, state_folder
from tests.test_docs import commands_in, parsed
from tests.tree import ROOT

PACKAGE = "letters_for_all"
STRICT = (f"--config-file={ROOT / 'pyproject.toml'}", f"--cache-dir={ROOT / '.mypy_cache'}")
"""As strict as we are, and after `make check` without reading all of our dependencies again."""
TICKETS = ROOT / "examples" / "tickets.jsonl"


@pytest.fixture(scope="module")
async def environ(postgres_server: PostgresServer, temporal_address: str) -> AsyncGenerator[dict[str, str]]:
    with state_folder() as home:
        async with postgres_server.database() as url:
            yield environment(
                home,
                TEMPORAL_ADDRESS=temporal_address,
                DATABASE_URL=url,
                CLASSIFIER_HASH_KEY="only-for-tests",
                CLASSIFIER_TASK_QUEUE=f"queue-{uuid.uuid4()}",
            )


@pytest.fixture(scope="module")
async def project(environ: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What `init` writes."""
    folder = tmp_path_factory.mktemp("project") / "shop"
    done = await run("init", str(folder), environ=environ)
    assert done.code == 0, done.errors
    (folder / "said").write_text(done.output, encoding="utf-8")
    return folder


@pytest.fixture
def site(tmp_path: Path) -> Path:
    """A folder as installed packages are in, with one of them."""
    described = tmp_path / f"{PACKAGE}-1.0.dist-info"
    described.mkdir()
    (described / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {PACKAGE}\nVersion: 1.0\n")
    (described / "entry_points.txt").write_text(
        "[temporal_classifier.apps]\nletters = tests.apps.shadowed:app\nbills = tests.apps.shadowed:bills\n"
    )
    return tmp_path


async def anew(*arguments: str, environ: dict[str, str], path: Path) -> Finished:
    """Runs the command in an interpreter of its own that also imports from `path`."""
    async with started(*arguments, environ={**environ, "PYTHONPATH": str(path)}) as running:
        return await running.finished()


def checked(project: Path, *command: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", *command], cwd=project, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def letter(kind: str, sure: float) -> bytes:
    body = {"specversion": "1.0", "id": f"{kind} {sure}", "source": "letters", "type": kind}
    return json.dumps({**body, "data": {"text": f"a letter {sure}"}}).encode() + b"\n"


@pytest.mark.parametrize(
    "command",
    [
        ("ruff", "check", "--isolated", "--select=ALL", "--ignore=D203,D213,COM812,CPY,S101,INP001", "."),
        ("ruff", "format", "--isolated", "--check", "."),
        ("pytest", "-q", "-W", "ignore", "."),
        pytest.param(("mypy", *STRICT, "."), marks=pytest.mark.slow),
        pytest.param(("pyright", "."), marks=pytest.mark.slow),
    ],
    ids=lambda command: "-".join(command[: 1 + (command[0] == "ruff")]),
)
def test_what_init_writes_passes(project: Path, command: tuple[str, ...]) -> None:
    python = Path(sys.prefix)
    strict = {"typeCheckingMode": "strict", "venvPath": str(python.parent), "venv": python.name}
    (project / "pyrightconfig.json").write_text(json.dumps(strict))
    checked(project, *command)


async def test_init_overwrites_nothing(environ: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / WRITTEN[-1]).write_text("mine")
    refused = await run("init", str(tmp_path), environ=environ)
    assert refused.code == 1
    assert refused.sentence == f"{tmp_path / WRITTEN[-1]} is there already, and nothing is overwritten"
    assert [path.name for path in tmp_path.iterdir()] == [WRITTEN[-1]]
    assert (tmp_path / WRITTEN[-1]).read_text() == "mine"


def test_the_commands_that_init_names_are_good_ones(project: Path) -> None:
    said = (project / "said").read_text(encoding="utf-8")
    named = [words for line in said.partition("Next:")[2].splitlines() for words in commands_in(line.strip())]
    assert [words[1] for words in named] == ["triage", "review", "check"]


@pytest.mark.slow
async def test_triage_works_with_what_init_wrote(environ: dict[str, str], project: Path) -> None:
    given = project / "some.jsonl"
    lines = TICKETS.read_text(encoding="utf-8").splitlines(keepends=True)[:20]
    given.write_text((project / EVENTS).read_text(encoding="utf-8") + "".join(lines), encoding="utf-8")
    own = {**environ, "CLASSIFIER_APP": "ticket_playbook:app", "CLASSIFIER_TASK_QUEUE": "written by init"}
    async with started("worker", environ={**own, "PYTHONPATH": str(project)}) as worker:
        await worker.said("stop with Ctrl-C")
        done = await anew("triage", str(given), "--json", environ=own, path=project)
    assert done.code == 0, done.errors
    assert done.json["started"] == len(lines) + 3
    assert sum(done.json["routes"].values()) + done.json["reviews"] == len(lines) + 3
    assert set(done.json["routes"]) <= {"billing", "account"}
    assert done.json["routes"], "nothing was sure enough"


@pytest.mark.slow
async def test_an_installed_app_is_found_by_its_name_and_named_where_another_is_not(
    environ: dict[str, str], site: Path
) -> None:
    found = await anew("check", "--json", environ={**environ, "CLASSIFIER_APP": "letters"}, path=site)
    by_what = {finding["what"]: finding for finding in found.json["findings"]}
    assert by_what["app"]["value"] == "letters; playbooks: bills, mail"
    assert by_what["installed apps"]["value"] == f"bills ({PACKAGE}), letters ({PACKAGE})"
    missing = await anew("check", "--app", "lettres", "--json", environ=environ, path=site)
    (problem,) = [each["problem"] for each in missing.json["findings"] if each["what"] == "app"]
    assert "temporal_classifier.apps (installed: bills, letters), not 'lettres'" in problem


@pytest.mark.slow
async def test_events_go_to_the_playbook_of_their_type_and_the_shadow_is_compared(
    environ: dict[str, str],
) -> None:
    shadowed = {**environ, "CLASSIFIER_APP": "tests.apps.shadowed:app"}
    surenesses = (0.95, 0.9, 0.7, 0.55)
    given = b"".join(letter("bill", sure) for sure in surenesses) + letter("mail", 0.9) + letter("fax", 0.9)
    async with started("worker", environ=shadowed) as worker:
        await worker.said("stop with Ctrl-C")
        done = await run("triage", "-", "--tenant", "acme", "--json", environ=shadowed, given=given)
        await recorded(environ["DATABASE_URL"], len(surenesses))
    assert done.code == 3, done.errors
    assert (done.json["routes"], done.json["reviews"], done.json["decisions"]) == ({"invoice": 4}, 1, 5)
    assert [each["reason"] for each in done.json["rejected"]] == [
        "no playbook takes events of this type; say so with event_types in the app"
    ]
    (compared,) = (await stats("--json", environ=shadowed)).json["shadows"]
    assert (compared["playbook"], compared["policy_version"], compared["shadow_version"]) == (
        "bills",
        "1",
        "2",
    )
    assert (compared["decisions"], compared["compared"], compared["agreement"]) == (4, 4, 0.75)
    assert (compared["live"]["review_rate"], compared["shadow"]["review_rate"]) == (0.25, 0.5)
    (change,) = [each for each in compared["changes"] if each["live"] != each["shadow"]]
    assert (change["live"], change["shadow"], change["count"]) == ("route invoice", "review", 1)
    said = " ".join((await stats(environ=shadowed)).output.split())
    assert "Playbook bills: 4 decisions with a shadow, 75.0% agree" in said
    assert f"route invoice review 1 differs {change['examples'][0]}" in said
    await shown(environ, change["examples"][0])


async def recorded(url: str, count: int) -> None:
    """Delivery does not wait for shadows, so neither does `triage`."""
    async with asyncio.timeout(60), Shadows(url) as shadows:
        while sum(each.count for each in await shadows.compare(DecisionQuery(tenant="acme"))) < count:
            await asyncio.sleep(0.1)


async def stats(*options: str, environ: dict[str, str]) -> Finished:
    return await run("history", "stats", "--shadow", "--tenant", "acme", *options, environ=environ)


async def shown(environ: dict[str, str], live: str) -> None:
    """A shadow is listed where it is asked for, and names the decision that it stands beside."""
    listed = await run(
        *["history", "list", "--tenant", "acme", "--mode", "shadow", "--where", "topic >= 0.6"],
        *["--action", "review", "--json"],
        environ=environ,
    )
    (shadow,) = listed.json["decisions"]
    told = await run("history", "show", shadow["decision_id"], "--tenant", "acme", environ=environ)
    assert f"shadow of {live}" in " ".join(told.output.split())
    everything: Any = (await run("history", "list", "--tenant", "acme", "--json", environ=environ)).json
    assert len(everything["decisions"]) == 5


async def test_two_reports_at_once_are_refused(environ: dict[str, str]) -> None:
    refused = await run("history", "stats", "--shadow", "--calibration", environ=environ)
    assert refused.code == 2


def test_every_template_is_written_and_no_other(project: Path) -> None:
    templates = ROOT / "commands" / "templates"
    assert {path.name.removesuffix(".txt") for path in templates.iterdir()} == set(WRITTEN)
    for name in WRITTEN:
        assert (project / name).read_bytes() == (templates / f"{name}.txt").read_bytes()
    assert parsed(["classifier", "init", "shop"], whole=True) is None
