"""Fresh state folders for the embedded stack."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from embedded.stack import Stack

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Generator


@pytest.fixture
def home() -> Generator[Path]:
    """An empty state folder whose parents every account may enter, unlike those of `tmp_path`."""
    with tempfile.TemporaryDirectory(prefix="embedded-") as folder:
        yield Path(folder)


@pytest.fixture(scope="module")
async def shared() -> AsyncGenerator[Stack]:
    """One running stack for the tests that only look at it."""
    with tempfile.TemporaryDirectory(prefix="embedded-") as folder:
        async with Stack(Path(folder)) as stack:
            yield stack
