"""What is shipped: the wheel's contents, the public names, and pins that a stranger can install from."""

from __future__ import annotations

import importlib.metadata
import re
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

import classifier
from tests.tree import ROOT, pyproject, shipped, shipped_names

CONSTRAINTS = ROOT / "constraints.txt"
DATA = re.compile(r"\.(json|mako|npz|txt|typed|ya?ml)$")


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> zipfile.ZipFile:
    """The wheel, built as a release is."""
    folder = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    (path,) = folder.glob("*.whl")
    return zipfile.ZipFile(path)


@pytest.fixture(scope="module")
def wheel(built: zipfile.ZipFile) -> list[str]:
    """The files of the wheel, without what describes it."""
    return [name for name in built.namelist() if ".dist-info/" not in name]


def test_the_wheel_holds_exactly_what_is_declared(wheel: list[str]) -> None:
    assert sorted({name.partition("/")[0] for name in wheel}) == sorted(shipped_names())


def test_the_wheel_holds_every_module_and_all_data(wheel: list[str]) -> None:
    files = {module.path for module in shipped()}
    for name in shipped_names():
        files |= {path for path in (ROOT / name).rglob("*") if DATA.search(path.name)}
    expected = {path.relative_to(ROOT).as_posix() for path in files if path.is_file()}
    assert expected - set(wheel) == set()
    assert {"classifier/py.typed", "classifier/audit/migrations/script.py.mako"} <= set(wheel)
    assert any(name.startswith("classifier/audit/migrations/versions/0001") for name in wheel)
    assert any(name.startswith("classifier/models/local/data/") for name in wheel)


def test_the_wheel_holds_nothing_but_code_and_data(wheel: list[str]) -> None:
    assert [name for name in wheel if not (name.endswith(".py") or DATA.search(name))] == []


def test_migrations_and_data_are_found_in_the_wheel_alone(built: zipfile.ZipFile, tmp_path: Path) -> None:
    built.extractall(tmp_path)
    code = (
        "import sys; sys.path.insert(0, '.')\n"
        "import cli, worker, classifier.audit.schema as schema\n"
        "from classifier.default_app import app\n"
        "print(schema.__file__, schema.head(), *app.problems({}))"
    )
    command = [sys.executable, "-W", "error", "-c", code]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    file, head = done.stdout.split()
    assert Path(file).resolve().is_relative_to(tmp_path.resolve())
    assert (
        head == max(path.name for path in (ROOT / "classifier/audit/migrations/versions").glob("0*.py"))[:4]
    )


def test_no_dependency_ships_a_name_of_ours() -> None:
    ours = {name.removesuffix(".py") for name in shipped_names()} | {"tests"}
    own = canonicalize_name(pyproject()["project"]["name"])
    taken = {
        (name, distribution)
        for name, distributions in importlib.metadata.packages_distributions().items()
        for distribution in distributions
        if name in ours and canonicalize_name(distribution) != own
    }
    assert taken == set()


@pytest.mark.parametrize("name", classifier.__all__)
def test_every_public_name_is_there(name: str) -> None:
    assert getattr(classifier, name) is not None
    assert name in dir(classifier)


def test_public_names_are_listed_once_and_in_order() -> None:
    assert classifier.__all__ == sorted(set(classifier.__all__), key=_order)


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'Clasifier'"):
        classifier.Clasifier  # noqa: B018 - the access itself is what fails


def test_constraints_name_no_host_and_pin_exactly() -> None:
    text = CONSTRAINTS.read_text(encoding="utf-8")
    assert "://" not in text
    assert "--" not in text
    assert [line for line in _lines() if "==" not in line] == []


def test_constraints_pin_everything_that_is_asked_for() -> None:
    pinned: dict[str, list[Requirement]] = {}
    for requirement in map(Requirement, _lines()):
        pinned.setdefault(canonicalize_name(requirement.name), []).append(requirement)
    wanted = list(map(Requirement, _declared()))
    assert {each.name for each in wanted if canonicalize_name(each.name) not in pinned} == set()
    outside = {
        str(each)
        for each in wanted
        for pin in pinned[canonicalize_name(each.name)]
        if not all(each.specifier.contains(version.version) for version in pin.specifier)
    }
    assert outside == set()


def _declared() -> list[str]:
    """Every requirement of pyproject.toml, in all its lists."""
    project = pyproject()
    lists = [
        project["project"]["dependencies"],
        *project["project"]["optional-dependencies"].values(),
        *project["dependency-groups"].values(),
    ]
    return [requirement for each in lists for requirement in each]


def _lines() -> list[str]:
    lines = (line.partition("#")[0].strip() for line in CONSTRAINTS.read_text(encoding="utf-8").splitlines())
    return [line for line in lines if line]


def _order(name: str) -> tuple[int, str]:
    """Constants, then classes, then functions, as ruff sorts them."""
    kind = 0 if name.isupper() else 1 if name[0].isupper() else 2
    return kind, name
