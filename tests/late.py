"""Imports that take seconds, made where tests use them and not in every process that collects tests.

if TYPE_CHECKING:
    from framework import Agent

@pytest.fixture(scope="module", autouse=True)
def framework() -> None:
    late.imports(globals())
"""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Any


def imports(module: dict[str, Any]) -> None:
    """Makes the imports that a module has under `if TYPE_CHECKING:`."""
    path = Path(module["__file__"])
    tree = ast.parse(path.read_text(encoding="utf-8"))
    [block] = [node for node in tree.body if isinstance(node, ast.If) and _is_for_types(node.test)]
    exec(compile(ast.Module(block.body, []), str(path), "exec"), module)


def _is_for_types(test: ast.expr) -> bool:
    return isinstance(test, ast.Name) and test.id == "TYPE_CHECKING"
