"""A disk without room: one sentence, whichever server meets it first."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from embedded.errors import EmbeddedError
from embedded.stack import Stack
from tests.embedded.helpers import servers

if TYPE_CHECKING:
    from collections.abc import Generator


@pytest.fixture
def disk(request: pytest.FixtureRequest) -> Generator[Path]:
    """A file system of the given number of kilobytes, which only root can make."""
    if sys.platform != "linux" or os.geteuid() != 0:
        pytest.skip("only root on Linux can mount a small disk")
    with tempfile.TemporaryDirectory(prefix="embedded-") as folder:
        mount = ["mount", "-t", "tmpfs", "-o", f"size={request.param}k,mode=755", "tmpfs", folder]
        if subprocess.run(mount, check=False, capture_output=True).returncode != 0:
            pytest.skip("this machine lets nobody mount a small disk")
        try:
            yield Path(folder)
        finally:
            subprocess.run(["umount", folder], check=True)


@pytest.mark.parametrize("disk", [8, 2_000, 20_000], indirect=True)
@pytest.mark.parametrize("part", ["temporal", "database"])
async def test_a_full_disk_is_named_in_one_sentence(disk: Path, part: str) -> None:
    home = disk / "home"
    filler = disk / "filler"
    if part == "temporal":
        _fill(filler)
    with pytest.raises(EmbeddedError, match=rf"^The disk that holds {disk}\S* is full: free some space"):
        await Stack(home, temporal=part == "temporal", database=part == "database").__aenter__()
    assert servers(home) == {}


def _fill(path: Path) -> None:
    with path.open("wb", buffering=0) as file:
        try:
            while file.write(b"0" * 4096):
                pass
        except OSError:
            return
