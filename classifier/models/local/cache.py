"""Vectors of criteria kept on disk, so that a worker's second start does not encode them again."""

from __future__ import annotations

import hashlib
import logging
import os
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Final

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .encoder import Encoder, Floats

_log: Final = logging.getLogger(__name__)
_UNIT_TOLERANCE: Final = 1e-3


class VectorCache:
    """Encodes texts, or reads their vectors from `folder` where they were encoded before.

    One file per list of texts, named by a hash of the encoder and the texts. Files that cannot be read or
    do not hold what they should are written anew; a folder that cannot be written costs time, no answer.
    """

    def __init__(self, encoder: Encoder, folder: Path | None) -> None:
        self._encoder = encoder
        self._folder = folder

    def vectors(self, texts: Sequence[str]) -> Floats:
        """One unit row per text."""
        if not texts:
            return np.empty((0, self._encoder.dimensions), dtype=np.float32)
        if self._folder is None:
            return self._encoder.encode(texts)
        path = self._folder / f"{self._key(texts)}.npy"
        known = self._read(path, len(texts))
        if known is not None:
            return known
        rows = self._encoder.encode(texts)
        self._write(path, rows)
        return rows

    def _key(self, texts: Sequence[str]) -> str:
        joined = "\0".join([self._encoder.name, *(text.replace("\0", "\0\0") for text in texts)])
        return hashlib.sha256(joined.encode("utf-8", "surrogatepass")).hexdigest()

    def _read(self, path: Path, count: int) -> Floats | None:
        try:
            rows = np.load(path, allow_pickle=False)
        except FileNotFoundError:
            return None
        except (OSError, ValueError, EOFError) as error:
            _log.warning(
                "cached vectors in %s are unreadable (%s) and are made anew", path.name, type(error).__name__
            )
            return None
        if rows.shape != (count, self._encoder.dimensions) or rows.dtype != np.float32:
            return None
        lengths = np.einsum("ij,ij->i", rows, rows)
        return rows if bool(np.all(np.abs(lengths - 1) < _UNIT_TOLERANCE)) else None

    def _write(self, path: Path, rows: Floats) -> None:
        """In one step, so that no reader ever sees half a file."""
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            handle, temporary = tempfile.mkstemp(dir=path.parent, suffix=".tmp")
            try:
                with os.fdopen(handle, "wb") as file:
                    np.save(file, rows, allow_pickle=False)
                Path(temporary).replace(path)
            finally:
                Path(temporary).unlink(missing_ok=True)
        except OSError as error:
            _log.warning("vectors cannot be kept in %s (%s)", path.parent, error.strerror)
