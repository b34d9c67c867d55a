"""The forward pass of multilingual-e5-small in numpy: token ids in, unit sentence vectors out.

The tokens of all texts of a batch are one matrix, so that every weight is read once per batch; only attention
runs text by text. That is where the throughput comes from: a batch of eight costs half of eight single texts.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeAlias

import numpy as np

from .e5file import unpack

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from .e5file import ModelFile, Shape

    Floats: TypeAlias = NDArray[np.float32]

_GELU_SCALE: Final = np.float32((2 / np.pi) ** 0.5)
_GELU_CUBIC: Final = np.float32(0.044715)


@dataclass(frozen=True, slots=True)
class _Layer:
    qkv: Floats
    qkv_bias: Floats
    out: Floats
    out_bias: Floats
    attention_norm: tuple[Floats, Floats]
    inner: Floats
    inner_bias: Floats
    outer: Floats
    outer_bias: Floats
    norm: tuple[Floats, Floats]


@dataclass(frozen=True, slots=True)
class _Space:
    """Buffers of one call. Fresh pages for every product would cost a fifth of the whole."""

    qkv: Floats
    context: Floats
    hidden: Floats
    inner: Floats
    gate: Floats

    @classmethod
    def of(cls, tokens: int, shape: Shape) -> _Space:
        widths = (3 * shape.hidden, shape.hidden, shape.hidden, shape.inner, shape.inner)
        return cls(*(np.empty((tokens, width), dtype=np.float32) for width in widths))


class Transformer:
    """Mean-pooled, normalised sentence vectors. Holds no state between calls; safe from many threads."""

    def __init__(self, file: ModelFile) -> None:
        self.shape = shape = file.shape
        self._words = file.packed("emb.word").reshape(-1, shape.hidden // 32)
        self._positions = (
            file.floats("emb.pos").reshape(-1, shape.hidden) + file.floats("emb.type")[: shape.hidden]
        )
        self._norm = (file.floats("emb.ln.w"), file.floats("emb.ln.b"))
        self._layers = [_read_layer(file, i) for i in range(shape.layers)]

    def __call__(self, batch: Sequence[Sequence[int]]) -> Floats:
        """Unit vectors, one row per token list (each non-empty, at most `shape.positions` long)."""
        ends = [int(end) for end in np.cumsum([len(ids) for ids in batch])]
        spans = list(zip([0, *ends[:-1]], ends, strict=True))
        x = unpack(self._words[np.concatenate([np.asarray(ids) for ids in batch])])
        x += np.concatenate([self._positions[: len(ids)] for ids in batch])
        space = _Space.of(len(x), self.shape)
        self._normalise(x, self._norm)
        for layer in self._layers:
            self._run(layer, x, spans, space)
        pooled = np.stack([x[a:b].mean(axis=0) for a, b in spans])
        pooled /= np.linalg.norm(pooled, axis=1, keepdims=True)
        return pooled

    def _run(self, layer: _Layer, x: Floats, spans: Sequence[tuple[int, int]], space: _Space) -> None:
        """One layer, in place on `x`."""
        qkv, inner = space.qkv, space.inner
        np.matmul(x, layer.qkv, out=qkv)
        qkv += layer.qkv_bias
        self._attend(space, spans)
        x += np.matmul(space.context, layer.out, out=space.hidden)
        x += layer.out_bias
        self._normalise(x, layer.attention_norm)
        np.matmul(x, layer.inner, out=inner)
        inner += layer.inner_bias
        _gelu(inner, space.gate)
        x += np.matmul(inner, layer.outer, out=space.hidden)
        x += layer.outer_bias
        self._normalise(x, layer.norm)

    def _attend(self, space: _Space, spans: Sequence[tuple[int, int]]) -> None:
        """Every text attends to its own tokens only; the result goes to `space.context`."""
        heads, hidden = self.shape.heads, self.shape.hidden
        for start, end in spans:
            parts = space.qkv[start:end].reshape(end - start, 3, heads, hidden // heads).transpose(1, 2, 0, 3)
            weights = parts[0] @ parts[1].transpose(0, 2, 1)
            weights -= weights.max(axis=-1, keepdims=True)
            np.exp(weights, out=weights)
            weights /= weights.sum(axis=-1, keepdims=True)
            space.context[start:end] = (weights @ parts[2]).transpose(1, 0, 2).reshape(end - start, hidden)

    def _normalise(self, x: Floats, norm: tuple[Floats, Floats]) -> None:
        """Layer normalisation, in place."""
        x -= x.mean(axis=1, keepdims=True)
        variance = np.einsum("ij,ij->i", x, x) / np.float32(x.shape[1])
        x *= (1 / np.sqrt(variance + np.float32(self.shape.epsilon)))[:, None]
        x *= norm[0]
        x += norm[1]


def _gelu(x: Floats, gate: Floats) -> None:
    """GELU in place, as x / (1 + exp(-2u)): the tanh form, one exponential cheaper, scratch in `gate`.

    It moves sentence vectors by less than the four-bit weights do.
    """
    np.multiply(x, x, out=gate)
    gate *= -2 * _GELU_SCALE * _GELU_CUBIC
    gate -= 2 * _GELU_SCALE
    gate *= x
    with np.errstate(over="ignore"):  # exp of a large number is infinity, and x / infinity is the right 0
        np.exp(gate, out=gate)
    gate += 1
    x /= gate


def _read_layer(file: ModelFile, index: int) -> _Layer:
    shape = file.shape
    scale = np.float32((shape.hidden // shape.heads) ** -0.5)

    def matrix(name: str, inputs: int) -> Floats:
        return np.ascontiguousarray(file.floats(f"l{index}.{name}").reshape(-1, inputs).T)

    def vector(name: str) -> Floats:
        return file.floats(f"l{index}.{name}")

    # The scale of attention is folded into the query weights: one pass over the scores less.
    return _Layer(
        qkv=np.hstack(
            [matrix("q.w", shape.hidden) * scale, matrix("k.w", shape.hidden), matrix("v.w", shape.hidden)]
        ),
        qkv_bias=np.concatenate([vector("q.b") * scale, vector("k.b"), vector("v.b")]),
        out=matrix("ao.w", shape.hidden),
        out_bias=vector("ao.b"),
        attention_norm=(vector("aln.w"), vector("aln.b")),
        inner=matrix("fi.w", shape.hidden),
        inner_bias=vector("fi.b"),
        outer=matrix("fo.w", shape.inner),
        outer_bias=vector("fo.b"),
        norm=(vector("oln.w"), vector("oln.b")),
    )
