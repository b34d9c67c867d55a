"""From a person's word to the model's examples: label, calibration, export and ask, as processes."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from classifier.answers import BooleanAnswer, ChoiceAnswer
from classifier.audit.postgres import PostgresStore
from classifier.audit.records import HistoryEvent, event_id_of
from classifier.decision import Branch, Decision, Ids
from classifier.labels import read_labels
from tests.classifier.audit.examples import KEY, NOW, decision
from tests.processes import Finished, environment, run

TENANT = ("--tenant", "acme")
EVEN = {"zint": 0.6, "blorp": 0.4}
TEXTS = {
    "zint": ["zint zint the red door", "a zint came by", "zint again, red", "one more zint"],
    "blorp": ["blorp blorp the blue sea", "a blorp went by", "blorp again, blue", "one more blorp"],
}


def of(text: str, name: str) -> Decision:
    return decision(
        name,
        state=text,
        ids=Ids(resource="person-7"),
        answers={"kind": ChoiceAnswer("zint", EVEN), "loud": BooleanAnswer(0.9, calibrated=False)},
        branch=Branch("review", "zint"),
    )


DECISIONS = [(of(text, text), label) for label, texts in TEXTS.items() for text in texts]
FIRST = DECISIONS[0][0]


@pytest.fixture
async def environ(database_url: str, tmp_path: Path) -> dict[str, str]:
    """Eight decisions; people have reviewed seven of them."""
    store = PostgresStore(database_url, hash_key=KEY)
    await store.record([*(one for one, _ in DECISIONS), of(" ", "blank")])
    await store.record_events([reviewed(one, label) for one, label in DECISIONS[1:]])
    await store.aclose()
    url = database_url.replace("+asyncpg", "")
    return environment(tmp_path, DATABASE_URL=url, CLASSIFIER_HASH_KEY=KEY.decode())


def reviewed(about: Decision, route: str) -> HistoryEvent:
    return HistoryEvent(
        event_id=event_id_of("acme", "review", about.coordinates.workflow_id),
        at=NOW,
        tenant="acme",
        kind="review",
        workflow_id=about.coordinates.workflow_id,
        run_id="run",
        decision_id=about.decision_id,
        actor="Bob",
        body={"route": route, "suggested": "zint"},
    )


async def labelled(environ: dict[str, str], *options: str, about: str = str(FIRST.decision_id)) -> Finished:
    return await run("history", "label", about, *TENANT, *options, environ=environ)


@pytest.mark.slow
async def test_labels_measure_answers_and_become_examples(environ: dict[str, str], tmp_path: Path) -> None:
    said, loud, blank = await asyncio.gather(
        labelled(
            environ, *["--question", "kind", "--answer", "zint", "--by", "Ada", "--reason", "x", "--json"]
        ),
        labelled(environ, *["--question", "loud", "--answer", "no", "--by", "Ada"]),
        labelled(
            environ,
            *["--question", "kind", "--answer", "zint", "--by", "Ada"],
            about=str(of(" ", "blank").decision_id),
        ),
    )
    assert said.json["answer"] == "zint"
    assert f"{FIRST.decision_id} loud: false, says Ada" in loud.output
    assert blank.code == 0

    file = tmp_path / "labels.jsonl"
    figures, table, shown, exported = await asyncio.gather(
        run("history", "stats", "--calibration", *TENANT, "--json", environ=environ),
        run("history", "stats", "--calibration", *TENANT, environ=environ),
        run("history", "show", str(FIRST.decision_id), *TENANT, "--json", environ=environ),
        run("history", "export", str(file), "--labelled", *TENANT, environ=environ),
    )
    kind, only_ranks = figures.json["calibration"]
    assert (kind["classifier"], kind["question"], kind["count"], kind["left_out"]) == (
        "tickets",
        "kind",
        9,
        0,
    )
    assert kind["brier"] == pytest.approx((5 * 0.4**2 + 4 * 0.6**2) / 9)
    assert kind["ece"] == pytest.approx(0.6 - 5 / 9)
    assert kind["bins"] == [
        {"low": 0.6, "high": 0.7, "count": 9, "predicted": 0.6, "observed": pytest.approx(5 / 9)}
    ]
    assert (only_ranks["question"], only_ranks["count"], only_ranks["left_out"]) == ("loud", 0, 1)
    words = " ".join(table.output.split())
    assert "tickets kind: 9 labels, Brier 0.249, ECE 0.044" in words
    assert "0.6 to 0.7 9 0.60 0.56 ███████████" in words
    assert "tickets loud: 1 labels of answers without a calibrated probability" in words
    assert {(event["kind"], event["actor"]) for event in shown.json["events"]} == {("label", "Ada")}
    assert {event["body"]["reason"] for event in shown.json["events"]} == {"x", None}
    assert exported.errors == f"9 labels exported to {file}\n"
    read = read_labels(file.read_text().splitlines())
    of_kind = {label.text: label.label for label in read if label.question == "kind"}
    assert of_kind == {str(one.state): label for one, label in DECISIONS}
    assert [label.label for label in read if label.question == "loud"] == [False]

    arguments = ("ask", "--model", "local", "--choice", "kind=zint,blorp", "--boolean", "loud", "--json")
    asked = await run(*arguments, "--labels", str(file), "another blorp, blue", environ=environ)
    assert asked.code == 0, asked.errors
    assert asked.json["answers"]["kind"]["choice"] == "blorp"


@pytest.mark.slow
async def test_what_cannot_be_labelled_or_exported_is_one_sentence(
    environ: dict[str, str], tmp_path: Path
) -> None:
    kind = ("--question", "kind", "--answer")
    wrong, foreign, person, nobody, csv, nothing = await asyncio.gather(
        labelled(environ, *kind, "glonk", "--by", "Ada"),
        labelled(environ, *kind, "zint", "--by", "Ada", "--tenant", "globex"),
        labelled(environ, *kind, "zint", "--by", "person-7"),
        labelled(environ, *kind, "zint", "--by", " "),
        run("history", "export", str(tmp_path / "x.csv"), "--labelled", *TENANT, environ=environ),
        run("history", "stats", "--calibration", "--tenant", "globex", environ=environ),
    )
    assert wrong.sentence == "question 'kind' takes one of zint, blorp, not 'glonk'"
    assert "tenant 'globex' has no decision" in foreign.sentence
    assert "--by holds the id of the person" in person.sentence
    assert "--by NAME" in nobody.sentence
    assert csv.sentence == "labels are JSON lines; name the file .jsonl, or use --format jsonl"
    assert [each.code for each in (wrong, foreign, person, nobody, csv)] == [1] * 5
    assert (nothing.code, "nobody has labelled" in nothing.output) == (0, True)
