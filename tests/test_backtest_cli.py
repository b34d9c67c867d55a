"""`classifier history backtest` as a process: what it is told to run, what it looks at, what it prints."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from classifier.audit.postgres import PostgresStore
from classifier.decision import Branch
from classifier.errors import ConfigurationError
from commands.backtesting import policy_of
from tests.apps import policies
from tests.classifier.audit.examples import KEY, decision
from tests.processes import environment, run
from worker import Settings

GUARDED = decision("guarded", processor_id="guard", phase="input")
FAILED = decision("failed", processor_id="guard", phase="input", answers=None)
ROUTED = decision("routed", playbook_id="desk", branch=Branch("route", "other"))
APP = ("--app", "tests.apps.policies:app")


@pytest.fixture
async def environ(database_url: str, tmp_path: Path) -> dict[str, str]:
    store = PostgresStore(database_url, hash_key=KEY)
    await store.record([GUARDED, FAILED, ROUTED])
    await store.aclose()
    url = database_url.replace("+asyncpg", "")
    return environment(tmp_path, DATABASE_URL=url, CLASSIFIER_HASH_KEY=KEY.decode())


@pytest.mark.slow
async def test_a_policy_is_run_over_its_own_decisions_or_those_that_filters_name(
    environ: dict[str, str],
) -> None:
    base = ("history", "backtest", "--tenant", "acme")
    shown, own, other, routed, failing, earlier = await asyncio.gather(
        run(*base, "tests.apps.policies:guard", "--since", "30d", environ=environ),
        run(*base, "guard", *APP, "--json", environ=environ),
        run(*base, "untyped", *APP, "--processor", "guard", "--json", environ=environ),
        run(*base, "desk", *APP, "--json", environ=environ),
        run(*base, "tests.apps.policies:failing", environ=environ),
        run(*base, "guard", *APP, "--until", "30d", "--json", environ=environ),
    )
    words = " ".join(shown.output.split())
    assert "Processor guard over 2 decisions of tenant acme: 1 would change, 0 would not" in words
    assert "1 have no answers" in words
    assert f"allowed aborted 1 50.0% ██████████ {GUARDED.decision_id}" in words
    change = {
        "from": "allowed",
        "to": "aborted",
        "count": 1,
        "share": 0.5,
        "examples": [str(GUARDED.decision_id)],
    }
    for body in (own.json, other.json):
        assert (body["decisions"], body["failed"], body["changes"]) == (2, 1, [change])
    assert routed.json["kind"] == "playbook"
    assert [(one["from"], one["to"]) for one in routed.json["changes"]] == [("route other", "route billing")]
    assert f"ValueError 1 {GUARDED.decision_id}" in " ".join(failing.output.split())
    assert "jane" not in failing.output + failing.errors
    assert (earlier.json["decisions"], earlier.json["changes"]) == (0, [])
    assert [each.code for each in (shown, own, other, routed, failing, earlier)] == [0] * 6


def settings(app: str = "tests.apps.policies:app") -> Settings:
    return Settings(home=Path(), app=app)


def test_what_names_its_classifier_gets_its_questions_from_the_app() -> None:
    for reference in ("untyped", "tests.apps.policies:untyped", "desk", "tests.apps.policies:desk"):
        assert policy_of(settings(), reference).classifier is policies.looks
    assert policy_of(settings("not.there:app"), "tests.apps.policies:guard") is policies.guard


@pytest.mark.parametrize(
    ("reference", "app", "said"),
    [
        ("nobody", "tests.apps.policies:app", "has no processor or playbook 'nobody'; registered: guard"),
        ("tests.apps.policies:looks", "tests.apps.policies:app", "is not a ClassifierProcessor or a"),
        ("tests.apps.nothing:x", "tests.apps.policies:app", "cannot be imported"),
        ("tests.apps.policies:", "tests.apps.policies:app", "named as module:name"),
        ("tests.apps.policies:desk", "classifier.default_app:app", "which the app does not have; say --app"),
    ],
)
def test_what_cannot_be_run_is_one_sentence(reference: str, app: str, said: str) -> None:
    with pytest.raises(ConfigurationError) as raised:
        policy_of(settings(app), reference)
    assert said in str(raised.value)
