"""Unigram (SentencePiece) tokenizer: the most probable split of each word into known pieces. Pure.

No piece of the vocabulary crosses a word boundary, so words are split one by one and remembered.
"""

from __future__ import annotations

import math
import re
from functools import lru_cache
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from .e5file import Vocabulary

_SPACE: Final = "\u2581"
_UNKNOWN_PENALTY: Final = 10.0
_REMEMBERED_WORDS: Final = 20_000


class UnigramTokenizer:
    """Turns text into the piece ids the network was trained on."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        self._pieces = dict(vocabulary.pieces)
        self._pieces.pop("", None)
        self._scores = vocabulary.scores
        self._normalised = dict(vocabulary.normalised)
        self._begin, self._end, self._unknown = vocabulary.begin, vocabulary.end, vocabulary.unknown
        self._longest = max(map(len, self._pieces))
        self._unknown_score = min(vocabulary.scores) - _UNKNOWN_PENALTY
        self._split = lru_cache(maxsize=_REMEMBERED_WORDS)(self._best_split)

    def encode(self, text: str, limit: int) -> list[int]:
        """Ids of `text` between the begin and end marks, at most `limit` of them in all."""
        ids = [self._begin]
        for word in _words(text.translate(self._normalised)):
            ids.extend(self._split(word))
            if len(ids) >= limit:
                break
        return [*ids[: limit - 1], self._end]

    def _best_split(self, word: str) -> tuple[int, ...]:
        """Viterbi over the characters of one word."""
        size = len(word)
        best = [0.0, *[-math.inf] * size]
        came_from = [(0, self._unknown)] * (size + 1)
        for start in range(size):
            for end in range(start + 1, min(size, start + self._longest) + 1):
                score, piece = self._score(word[start:end])
                if best[start] + score > best[end]:
                    best[end] = best[start] + score
                    came_from[end] = (start, piece)
        ids: list[int] = []
        while size > 0:
            size, piece = came_from[size]
            ids.append(piece)
        return tuple(reversed(ids))

    def _score(self, piece: str) -> tuple[float, int]:
        found = self._pieces.get(piece, self._unknown)
        if found != self._unknown:
            return self._scores[found], found
        # Only a single character may stand for the unknown piece: every word can then be split.
        return (self._unknown_score if len(piece) == 1 else -math.inf), self._unknown


def _words(text: str) -> list[str]:
    """Words with the mark of the space before them; runs of spaces count once."""
    spaced = re.sub(" {2,}", " ", text)
    if not spaced.startswith(" "):
        spaced = " " + spaced
    marked = spaced.replace(" ", _SPACE)
    return [_SPACE + word for word in marked.split(_SPACE)[1:]]
