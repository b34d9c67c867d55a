"""An app: everything by key or id, and every reason why it cannot start, at once."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from classifier.answers import BooleanAnswer
from classifier.app import App, load_app
from classifier.classifier import Classifier
from classifier.errors import ConfigurationError
from classifier.models.decisions import DecisionsModel
from classifier.models.scripted import ScriptedModel
from classifier.playbook import Outbox, Playbook
from classifier.processor import ClassifierProcessor
from classifier.questions import Boolean, Question

QUESTIONS: dict[str, Question] = {"unsafe": Boolean("?")}


class Closing(ScriptedModel):
    """Remembers whether it was closed and what it was configured with."""

    closed = 0
    environ: Mapping[str, str] | None = None

    def configure(self, environ: Mapping[str, str]) -> Sequence[str]:
        self.environ = environ
        return super().configure(environ)

    async def aclose(self) -> None:
        self.closed += 1


def model(**fields: Any) -> Closing:
    return Closing(lambda request: {"unsafe": BooleanAnswer(0.1)}, **fields)


def classifier(id: str = "safety", model: Any = "fast", questions: Any = QUESTIONS) -> Classifier[Any]:  # noqa: A002 - the word of the domain
    return Classifier(id, model, questions)


def playbook(id: str = "tickets", **fields: Any) -> Playbook[Any]:  # noqa: A002 - the word of the domain
    given: dict[str, Any] = {
        "classifier": "safety",
        "routes": ("a",),
        "destinations": {"*": Outbox("x")},
        "gates": {},
        **fields,
    }
    return Playbook(id=id, route=lambda answers: "a", **given)


def problems(app: App, environ: Mapping[str, str] | None = None) -> str:
    with pytest.raises(ConfigurationError) as raised:
        app.resolve(environ or {})
    return str(raised.value)


async def test_keys_and_ids_both_resolve() -> None:
    fast = model()
    app = App(
        models={"fast": fast},
        classifiers={"guard": classifier("safety")},
        playbooks={"main": playbook("tickets", classifier="guard")},
    )
    resolved = app.resolve({"KEY": "value"})
    assert resolved.classifiers["guard"] is resolved.classifiers["safety"]
    assert resolved.playbooks["main"] is resolved.playbooks["tickets"]
    assert resolved.classifier_of(resolved.playbooks["main"]) is resolved.classifiers["safety"]
    assert fast.environ == {"KEY": "value"}
    result = await resolved.classifiers["guard"].evaluate("text")
    assert result.answers["unsafe"] == BooleanAnswer(0.1)
    await resolved.aclose()
    assert fast.closed == 1


def test_every_problem_is_listed_at_once() -> None:
    choosy = model(question_types=frozenset({"choice"}))
    app = App(
        models={"fast": choosy, "paid": DecisionsModel()},
        classifiers={
            "a": classifier("safety", "fast"),
            "b": classifier("safety", "paid"),
            "c": classifier("lost", "slow"),
            "d": classifier("empty", "paid", None),
        },
        playbooks=[
            playbook("one", classifier="toxicty"),
            playbook("two", classifier="d"),
            playbook("three", classifier="b", gates={"mood": 0.5}),
            playbook("four", classifier="b", destinations={}),
            playbook("four", classifier="b"),
        ],
    )
    listed = problems(app)
    for expected in (
        "OPENAI_API_KEY",
        "two classifiers answer to 'safety': key 'a' (id 'safety') and key 'b' (id 'safety')",
        "two playbooks answer to 'four'",
        "classifier 'lost' names the model 'slow'; registered: fast, paid",
        "classifier 'safety': scripted 'scripted' answers choice questions, not unsafe",
        "playbook 'one' names the classifier 'toxicty'; registered: a, safety, b, c, lost, d, empty",
        "playbook 'two' needs a classifier with questions; 'empty' has none",
        "playbook 'three': a gate is set for 'mood'",
        "playbook 'four' has no destination for route 'a'",
    ):
        assert expected in listed
    assert listed.count("\n- ") == 9


def test_a_key_that_is_the_id_of_another_is_ambiguous() -> None:
    app = App(models={"fast": model()}, classifiers={"x": classifier("y"), "y": classifier("z")})
    assert "two classifiers answer to 'y': key 'x' (id 'y') and key 'y' (id 'z')" in problems(app)


def test_a_classifier_inside_a_playbook_cannot_take_the_id_of_another() -> None:
    inline = classifier("safety", model())
    registered = App(
        models={"fast": model()}, classifiers=[classifier()], playbooks=[playbook(classifier=inline)]
    )
    assert "two classifiers answer to 'safety'" in problems(registered)
    twice = App(
        playbooks=[
            playbook("one", classifier=inline),
            playbook("two", classifier=classifier("safety", model())),
        ]
    )
    assert "two classifiers answer to 'safety'" in problems(twice)


async def test_a_classifier_inside_a_playbook_needs_no_registration() -> None:
    inline = model()
    shared = classifier("safety", inline)
    app = App(playbooks=[playbook("one", classifier=shared), playbook("two", classifier=shared)])
    resolved = app.resolve({})
    assert resolved.classifier_of(resolved.playbooks["one"]).model is inline
    await resolved.aclose()
    assert inline.closed == 1


def test_an_unknown_name_lists_the_known() -> None:
    resolved = App(models={"fast": model()}, classifiers=[classifier()]).resolve({})
    with pytest.raises(ConfigurationError, match="no classifier 'toxicity'; registered: safety"):
        resolved.classifiers["toxicity"]
    with pytest.raises(ConfigurationError, match="no playbook 'x'; registered: none"):
        resolved.playbooks["x"]
    assert list(resolved.classifiers) == ["safety"]


def test_an_empty_app_starts() -> None:
    assert list(App().resolve({}).classifiers) == []


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    name = "an_app_of_a_project"
    source = """
from classifier.app import App
app = App()
number = 5
kind = App
def make():
    return App()
def lost():
    return None
"""
    (tmp_path / f"{name}.py").write_text(source)
    (tmp_path / "needs_more.py").write_text("import a_module_that_is_not_there\n")
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    sys.modules.pop(name, None)
    return name


@pytest.mark.parametrize("name", ["app", "make"])
def test_an_app_is_loaded_by_module_and_name(module: str, name: str) -> None:
    assert isinstance(load_app(f"{module}:{name}"), App)


@pytest.mark.parametrize("name", ["missing", "number", "kind", "lost"])
def test_what_is_not_an_app_is_said(module: str, name: str) -> None:
    with pytest.raises(ConfigurationError, match=f"'{module}:{name}' is not an App"):
        load_app(f"{module}:{name}")


@pytest.mark.parametrize("reference", ["", "module", "module:", ":name", ".relative:app"])
def test_a_malformed_reference_is_said(reference: str) -> None:
    with pytest.raises(ConfigurationError, match="module:name"):
        load_app(reference)


@pytest.mark.parametrize("reference", ["no_such_module_here:app", "no_such.module:app", "needs_more:app"])
def test_a_module_that_is_not_there_is_named(module: str, reference: str) -> None:
    with pytest.raises(ConfigurationError, match="cannot be imported: No module named"):
        load_app(reference)


def guard(id: str, **options: Any) -> ClassifierProcessor[Any]:  # noqa: A002 - the word of the domain
    return ClassifierProcessor(
        id=id,
        classifier=classifier(f"of {id}", model()),
        on_result=lambda answers, context: None,
        **options,
    )


def test_an_app_that_requires_a_guard_does_not_start_without_one() -> None:
    assert "require_guard asks for a guard of input; no processor declares that phase" in problems(
        App(require_guard=("input",))
    )
    undeclared = App(processors=[guard("a")], require_guard=("input",))
    assert "a guard of input" in problems(undeclared)
    monitored = App(processors=[guard("a", phases=("input",), mode="monitor")], require_guard=("input",))
    assert "input is only monitored, by 'a'" in problems(monitored)
    assert "the phase 'inptu'" in problems(App(require_guard=("inptu",)))  # type: ignore[arg-type]


def test_an_app_whose_required_phases_are_guarded_starts() -> None:
    guards = [guard("a", phases=("input", "output")), guard("b", phases=("input",), mode="monitor")]
    app = App(processors=guards, require_guard=("input", "output"))
    assert list(app.resolve({}).processors) == ["a", "b"]
