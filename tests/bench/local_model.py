"""What the local model can do, on labelled rows: `python -m tests.bench.local_model [--out DIR]`."""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from classifier.answers import BooleanAnswer, ChoiceAnswer, ScoreAnswer
from classifier.models.local.measures import auc, spearman
from classifier.models.local.model import LocalModel
from classifier.models.protocol import DecisionRequest
from classifier.questions import Boolean, Choice, Score

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from classifier.answers import Answer
    from classifier.questions import Question
    from classifier.values import JSON

DATA = Path(__file__).parents[1] / "data"
INJECTION = Boolean("Does the message try to give instructions to an AI system?")
MOOD = Score(
    [
        "very negative, a complaint about something broken or terrible, strongly disappointed",
        "negative, dissatisfied, something does not work well",
        "neutral, a plain statement of fact without praise or complaint",
        "positive, satisfied, works well",
        "very positive, delighted, excellent, love it",
    ],
    "How satisfied is the customer?",
)


@dataclass(frozen=True, slots=True)
class ChoiceFigures:
    """Share right, and how many answers reach 0.8 and are right among those."""

    rows: int
    accuracy: float
    coverage: float
    accuracy_covered: float
    cpu_ms: float


@dataclass(frozen=True, slots=True)
class ScoreFigures:
    """Correlation of ranks with the mean of twenty raters."""

    rows: int
    spearman: float
    cpu_ms: float


@dataclass(frozen=True, slots=True)
class BooleanFigures:
    """How well the injection head separates and what it flags at 0.5; None where a side has no rows."""

    rows: int
    auc: float | None
    recall: float | None
    false_positive_rate: float | None
    cpu_ms: float


def rows_of(name: str, split: str = "test", file: str = "data") -> list[dict[str, Any]]:
    """Labelled rows of one data set."""
    lines = (DATA / name / f"{file}.jsonl").read_text(encoding="utf-8").splitlines()
    return [row for row in map(json.loads, lines) if row["split"] == split]


def departments() -> Choice[str]:
    """Eight departments of a bank."""
    return _choice("banking77/departments.json", "Which department should handle this message?")


def domains() -> Choice[str]:
    """Ten domains of a voice assistant."""
    return _choice("clinc150/domains.json", "What is this about?")


async def answers_to(
    model: LocalModel,
    rows: Sequence[Mapping[str, Any]],
    question: Question,
    options: Mapping[str, JSON] | None = None,
) -> tuple[list[Answer], float]:
    """Answers in order, and milliseconds of CPU per text; the question is compiled beforehand."""
    await model.decide(DecisionRequest("a first text", {"q": question}, options or {}))
    started = time.process_time()
    requests = [DecisionRequest(row["text"], {"q": question}, options or {}) for row in rows]
    responses = await asyncio.gather(*map(model.decide, requests))
    return [response.answers["q"] for response in responses], (time.process_time() - started) * 1000 / len(
        rows
    )


async def choice_figures(
    model: LocalModel, rows: Sequence[Mapping[str, Any]], question: Choice[str]
) -> ChoiceFigures:
    """Accuracy over rows whose label is an option."""
    known = [row for row in rows if row["label"] in question.options]
    answers, cpu_ms = await answers_to(model, known, question)
    given = [cast("ChoiceAnswer[str]", answer) for answer in answers]
    right = [answer.choice == row["label"] for answer, row in zip(given, known, strict=True)]
    sure = [ok for answer, ok in zip(given, right, strict=True) if (answer.probability or 0) >= 0.8]
    return ChoiceFigures(
        len(right), sum(right) / len(right), len(sure) / len(right), sum(sure) / max(1, len(sure)), cpu_ms
    )


async def score_figures(
    model: LocalModel, rows: Sequence[Mapping[str, Any]], question: Score
) -> ScoreFigures:
    """Spearman's correlation with the labels."""
    answers, cpu_ms = await answers_to(model, rows, question)
    scores = [cast("ScoreAnswer", answer).score for answer in answers]
    return ScoreFigures(len(rows), spearman(scores, [row["label"] for row in rows]), cpu_ms)


async def injection_figures(model: LocalModel, rows: Sequence[Mapping[str, Any]]) -> BooleanFigures:
    """The trained head; where no row is an injection, only the false positives mean something."""
    answers, cpu_ms = await answers_to(model, rows, INJECTION, {"heads": {"q": "injection"}})
    scores = [cast("BooleanAnswer", answer).probability for answer in answers]
    hits = [score for score, row in zip(scores, rows, strict=True) if row["label"] == "injection"]
    misses = [score for score, row in zip(scores, rows, strict=True) if row["label"] != "injection"]
    area = auc(scores, [row["label"] == "injection" for row in rows]) if hits and misses else None
    return BooleanFigures(len(rows), area, _share(hits), _share(misses), cpu_ms)


async def measure(model: LocalModel) -> dict[str, ChoiceFigures | ScoreFigures | BooleanFigures]:
    """Every figure that is stated in the documentation."""
    try:
        return {
            "banking77": await choice_figures(model, rows_of("banking77"), departments()),
            "clinc150": await choice_figures(model, rows_of("clinc150"), domains()),
            "review_sentiment": await score_figures(model, rows_of("review_sentiment"), MOOD),
            "injection": await injection_figures(model, rows_of("prompt_injection")),
            "injection_hard": await injection_figures(
                model, rows_of("prompt_injection", file="hard_bastion")
            ),
            "injection_on_banking77": await injection_figures(model, rows_of("banking77")),
        }
    finally:
        await model.aclose()


def main(arguments: Sequence[str]) -> int:
    """Print a table per encoder; with `--out` also write `local_model.json`."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, help="folder for local_model.json")
    out = cast("Path | None", parser.parse_args(arguments).out)
    models = {"e5": LocalModel(encoder="e5"), "sparrow": LocalModel(encoder="sparrow")}
    found = {name: asyncio.run(measure(model)) for name, model in models.items()}
    body = {
        encoder: {name: asdict(figures) for name, figures in sets.items()} for encoder, sets in found.items()
    }
    for encoder, sets in body.items():
        for name, figures in sets.items():
            shown = "  ".join(f"{key} {value:.3g}" for key, value in figures.items() if value is not None)
            print(f"{encoder:8} {name:24} {shown}")
    if out is not None:
        out.mkdir(parents=True, exist_ok=True)
        (out / "local_model.json").write_text(json.dumps(body, indent=1) + "\n", encoding="utf-8")
    return 0


def _choice(path: str, instructions: str) -> Choice[str]:
    options: dict[str, str] = json.loads((DATA / path).read_text(encoding="utf-8"))
    return Choice(options, instructions)


def _share(scores: Sequence[float]) -> float | None:
    return sum(score >= 0.5 for score in scores) / len(scores) if scores else None


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
