"""Fresh state folders for the embedded stack."""

from __future__ import annotations

import subprocess
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from embedded.stack import Stack
from tests.embedded.helpers import leave_traces

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Generator


@pytest.fixture
def home() -> Generator[Path]:
    """An empty state folder whose parents every account may enter, unlike those of `tmp_path`."""
    with tempfile.TemporaryDirectory(prefix="embedded-") as folder:
        yield Path(folder)


@pytest.fixture(scope="package")
async def template() -> AsyncGenerator[Path]:
    """A stopped state folder with one row and one open workflow, made once since `initdb` takes its time."""
    with tempfile.TemporaryDirectory(prefix="embedded-") as folder:
        async with Stack(Path(folder)) as stack:
            await leave_traces(stack.addresses)
        yield Path(folder)


@pytest.fixture
def used(home: Path, template: Path) -> Path:
    """A state folder of its own for this test, with the traces of an earlier stack."""
    _copy(template, home)
    return home


@pytest.fixture(scope="module")
def kept(template: Path) -> Generator[Path]:
    """The same, shared by the tests that leave it as sound as they found it."""
    with tempfile.TemporaryDirectory(prefix="embedded-") as folder:
        _copy(template, Path(folder))
        yield Path(folder)


@pytest.fixture(scope="module")
async def shared() -> AsyncGenerator[Stack]:
    """One running stack for the tests that only look at it."""
    with tempfile.TemporaryDirectory(prefix="embedded-") as folder:
        async with Stack(Path(folder)) as stack:
            yield stack


def _copy(template: Path, home: Path) -> None:
    subprocess.run(["cp", "-a", f"{template}/.", str(home)], check=True)
