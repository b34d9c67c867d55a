"""`classifier ask`: questions from files and flags, a text from anywhere, answers for people and machines."""

from __future__ import annotations

import io
import json
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import pytest

import cli
from tests.servers import Answer, Call, in_thread

APP = """\
from classifier.answers import BooleanAnswer, ChoiceAnswer, Refusal, ScoreAnswer
from classifier.app import App
from classifier.classifier import Classifier
from classifier.errors import RateLimited
from classifier.models.scripted import ScriptedModel
from classifier.models.systemone import SystemOne
from classifier.questions import Boolean

ANSWERS = {
    "urgent": BooleanAnswer(0.8),
    "topic": ChoiceAnswer("billing [bold]", {"billing [bold]": 0.75, "other": 0.25}),
    "mood": ScoreAnswer(1.2, (0.1, 0.6, 0.3)),
    "refused": Refusal("blocked"),
}


def reply(request):
    if request.state == "fail":
        return RateLimited("scripted received too many requests")
    if request.state == {"exact": [1]}:
        return {name: BooleanAnswer(1.0) for name in request.questions}
    return {name: ANSWERS[name] for name in request.questions}


one = App(models={"m": ScriptedModel(reply)})
two = App(
    models={"m": ScriptedModel(reply), "remote": SystemOne("jev", base_url="%s", api_key="k" * 8)},
    classifiers=[Classifier("safe", "m", {"urgent": Boolean()}), Classifier("open", "m")],
)
keyless = App(models={"typesafe": SystemOne()})
"""
QUESTIONS = """\
topic: {type: choice, options: ["billing [bold]", other]}
mood: {type: score, levels: [bad, null, good]}
"""


@dataclass(frozen=True)
class Done:
    """What a command left behind."""

    returncode: int
    stdout: str
    stderr: str


Ask: TypeAlias = Callable[..., Done]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project's folder, in an environment of its own that reaches neither Temporal nor a database."""
    (tmp_path / "asked.py").write_text(APP % "http://127.0.0.1:9")
    (tmp_path / "questions.yaml").write_text(QUESTIONS)
    monkeypatch.chdir(tmp_path)
    for name in [name for name in os.environ if name not in {"PATH", "HOME"}]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("DATABASE_URL", "postgresql://127.0.0.1:1/none")
    monkeypatch.setenv("TEMPORAL_ADDRESS", "127.0.0.1:1")
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.setattr(sys, "path", [*sys.path])
    return tmp_path


@pytest.fixture
def ask(folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Ask:
    """Runs `classifier ask` in this process, from its arguments to its exit code."""

    def run(*arguments: str, app: str = "asked:one", text: str = "") -> Done:
        monkeypatch.delitem(sys.modules, "asked", raising=False)
        monkeypatch.setattr(sys, "argv", ["classifier", "ask", "--app", app, *arguments])
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(text.encode())))
        with pytest.raises(SystemExit) as left:
            cli.main()
        captured = capsys.readouterr()
        return Done(int(left.value.code or 0), captured.out, captured.err)

    return run


def body_of(done: Done) -> Any:
    assert done.returncode in {0, 3}, done.stderr
    return json.loads(done.stdout)


def test_a_table_shows_answers_with_bars_and_neither_temporal_nor_a_database_is_there(ask: Ask) -> None:
    done = ask("--questions", "questions.yaml", "--boolean", "urgent=Is it?", "a text")
    assert (done.returncode, done.stderr) == (0, "")
    lines = [line.split() for line in done.stdout.splitlines()]
    assert lines[0][:3] == ["scripted", "scripted-1", "·"]
    assert lines[2:] == [
        ["topic", "billing", "[bold]", "0.75", "█" * 15],
        ["other", "0.25", "█" * 5],
        ["mood", "1.20", "of", "2"],
        ["0", "bad", "0.10", "█" * 2],
        ["1", "0.60", "█" * 12],
        ["2", "good", "0.30", "█" * 6],
        ["urgent", "P(yes)", "0.80", "█" * 16],
    ]


def test_a_refusal_is_shown_and_is_exit_code_3(ask: Ask) -> None:
    done = ask("--boolean", "refused", "--boolean", "urgent", "text")
    assert done.returncode == 3
    assert "refused (blocked)" in done.stdout
    assert "0.80" in done.stdout


def test_json_is_one_document_with_answers_and_where_they_came_from(ask: Ask) -> None:
    done = ask("--score", "mood=bad, fair,good", "--boolean", "refused", "--json", "text")
    assert done.returncode == 3
    body = body_of(done)
    assert body["answers"] == {
        "refused": {"type": "refusal", "signal": "blocked"},
        "mood": {"type": "score", "score": 1.2, "probabilities": [0.1, 0.6, 0.3]},
    }
    assert body["response"]["model"] == "scripted-1"
    assert body["usage"] == {"input_tokens": 4, "output_tokens": 2, "cost": None}
    assert body["duration_ms"] > 0


def test_the_text_comes_from_standard_input_or_a_file_and_may_be_json(ask: Ask, folder: Path) -> None:
    (folder / "state.json").write_bytes(b'\xef\xbb\xbf{"exact": [1]}')
    for arguments, text in ((["--file", "state.json"], ""), (["-"], '{"exact": [1]}')):
        done = ask("--boolean", "new", "--structured", "--json", *arguments, text=text)
        assert body_of(done)["answers"]["new"]["probability"] == 1.0


def test_a_classifier_of_the_app_brings_its_own_questions_and_model(ask: Ask) -> None:
    done = ask("--classifier", "safe", "--json", "text", app="asked:two")
    assert list(body_of(done)["answers"]) == ["urgent"]
    done = ask("--classifier", "open", "--boolean", "urgent", "--json", "text", app="asked:two")
    assert list(body_of(done)["answers"]) == ["urgent"]


def test_a_service_is_asked_over_http_and_its_warnings_are_shown(ask: Ask, folder: Path) -> None:
    calls: list[Call] = []

    def reply(call: Call) -> Answer:
        calls.append(call)
        answers = {"urgent": {"type": "noul", "noul": 0.5}}
        return Answer({"answers": answers, "truncated": True, "usage": {"input_tokens": "?"}})

    with in_thread(reply) as server:
        (folder / "asked.py").write_text(APP % server.url)
        done = ask("--model", "remote", "--boolean", "urgent=Now?", "text", app="asked:two")
    assert done.returncode == 0, done.stderr
    assert calls[0].json["questions"] == {"urgent": {"type": "noul", "instructions": "Now?"}}
    assert done.stderr.splitlines() == [
        "warning the service cut the state",
        "warning the answer does not name its model",
        "warning usage could not be read completely",
    ]


def test_corrected_decisions_are_examples_for_the_local_model(ask: Ask, folder: Path) -> None:
    rows = [{"question": "kind", "text": f"{w} {n}", "label": w} for w in ("blorp", "zint") for n in range(9)]
    (folder / "labels.jsonl").write_text("\n".join(map(json.dumps, rows)))
    arguments = ("--model", "local", "--labels", "labels.jsonl", "--choice", "kind=zint,blorp")
    done = ask(*arguments, "--json", "blorp 99")
    assert body_of(done)["answers"]["kind"]["choice"] == "blorp"


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["text"], "nothing is asked"),
        (["--boolean", "q"], "give the text"),
        (["--boolean", "q", "--file", "x", "text"], "give the text"),
        (["--boolean", "q=a", "--boolean", "q=b", "text"], "'q' is given twice"),
        (["--choice", "q", "text"], "id=one,two,three"),
        (["--score", "q=a,,b", "text"], "id=one,two,three"),
        (["--choice", "q=a,a", "text"], "each once"),
        (["--classifier", "safe", "--model", "m", "text"], "leave --model out"),
        (["--classifier", "safe", "--boolean", "q", "text"], "questions of its own"),
        (["--classifier", "open", "text"], "has no questions"),
    ],
)
def test_a_command_line_that_cannot_be_meant_is_exit_code_2(
    ask: Ask, arguments: list[str], complaint: str
) -> None:
    done = ask(*arguments, app="asked:two")
    assert done.returncode == 2
    assert complaint in " ".join(done.stderr.replace("│", " ").split())
    assert done.stdout == ""


@pytest.mark.parametrize(
    ("arguments", "app", "complaint"),
    [
        (["--questions", "none.yaml", "text"], "one", "none.yaml cannot be read (No such file or directory)"),
        (["--questions", "broken.yaml", "text"], "one", "question 'q': a choice needs `options`"),
        (["--boolean", "urgent", "--file", "none.txt"], "one", "none.txt cannot be read"),
        (["--boolean", "urgent", "--file", "latin.txt"], "one", "latin.txt is not UTF-8 text"),
        (["--boolean", "urgent", "--structured", "3"], "one", "does not hold a JSON array or object"),
        (["--boolean", "urgent", "--model", "x", "text"], "two", "no model 'x'; registered: m, remote"),
        (["--classifier", "x", "text"], "two", "no classifier 'x'"),
        (["--boolean", "urgent", "text"], "keyless", "set TYPESAFE_API_KEY"),
        (["--boolean", "urgent", "fail"], "one", "too many requests"),
        (["--score", "mood=only", "text"], "one", "at least two levels"),
        (["--boolean", "urgent", "--labels", "bad.jsonl", "text"], "one", "bad.jsonl, line 1"),
    ],
)
def test_a_failure_is_one_sentence_and_exit_code_1(
    ask: Ask, folder: Path, arguments: list[str], app: str, complaint: str
) -> None:
    (folder / "broken.yaml").write_text("q: {type: choice}")
    (folder / "bad.jsonl").write_text("{}")
    (folder / "latin.txt").write_bytes(b"caf\xe9")
    done = ask(*arguments, app=f"asked:{app}")
    assert done.returncode == 1
    assert done.stderr.startswith("error ")
    assert complaint in done.stderr
    assert "Traceback" not in done.stderr
