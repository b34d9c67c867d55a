"""Vectors on disk: found again, never trusted blindly, never in the way."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import numpy as np
import pytest

from classifier.models.local.cache import VectorCache

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from classifier.models.local.encoder import Family, Floats, SparrowEncoder

TEXTS = ["lost card", "stolen phone"]


class CountingEncoder:
    """The small encoder, with the number of texts it was given."""

    def __init__(self, inner: SparrowEncoder, name: str = "counted") -> None:
        self._inner = inner
        self.family: Family = inner.family
        self.name, self.dimensions = name, inner.dimensions
        self.encoded = 0

    def encode(self, texts: Sequence[str]) -> Floats:
        self.encoded += len(texts)
        return self._inner.encode(texts)

    def count(self, text: str) -> int:
        return self._inner.count(text)


def test_a_second_run_encodes_nothing(tmp_path: Path, sparrow_encoder: SparrowEncoder) -> None:
    first = VectorCache(CountingEncoder(sparrow_encoder), tmp_path / "vectors").vectors(TEXTS)
    encoder = CountingEncoder(sparrow_encoder)
    np.testing.assert_array_equal(VectorCache(encoder, tmp_path / "vectors").vectors(TEXTS), first)
    assert encoder.encoded == 0
    assert [path.suffix for path in (tmp_path / "vectors").iterdir()] == [".npy"]


def test_another_encoder_does_not_find_them(tmp_path: Path, sparrow_encoder: SparrowEncoder) -> None:
    VectorCache(CountingEncoder(sparrow_encoder), tmp_path).vectors(TEXTS)
    other = CountingEncoder(sparrow_encoder, name="another")
    VectorCache(other, tmp_path).vectors(TEXTS)
    assert other.encoded == 2


@pytest.mark.filterwarnings("ignore:Reading `.npy`")
@pytest.mark.parametrize("damage", [b"", b"not numpy", None])
def test_a_damaged_file_is_written_anew(
    tmp_path: Path, sparrow_encoder: SparrowEncoder, damage: bytes | None
) -> None:
    good = VectorCache(CountingEncoder(sparrow_encoder), tmp_path).vectors(TEXTS)
    path = next(tmp_path.iterdir())
    whole = path.read_bytes()
    path.write_bytes(whole[:-100] if damage is None else damage)
    np.testing.assert_array_equal(
        VectorCache(CountingEncoder(sparrow_encoder), tmp_path).vectors(TEXTS), good
    )
    assert path.read_bytes() == whole


def test_a_file_with_other_numbers_is_written_anew(tmp_path: Path, sparrow_encoder: SparrowEncoder) -> None:
    good = VectorCache(CountingEncoder(sparrow_encoder), tmp_path).vectors(TEXTS)
    path = next(tmp_path.iterdir())
    np.save(path, good * np.float32("nan"))
    np.testing.assert_array_equal(
        VectorCache(CountingEncoder(sparrow_encoder), tmp_path).vectors(TEXTS), good
    )


def test_a_folder_that_cannot_be_written_costs_no_answer(
    tmp_path: Path, sparrow_encoder: SparrowEncoder, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").write_text("in the way")
    with caplog.at_level(logging.WARNING):
        rows = VectorCache(CountingEncoder(sparrow_encoder), tmp_path / "file").vectors(TEXTS)
    assert len(rows) == 2
    assert "cannot be kept" in caplog.text
