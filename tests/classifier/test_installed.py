"""Apps and playbooks that installed packages offer: found by name, and nothing is imported to list them."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from classifier.app import ENTRY_POINTS, App, Installed, installed_apps, load_app
from classifier.errors import ConfigurationError

MODULE = """
from classifier.app import App
from classifier.classifier import Classifier
from classifier.models.scripted import ScriptedModel
from classifier.playbook import Outbox, Playbook
from classifier.questions import Boolean

letters = Playbook(
    id="letters",
    classifier=Classifier("letters", ScriptedModel([]), {"unsafe": Boolean("?")}),
    routes=("a",),
    route=lambda answers: "a",
    gates={},
    destinations={"*": Outbox("x")},
)
app = App(playbooks=[letters])
"""

Install = Callable[..., None]


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Install:
    """Puts packages where Python finds them: a module, and a folder that describes it."""
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    for name in ("letters_of_one", "letters_of_another"):
        monkeypatch.delitem(sys.modules, name, raising=False)

    def installed(package: str, source: str = MODULE, **offered: str) -> None:
        (tmp_path / f"{package}.py").write_text(source)
        described = tmp_path / f"{package}-1.0.dist-info"
        described.mkdir()
        (described / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.0\n")
        entries = "\n".join(f"{name} = {reference}" for name, reference in offered.items())
        (described / "entry_points.txt").write_text(f"[{ENTRY_POINTS}]\n{entries}\n")

    return installed


def test_an_app_and_a_playbook_are_found_by_the_name_a_package_gives_them(install: Install) -> None:
    install("letters_of_one", whole="letters_of_one:app", alone="letters_of_one:letters")
    for name in ("whole", "alone", "letters_of_one:app", "letters_of_one:letters"):
        loaded = load_app(name)
        assert isinstance(loaded, App)
        assert [key for key, _ in loaded.playbooks] == ["letters"]
        assert list(loaded.problems({})) == []


def test_what_is_offered_is_listed_without_being_imported(install: Install) -> None:
    install(
        "letters_of_one", "raise RuntimeError", whole="letters_of_one:app", alone="letters_of_one:letters"
    )
    assert installed_apps() == [
        Installed("alone", "letters_of_one:letters", "letters_of_one"),
        Installed("whole", "letters_of_one:app", "letters_of_one"),
    ]


def test_a_name_that_nobody_offers_is_answered_with_the_group_and_what_there_is(install: Install) -> None:
    install("letters_of_one", whole="letters_of_one:app", alone="letters_of_one:letters")
    with pytest.raises(
        ConfigurationError, match=r"temporal_classifier\.apps \(installed: alone, whole\), not"
    ):
        load_app("hole")


def test_a_name_that_two_packages_offer_names_both(install: Install) -> None:
    install("letters_of_one", whole="letters_of_one:app")
    install("letters_of_another", whole="letters_of_another:app")
    with pytest.raises(
        ConfigurationError, match="letters_of_another and letters_of_one both offer an app 'whole'"
    ):
        load_app("whole")


def test_an_offer_that_leads_nowhere_says_where(install: Install) -> None:
    install("letters_of_one", lost="letters_of_one:lost", away="no_such_module_here:app")
    with pytest.raises(ConfigurationError, match="'letters_of_one:lost' is not an App"):
        load_app("lost")
    with pytest.raises(ConfigurationError, match="'no_such_module_here:app' cannot be imported"):
        load_app("away")
