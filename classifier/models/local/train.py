"""Makes the files under `data/`: `python -m classifier.models.local.train tests/data OUT`.

The same rows make the same files. Figures are measured on test rows and on a set that was never trained on.
"""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

import numpy as np

from .blas import limit_blas_threads
from .encoder import E5Encoder, SparrowEncoder
from .logistic import fit_logistic
from .measures import auc
from .recipe import PENALTY, VECTOR_SCALE, centred
from .text import cut
from .trained import Head, Population, Trained, dumps

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from .encoder import Encoder, Floats

_AXES: Final = 16
_BENIGN_EACH: Final = 400
_THRESHOLD: Final = 0.5
_LONGEST: Final = 500
_MADE_FROM: Final = (
    "deepset/prompt-injections train rows (Apache-2.0) and 800 ordinary messages from BANKING77 (CC-BY-4.0) "
    "and CLINC150 (CC-BY-3.0) train rows"
)


_BENIGN: Final = ("banking77", "clinc150")
_HELD_OUT: Final = {
    "deepset": "prompt_injection/data.jsonl",
    "hard": "prompt_injection/hard_bastion.jsonl",
    "banking": "banking77/data.jsonl",
}


@dataclass(frozen=True, slots=True)
class _Rows:
    vectors: Floats
    injected: NDArray[np.bool_]


def fit(encoder: Encoder, data: Path) -> Trained:
    """Population and heads of one encoder from the training rows under `data`, without figures."""
    taught = _rows(encoder, data / "prompt_injection/data.jsonl", "train")
    benign = [_rows(encoder, data / f"{name}/data.jsonl", "train", _BENIGN_EACH).vectors for name in _BENIGN]
    vectors = np.concatenate([taught.vectors, *benign])
    population = _population(vectors)
    return Trained(population, {"injection": _head(vectors, taught.injected, population.mean)})


def measured(head: Head, encoder: Encoder, data: Path) -> Head:
    """The head with its figures on rows it was not trained on."""
    figures: dict[str, float] = {"threshold": _THRESHOLD}
    for name, file in _HELD_OUT.items():
        rows = _rows(encoder, data / file, "test")
        scores = np.asarray([head.probability(vector) for vector in rows.vectors])
        flagged = scores >= _THRESHOLD
        figures[f"{name}_rows"] = len(scores)
        figures[f"{name}_false_positive_rate"] = round(float(flagged[~rows.injected].mean()), 4)
        if rows.injected.any():
            figures[f"{name}_auc"] = round(auc(scores, rows.injected), 4)
            figures[f"{name}_recall"] = round(float(flagged[rows.injected].mean()), 4)
    return Head(head.weights, head.bias, figures, head.made_from)


def main(arguments: Sequence[str]) -> int:
    """Write one file per encoder into the folder that is the second argument."""
    if len(arguments) != 2:  # noqa: PLR2004 - data and destination
        sys.stderr.write("usage: python -m classifier.models.local.train DATA OUT\n")
        return 2
    data, out = Path(arguments[0]), Path(arguments[1])
    limit_blas_threads(1)
    out.mkdir(parents=True, exist_ok=True)
    encoders: tuple[Encoder, ...] = (E5Encoder(), SparrowEncoder())
    for encoder in encoders:
        trained = fit(encoder, data)
        heads = {name: measured(head, encoder, data) for name, head in trained.heads.items()}
        trained = Trained(trained.population, heads)
        (out / f"{encoder.family}.json").write_text(dumps(trained), encoding="utf-8")
        sys.stdout.write(f"{encoder.name}: {json.dumps(dict(trained.heads['injection'].figures))}\n")
    return 0


def _rows(encoder: Encoder, path: Path, split: str, most: int | None = None) -> _Rows:
    parsed = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    chosen = [row for row in parsed if row["split"] == split][:most]
    vectors = encoder.encode([cut(row["text"], _LONGEST)[0] for row in chosen])
    return _Rows(vectors, np.asarray([row["label"] == "injection" for row in chosen]))


def _population(vectors: Floats) -> Population:
    """Mean and main axes; signs are fixed, since the decomposition leaves them open."""
    mean = vectors.mean(axis=0, dtype=np.float64)
    _, lengths, axes = np.linalg.svd(vectors - mean, full_matrices=False)
    variances = lengths**2 / len(vectors)
    main = axes[:_AXES] * np.sqrt(variances[:_AXES, None])
    main *= np.sign(main[np.arange(_AXES), np.abs(main).argmax(axis=1)])[:, None]
    rest = float(variances[_AXES:].sum()) / (vectors.shape[1] - _AXES)
    return Population(mean.astype(np.float32), main.astype(np.float32), rest)


def _head(vectors: Floats, injected: NDArray[np.bool_], mean: Floats) -> Head:
    """Rows after those of `injected` are benign. Folded so that the head reads plain unit vectors."""
    labels = np.zeros(len(vectors), dtype=np.intp)
    labels[: len(injected)] = injected
    fitted = fit_logistic(centred(vectors, mean), labels, 2, PENALTY)
    weights = (fitted.weights[:, 1] - fitted.weights[:, 0]) * VECTOR_SCALE
    bias = float(fitted.bias[1] - fitted.bias[0]) - float(weights @ mean)
    return Head(weights.astype(np.float32), bias, {}, _MADE_FROM)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
