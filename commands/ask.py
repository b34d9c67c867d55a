"""`classifier ask`: typed questions about one text, answered at once; needs no Temporal and no database."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from rich.console import Console

from classifier.answers import Answer, BooleanAnswer, ChoiceAnswer, Refusal, ScoreAnswer, answers_to_json
from classifier.app import App
from classifier.classifier import Classifier
from classifier.errors import ConfigurationError
from classifier.labels import read_labels, with_examples
from classifier.models.local.model import LocalModel
from classifier.models.protocol import DecisionModel
from classifier.question_files import parse_questions
from classifier.questions import Boolean, Choice, Question, Score, check_questions
from classifier.result import ClassifierResult
from classifier.tracing import installed
from classifier.values import JSON, State, as_text
from commands.show import bar, print_json, say, table
from worker import Settings, app_of

LOCAL = "local"
_SHORT = 40


@dataclass(frozen=True, slots=True, kw_only=True)
class Asking:
    """What the command line says.

    Attributes:
        state: The text, or "-" for standard input.
        file: A file that holds the text.
        structured: Whether the text is JSON, to be sent as such.
        questions: A file of questions.
        booleans: `id=question`, or an id alone.
        choices: `id=option,option,…`.
        scores: `id=lowest,…,highest`.
        labels: A file of corrected decisions, which become examples.
        classifier: A classifier of the app, by key or id.
        model: A model of the app, by key.
    """

    state: str | None = None
    file: Path | None = None
    structured: bool = False
    questions: Path | None = None
    booleans: Sequence[str] = ()
    choices: Sequence[str] = ()
    scores: Sequence[str] = ()
    labels: Path | None = None
    classifier: str | None = None
    model: str | None = None


class WrongUsage(Exception):
    """The command line contradicts itself or lacks something; the message says what to do."""


async def ask(settings: Settings, asking: Asking, *, as_json: bool, console: Console) -> bool:
    """Asks, and prints the answers; whether every question was answered.

    Raises:
        WrongUsage: The command line cannot be meant so.
        ConfigurationError: A file, a question, the app or the model is not usable.
        ModelError: The model gave no usable answer.
    """
    questions = _questions(asking)
    state = _state(asking)
    classifier = _classifier(settings, asking, questions)
    started = time.perf_counter()
    try:
        result: ClassifierResult[Any] = await classifier.evaluate(state)
    finally:
        await cast("DecisionModel", classifier.model).aclose()
    milliseconds = (time.perf_counter() - started) * 1000
    asked = classifier.questions or {}
    if as_json:
        print_json(_body(result, milliseconds))
    else:
        _show(asked, result, milliseconds, console)
    return not any(isinstance(answer, Refusal) for answer in result.answers.values())


def _questions(asking: Asking) -> dict[str, Question]:
    """Everything that is asked, from the file and the flags."""
    questions: dict[str, Question] = {}
    if asking.questions is not None:
        questions |= parse_questions(_content(asking.questions), source=str(asking.questions))
    for name, question in _flagged(asking):
        if name in questions:
            raise WrongUsage(f"question {name!r} is given twice")
        questions[name] = question
    if asking.classifier is None and not questions:
        raise WrongUsage("nothing is asked; give --questions, --boolean, --choice, --score or --classifier")
    if asking.classifier is not None and asking.model is not None:
        raise WrongUsage("--classifier has a model of its own; leave --model out")
    if questions:
        check_questions(questions)
    return questions


def _flagged(asking: Asking) -> Iterator[tuple[str, Question]]:
    for flag in asking.booleans:
        name, _, instructions = (part.strip() for part in flag.partition("="))
        yield name, Boolean(instructions or None)
    for flag in asking.choices:
        name, options = _listed("--choice", flag)
        yield name, Choice(dict.fromkeys(options))
    for flag in asking.scores:
        name, levels = _listed("--score", flag)
        yield name, Score(levels)


def _listed(option: str, flag: str) -> tuple[str, list[str]]:
    name, separator, given = flag.partition("=")
    parts = [part.strip() for part in given.split(",")]
    if not separator or not all(parts) or len(set(parts)) != len(parts):
        raise WrongUsage(f"{option} is written id=one,two,three, each once; not {flag!r}")
    return name.strip(), parts


def _state(asking: Asking) -> State:
    if (asking.state is None) == (asking.file is None):
        raise WrongUsage("give the text as an argument, as --file, or as - to read standard input")
    if asking.file is not None:
        text, source = _content(asking.file), str(asking.file)
    elif asking.state == "-":
        text, source = _decoded(sys.stdin.buffer.read(), "standard input"), "standard input"
    else:
        text, source = asking.state or "", "the argument"
    return _structured(text, source) if asking.structured else text


def _structured(text: str, source: str) -> State:
    try:
        body = json.loads(text)
    except (ValueError, RecursionError):
        body = None
    if not isinstance(body, list | dict):
        raise ConfigurationError(f"{source} does not hold a JSON array or object")
    return cast("State", body)


def _content(path: Path) -> str:
    try:
        return _decoded(path.read_bytes(), str(path))
    except OSError as error:
        raise ConfigurationError(f"{path} cannot be read ({error.strerror})") from None


def _decoded(content: bytes, source: str) -> str:
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise ConfigurationError(f"{source} is not UTF-8 text") from None


def _classifier(settings: Settings, asking: Asking, questions: Mapping[str, Question]) -> Classifier[Any]:
    """A classifier that is ready to be asked, with questions."""
    app = app_of(settings)
    if asking.classifier is None:
        model = _model(app, asking.model)
        _configured(model, settings.environ)
        return Classifier("ask", model, _taught(questions, asking.labels), tracer=installed())
    found = app.resolve(settings.environ).classifiers[asking.classifier]
    own = found.questions
    if own is not None and questions:
        raise WrongUsage(f"classifier {found.id!r} has questions of its own; leave the others out")
    if own is None and not questions:
        raise WrongUsage(f"classifier {found.id!r} has no questions; give some")
    return found.asking(_taught(own or questions, asking.labels))


def _model(app: App, key: str | None) -> DecisionModel:
    if key is None:
        key = next(iter(app.models)) if len(app.models) == 1 else LOCAL
    if key in app.models:
        return app.models[key]
    if key == LOCAL:
        return LocalModel()
    known = ", ".join(app.models) or "none"
    raise ConfigurationError(f"there is no model {key!r}; registered: {known}")


def _configured(model: DecisionModel, environ: Mapping[str, str]) -> None:
    problems = model.configure(environ)
    if problems:
        raise ConfigurationError("; ".join(problems))


def _taught(questions: Mapping[str, Question], labels: Path | None) -> Mapping[str, Question]:
    if labels is None:
        return questions
    return with_examples(questions, read_labels(_content(labels).splitlines(), source=str(labels)))


def _body(result: ClassifierResult[Any], milliseconds: float) -> JSON:
    response, usage, cut = result.response, result.usage, result.truncation
    return {
        "answers": answers_to_json(result.answers),
        "response": {
            "provider": response.provider,
            "requested_model": response.requested_model,
            "model": response.model,
            "id": response.id,
            "request_id": response.request_id,
        },
        "usage": {
            "input_tokens": usage.input_tokens,
            "output_tokens": usage.output_tokens,
            "cost": usage.cost,
        },
        "warnings": list(result.warnings),
        "truncation": None if cut is None else {"original": cut.original, "sent": cut.sent, "by": cut.by},
        "duration_ms": round(milliseconds, 1),
    }


def _show(
    questions: Mapping[str, Question], result: ClassifierResult[Any], milliseconds: float, errors: Console
) -> None:
    rows = [row for name, answer in result.answers.items() for row in _rows(name, questions[name], answer)]
    info = result.response
    title = f"{info.provider} {info.model} · {milliseconds:.0f} ms"
    Console().print(table(title, ["question", "answer", "#probability", ""], rows))
    for warning in result.warnings:
        say(errors, f"warning {warning}")


def _rows(name: str, question: Question, answer: Answer) -> Iterator[tuple[str, str, str, str]]:
    """A line for the answer, and one for each option or level that has a probability."""
    match answer:
        case BooleanAnswer():
            note = "P(yes), uncalibrated: it only ranks" if answer.calibrated is False else "P(yes)"
            yield name, note, *_share(answer.probability)
        case ChoiceAnswer():
            yield name, answer.choice, *_share(answer.probability)
            for option, probability in (answer.probabilities or {}).items():
                if option != answer.choice:
                    yield "", f"  {option}", *_share(probability)
        case ScoreAnswer():
            levels = cast("Score", question).levels
            yield name, f"{answer.score:.2f} of {len(levels) - 1}", "", ""
            for level, probability in enumerate(answer.probabilities or ()):
                yield "", f"  {level} {_shortened(levels[level])}".rstrip(), *_share(probability)
        case Refusal():
            yield name, f"refused ({answer.signal})", "", ""


def _share(probability: float | None) -> tuple[str, str]:
    return ("", "") if probability is None else (f"{probability:.2f}", bar(probability))


def _shortened(level: JSON) -> str:
    text = "" if level is None else as_text(level)
    return text if len(text) <= _SHORT else f"{text[: _SHORT - 1]}…"
