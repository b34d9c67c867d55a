"""Mistakes that a type checker must find: each line that ends in `# error` is one, and no other line is."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
HEAD = """\
from __future__ import annotations
from typing import Literal
from classifier.answers import Answers, BooleanAnswer, ChoiceAnswer, Refusal, ScoreAnswer
from classifier.classifier import Classifier
from classifier.models.protocol import DecisionModel
from classifier.playbook import Outbox, Playbook
from classifier.questions import Boolean, Choice, Questions, Score


class Ticket(Questions):
    unsafe = Boolean("?")
    topic: Choice[Literal["billing", "other"]] = Choice({"billing": None, "other": None})
    severity = Score(["low", "high"])


"""
SNIPPETS = {
    "a_match_without_the_refusal": """\
def route(answers: Ticket) -> str:  # error
    match answers.topic:  # error
        case ChoiceAnswer(choice=label):
            return label
""",
    "a_match_without_an_option": """\
def route(answer: ChoiceAnswer[Literal["billing", "other"]]) -> None:
    match answer.choice:  # error
        case "billing":
            pass
""",
    "a_case_for_an_option_that_is_not_declared": """\
def route(answer: ChoiceAnswer[Literal["billing", "other"]]) -> bool:
    return answer.choice == "biling"  # error
""",
    "a_choice_without_a_word_about_refusals": """\
def route(answers: Ticket) -> str:
    return answers.topic.choice  # error
""",
    "a_probability_without_a_word_about_refusals": """\
def unsafe(answers: Ticket) -> bool:
    return answers.unsafe.probability > 0.5  # error
""",
    "a_score_without_a_word_about_refusals": """\
def severity(answers: Ticket) -> float:
    return answers.severity.score  # error
""",
    "a_threshold_without_a_word_about_refusals": """\
def unsafe(answers: Ticket) -> bool:
    return answers.unsafe.at_least(0.5)  # error
""",
    "a_stand_in_that_is_missing": """\
def route(answers: Ticket) -> str:
    return answers.topic.choice_or()  # error
""",
    "a_question_that_was_not_asked": """\
def route(answers: Ticket) -> object:
    return answers.topics  # error
""",
    "the_member_of_another_type": """\
def route(answers: Ticket) -> object:
    return answers.unsafe.choice_or("x")  # error
""",
    "an_option_outside_of_the_literal": """\
class Wrong(Questions):
    topic: Choice[Literal["billing"]] = Choice({"biling": None})  # error
""",
    "plain_answers_have_no_attributes": """\
async def ask(model: DecisionModel) -> object:
    result = await Classifier("c", model, {"unsafe": Boolean("?")}).evaluate("text")
    return result.answers.unsafe  # error
""",
    "a_state_that_is_not_json": """\
async def ask(model: DecisionModel) -> object:
    return await Classifier("c", model, Ticket).evaluate(5)  # error
""",
    "answers_cannot_be_changed": """\
def change(answers: Ticket, answer: BooleanAnswer) -> None:
    answer.probability = 1.0  # error
    answers["unsafe"] = answer  # error
""",
    "a_route_function_for_other_questions": """\
class Other(Questions):
    spam = Boolean("?")


def route(answers: Other) -> str:
    return "a"


Playbook[Ticket](
    id="p",
    classifier="c",
    routes=("a",),
    route=route,  # error
    destinations={"*": Outbox("x")},
    gates={},
)
""",
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("snippets")
    for name, snippet in SNIPPETS.items():
        (folder / f"{name}.py").write_text(HEAD + snippet)
    return folder


def _marked() -> set[str]:
    """The lines that must be complained about, as file:line."""
    return {
        f"{name}.py:{number}"
        for name, snippet in SNIPPETS.items()
        for number, line in enumerate((HEAD + snippet).splitlines(), 1)
        if line.endswith("# error")
    }


@pytest.mark.slow
def test_mypy_finds_every_mistake_and_no_other(folder: Path) -> None:
    run = subprocess.run(
        [
            *(sys.executable, "-m", "mypy", "--config-file", str(ROOT / "pyproject.toml")),
            *("--no-error-summary", "--hide-error-context"),
            *sorted(str(path) for path in folder.glob("*.py")),
        ],
        capture_output=True,
        text=True,
        check=False,
        cwd=ROOT,
        env={**os.environ, "MYPYPATH": str(ROOT)},
    )
    found = re.findall(r"([a-z_]+\.py:\d+): error: ", run.stdout)
    assert set(found) == _marked(), run.stdout + run.stderr


@pytest.mark.slow
def test_pyright_finds_every_mistake_and_no_other(folder: Path) -> None:
    settings = {
        "typeCheckingMode": "strict",
        "reportMatchNotExhaustive": "error",
        "reportUnusedImport": "none",
        "pythonVersion": "3.11",
        "extraPaths": [str(ROOT)],
    }
    (folder / "pyrightconfig.json").write_text(json.dumps(settings))
    run = subprocess.run(
        [sys.executable, "-m", "pyright", "--outputjson", "--pythonpath", sys.executable],
        capture_output=True,
        text=True,
        check=False,
        cwd=folder,
    )
    report = json.loads(run.stdout)
    errors = [entry for entry in report["generalDiagnostics"] if entry["severity"] == "error"]
    found = {f"{Path(entry['file']).name}:{entry['range']['start']['line'] + 1}" for entry in errors}
    assert found == _marked(), run.stdout
