"""Every adapter has one name in `classifier.models`, and naming none of them loads nothing."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import subprocess
import sys

import pytest

from classifier import models
from tests.tree import ROOT

CODE = "import sys\nfrom classifier.models import {name}\nprint(*sys.modules)"
HEAVY = {"aiohttp", "httpx", "numpy", "openai"}


def loaded_with(name: str) -> set[str]:
    command = [sys.executable, "-c", CODE.format(name=name)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    return set(done.stdout.split()) & HEAVY


def test_every_name_is_where_it_says() -> None:
    assert sorted(models.__all__, key=str.lower) == sorted(models._HOME_OF, key=str.lower)
    for name in models.__all__:
        assert getattr(models, name).__name__ == name
    assert set(models.__all__) <= set(dir(models))


def test_every_decision_model_has_a_name() -> None:
    found = {
        cls.__name__
        for module in pkgutil.iter_modules(models.__path__)
        if not module.ispkg
        for _, cls in inspect.getmembers(
            importlib.import_module(f"classifier.models.{module.name}"), inspect.isclass
        )
        if all(hasattr(cls, member) for member in ("decide", "configure", "question_types"))
    }
    assert found - set(models.__all__) == set()


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="Jev"):
        _ = models.Jev


@pytest.mark.parametrize("name", ["DecisionModel", "ScriptedModel, Fallback, Limited, LocalModel"])
def test_what_needs_no_driver_loads_none(name: str) -> None:
    assert loaded_with(name) == set()


def test_an_adapter_over_http_loads_neither_openai_nor_numpy() -> None:
    assert loaded_with("SystemOne, GeminiModel, ClefModel, DecisionsModel") == {"aiohttp", "httpx"}
