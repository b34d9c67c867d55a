"""Keeps numpy's BLAS on one thread. Holds for the whole process, so it is an option of the model.

On two shared cores the second thread of OpenBLAS mostly waits for the first: the same texts cost up to twice
the CPU. Throughput comes from batches instead.
"""

from __future__ import annotations

import ctypes
from importlib.util import find_spec
from typing import Final

_SETTERS: Final = (
    "scipy_openblas_set_num_threads64_",
    "openblas_set_num_threads64_",
    "openblas_set_num_threads",
)


def limit_blas_threads(count: int) -> bool:
    """Set the threads of the OpenBLAS that numpy carries; False where numpy carries another BLAS."""
    spec = find_spec("numpy._core._multiarray_umath")
    if spec is None or spec.origin is None:
        return False
    library = ctypes.CDLL(spec.origin)  # already loaded; looks its symbols up in what it was linked to
    for name in _SETTERS:
        setter = getattr(library, name, None)
        if setter is not None:
            setter(ctypes.c_int(count))
            return True
    return False
