"""The project's own source as the structure tests read it: modules, imports, functions, calls."""

from __future__ import annotations

import ast
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
NOBODYS_CA = str(ROOT / "tests" / "data" / "nobodys_ca.pem")
"""A certificate that signs nothing."""


@lru_cache(maxsize=1)
def pyproject() -> dict[str, Any]:
    """pyproject.toml."""
    return tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))


def shipped_names() -> list[str]:
    """What the wheel is built from, as pyproject.toml declares it."""
    names: list[str] = pyproject()["tool"]["hatch"]["build"]["targets"]["wheel"]["only-include"]
    return names


@dataclass(frozen=True)
class Module:
    """One Python file, by its import name."""

    name: str
    path: Path

    @cached_property
    def text(self) -> str:
        """Its source."""
        return self.path.read_text(encoding="utf-8")

    @cached_property
    def tree(self) -> ast.Module:
        """Its syntax tree."""
        return ast.parse(self.text, str(self.path))

    @property
    def is_package(self) -> bool:
        """Whether it is an `__init__.py`."""
        return self.path.name == "__init__.py"

    @cached_property
    def nodes(self) -> tuple[ast.AST, ...]:
        """Everything in it."""
        return tuple(ast.walk(self.tree))

    @cached_property
    def imports(self) -> frozenset[str]:
        """What it imports, anywhere in it; names of modules where `from package import module` names one."""
        found: set[str] = set()
        for node in self.nodes:
            if isinstance(node, ast.Import):
                found |= {alias.name for alias in node.names}
            elif isinstance(node, ast.ImportFrom):
                source = self._source(node)
                full = {f"{source}.{alias.name}" for alias in node.names}
                found |= full & by_name().keys() or {source}
        return frozenset(found)

    def _source(self, node: ast.ImportFrom) -> str:
        if not node.level:
            return node.module or ""
        parts = self.name.split(".")
        package = parts[: len(parts) - node.level + self.is_package]
        return ".".join([*package, *([node.module] if node.module else [])])

    def functions(self) -> Iterator[tuple[str, int]]:
        """Every function, as where it is and how many lines it has without its docstring."""
        for node in self.nodes:
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                yield f"{self.path.relative_to(ROOT)}:{node.lineno} {node.name}", _length(node)


def _length(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    length = (function.end_lineno or function.lineno) - function.lineno + 1
    first = function.body[0]
    if ast.get_docstring(function) is not None:
        length -= (first.end_lineno or first.lineno) - first.lineno + 1
    return length


def _modules(name: str) -> Iterator[Module]:
    path = ROOT / name
    for file in [path] if path.is_file() else sorted(path.rglob("*.py")):
        parts = file.relative_to(ROOT).with_suffix("").parts
        yield Module(".".join(parts[:-1] if parts[-1] == "__init__" else parts), file)


@lru_cache(maxsize=1)
def shipped() -> tuple[Module, ...]:
    """Every module of the wheel."""
    return tuple(module for name in shipped_names() for module in _modules(name))


@lru_cache(maxsize=1)
def checked() -> tuple[Module, ...]:
    """Every module beside the wheel: tests and examples."""
    return (*_modules("tests"), *_modules("examples"))


@lru_cache(maxsize=1)
def by_name() -> dict[str, Module]:
    """Shipped modules by name."""
    return {module.name: module for module in shipped()}


def within(name: str, packages: tuple[str, ...]) -> bool:
    """Whether a module is one of these, or in one of these."""
    return any(name == package or name.startswith(f"{package}.") for package in packages)


def top(name: str) -> str:
    """The first part of a dotted name."""
    return name.partition(".")[0]
