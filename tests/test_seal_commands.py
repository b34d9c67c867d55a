"""`classifier history seal` and `verify`, as people and their schedulers call them."""

from __future__ import annotations

import json
import stat
from collections.abc import Generator
from pathlib import Path

import pytest

from classifier.audit.postgres import PostgresStore
from classifier.audit.signing import SealKey, new_key
from tests.classifier.audit.examples import KEY, decision
from tests.classifier.audit.sealed import final, named, tamper
from tests.processes import environment, run, state_folder

SECRET = new_key()
PUBLIC = SealKey.of(SECRET).public
FIRST, SECOND = decision("first"), decision("second")


@pytest.fixture
def home() -> Generator[Path]:
    with state_folder() as folder:
        yield folder


@pytest.fixture
async def environ(home: Path, database_url: str) -> dict[str, str]:
    """What a sealer is given, with a history of two decisions."""
    store = PostgresStore(database_url, hash_key=KEY)
    await store.record([FIRST])
    await store.record([SECOND])
    await store.aclose()
    await final(database_url)
    return environment(
        home, DATABASE_URL=database_url, CLASSIFIER_HASH_KEY=KEY.decode(), CLASSIFIER_SEAL_KEY=SECRET
    )


async def test_a_history_is_sealed_verified_and_a_change_to_it_named(
    environ: dict[str, str], home: Path, database_url: str
) -> None:
    file = home / "checkpoints.jsonl"
    sealed = await run("history", "seal", "--to", str(file), environ=environ)
    assert (sealed.code, sealed.output.splitlines()[0]) == (
        0,
        "✓ acme: 2 rows sealed, 2 in all, checkpoint 1",
    )
    assert PUBLIC in sealed.output
    assert SECRET not in sealed.output + sealed.errors + file.read_text()
    [line] = [json.loads(line) for line in file.read_text().splitlines()]
    assert (line["tenant"], line["number"], line["leaves"]) == ("acme", 1, 2)

    verifier = {name: value for name, value in environ.items() if name != "CLASSIFIER_SEAL_KEY"}
    verifier |= {"CLASSIFIER_SEAL_PUBLIC_KEYS": PUBLIC}
    whole = await run("history", "verify", "--against", str(file), environ=verifier)
    assert whole.code == 0, whole.errors
    assert whole.output.startswith("✓ acme: 2 rows are as sealed")
    assert "This cannot know:" in whole.output
    assert "--against FILE" not in whole.output

    await tamper(database_url, f"DELETE FROM classifier.decisions WHERE {named(SECOND)}")
    broken = await run("history", "verify", environ=verifier)
    assert broken.code == 1
    first = broken.output.splitlines()[0]
    assert first.startswith(f"✗ acme: decision {SECOND.decision_id} was sealed and is gone")
    assert "--against FILE" in broken.output

    told = await run("history", "verify", "--tenant", "acme", "--json", environ=verifier)
    assert told.code == 1
    [tenant] = told.json["tenants"]
    assert not told.json["ok"]
    [breach] = tenant["breaches"]
    assert (breach["fault"], breach["kind"], breach["id"]) == (
        "removed",
        "decision",
        str(SECOND.decision_id),
    )


async def test_the_file_gets_every_checkpoint_it_does_not_have(
    environ: dict[str, str], home: Path, database_url: str
) -> None:
    file = home / "checkpoints.jsonl"
    assert (await run("history", "seal", environ=environ)).code == 0
    store = PostgresStore(database_url, hash_key=KEY)
    await store.record([decision("third"), decision("third", tenant="globex")])
    await store.aclose()
    await final(database_url)
    told = await run("history", "seal", "--to", str(file), "--json", environ=environ)
    assert told.code == 0
    assert {one["tenant"]: one["rows"] for one in told.json["tenants"]} == {"acme": 1, "globex": 1}
    await run("history", "seal", "--to", str(file), environ=environ)
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    assert sorted((line["tenant"], line["number"]) for line in lines) == [
        ("acme", 1),
        ("acme", 2),
        ("globex", 1),
    ]


async def test_what_is_missing_or_unreadable_is_one_sentence(environ: dict[str, str], home: Path) -> None:
    file = home / "checkpoints.jsonl"
    file.write_text("{}\n")
    without = {name: value for name, value in environ.items() if name != "CLASSIFIER_SEAL_KEY"}
    for arguments, given, sentence in (
        (("seal",), without, "CLASSIFIER_SEAL_KEY is not set"),
        (("verify",), without, "CLASSIFIER_SEAL_PUBLIC_KEYS is not set"),
        (("seal",), without | {"CLASSIFIER_SEAL_KEY": "hush"}, "is not 32 bytes in base64"),
        (("seal", "--to", str(file)), environ, "line 1 of"),
        (("verify", "--against", str(home / "none")), environ, "cannot be read"),
        (("seal", "--to", str(home)), environ, "cannot be read"),
    ):
        said = await run("history", *arguments, environ=given)
        assert said.code == 1
        assert sentence in said.sentence
        assert "hush" not in said.sentence


async def test_nothing_is_signed_where_the_file_contradicts_the_database(
    environ: dict[str, str], home: Path, database_url: str
) -> None:
    file = home / "checkpoints.jsonl"
    await run("history", "seal", "--to", str(file), environ=environ)
    await tamper(
        database_url, "DELETE FROM classifier.seal_checkpoints", "DELETE FROM classifier.seal_leaves"
    )
    refused = await run("history", "seal", "--to", str(file), environ=environ)
    assert refused.code == 1
    assert "not in the database as it was kept outside" in refused.sentence
    said = await run("history", "verify", "--against", str(file), environ=environ)
    assert "✗ acme: the outside checkpoint 1 stands for 2 leaves" in said.output


@pytest.mark.slow
async def test_the_embedded_history_has_a_key_of_its_own(home: Path) -> None:
    environ = environment(home)
    sealed = await run("history", "seal", "--json", environ=environ)
    assert sealed.code == 0, sealed.errors
    key = home / "seal.key"
    assert stat.S_IMODE(key.stat().st_mode) == stat.S_IRUSR | stat.S_IWUSR
    assert SealKey.of(key.read_text()).public == sealed.json["public_key"]
    assert (await run("history", "seal", "--json", environ=environ)).json["key_id"] == sealed.json["key_id"]
    verified = await run("history", "verify", environ=environ)
    assert (verified.code, verified.output.splitlines()[0]) == (0, "there is nothing to verify")
