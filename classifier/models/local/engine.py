"""The numeric half of the local model: an encoder, its constants and heads, and compiled questions.

Everything here blocks; `thread.py` keeps it off the event loop.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import numpy as np

from classifier.answers import Answer, BooleanAnswer, ChoiceAnswer, ScoreAnswer
from classifier.errors import ConfigurationError
from classifier.questions import Boolean, Choice, Score, instructions_of, question_to_json
from classifier.values import digest

from .blas import limit_blas_threads
from .cache import VectorCache
from .encoder import E5Encoder, SparrowEncoder, best_encoder
from .phrases import described, plain, split_phrases
from .recipe import CONSTANTS, BooleanRecipe, ChoiceRecipe, Criteria, Sides, boolean_recipe, teach_choice
from .text import cut
from .trained import Head, trained_for

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from classifier.questions import Question

    from .encoder import Encoder, Family, Floats

_PHRASE_SHARE: Final = 0.5
_COMPILED: Final = 256


@dataclass(frozen=True, slots=True)
class CompiledBoolean:
    """A boolean question; `probability` comes from the recipe or from a trained head."""

    source: BooleanRecipe | Head
    calibrated: bool
    warnings: tuple[str, ...] = ()

    def answer(self, vector: Floats) -> Answer:
        """P(true) for one text."""
        return BooleanAnswer(self.source.probability(vector), calibrated=self.calibrated)


@dataclass(frozen=True, slots=True)
class CompiledChoice:
    """A choice question."""

    options: tuple[str, ...]
    recipe: ChoiceRecipe
    warnings: tuple[str, ...] = ()

    def answer(self, vector: Floats) -> Answer:
        """The most probable option for one text, with all probabilities."""
        values = self.recipe.probabilities(vector).tolist()
        best = max(range(len(values)), key=values.__getitem__)
        return ChoiceAnswer(self.options[best], dict(zip(self.options, values, strict=True)))


@dataclass(frozen=True, slots=True)
class CompiledScore:
    """A score question."""

    recipe: ChoiceRecipe
    warnings: tuple[str, ...] = ()

    def answer(self, vector: Floats) -> Answer:
        """The mean level for one text, with the distribution."""
        values = self.recipe.probabilities(vector).tolist()
        return ScoreAnswer(sum(level * value for level, value in enumerate(values)), tuple(values))


Compiled: TypeAlias = CompiledBoolean | CompiledChoice | CompiledScore


class Engine:
    """An encoder with compiled questions.

    Args:
        encoder: "e5", "sparrow", or None for the best that loads.
        cache_dir: Where vectors of criteria are kept between runs; None keeps them in memory only.
        blas_threads: For numpy's BLAS, process-wide; None leaves it alone.
        max_chars: Where texts of examples are cut, as the texts they are compared with are.

    Raises:
        ModuleNotFoundError: The packages of the extra `local` are not installed.
        BadModelFileError: They are, with other content than the pinned versions have.
    """

    def __init__(
        self, encoder: Family | None, cache_dir: Path | None, *, blas_threads: int | None, max_chars: int
    ) -> None:
        if blas_threads is not None:
            limit_blas_threads(blas_threads)
        self.encoder, self.note = _load(encoder)
        self._constants = CONSTANTS[self.encoder.family]
        self._trained = trained_for(self.encoder.family)
        self._cache = VectorCache(self.encoder, cache_dir)
        self._max_chars = max_chars
        self._compiled: OrderedDict[str, Compiled] = OrderedDict()

    def compiled(self, name: str, question: Question, head: str | None) -> Compiled:
        """A question ready to answer; made once per wording.

        Raises:
            ConfigurationError: There is no such head, or the question is not a boolean.
        """
        key = digest([name, head, question_to_json(question)])
        if key not in self._compiled:
            self._compiled[key] = self._compile(name, question, head)
            if len(self._compiled) > _COMPILED:
                self._compiled.popitem(last=False)
        return self._compiled[key]

    def _compile(self, name: str, question: Question, head: str | None) -> Compiled:
        if head is not None:
            return self._with_head(name, question, head)
        match question:
            case Boolean():
                return self._boolean(name, question)
            case Choice():
                return self._choice(question)
            case Score():
                return self._score(name, question)

    def _with_head(self, name: str, question: Question, head: str) -> Compiled:
        if not isinstance(question, Boolean):
            raise ConfigurationError(f"question {name!r} is a {question.kind}; heads answer booleans only")
        if head not in self._trained.heads:
            known = ", ".join(sorted(self._trained.heads))
            raise ConfigurationError(f"question {name!r} asks for the head {head!r}; there is only: {known}")
        unused = (
            (f"{name}: the examples are not used, the head {head!r} answers",) if question.examples else ()
        )
        return CompiledBoolean(self._trained.heads[head], calibrated=True, warnings=unused)

    def _boolean(self, name: str, question: Boolean) -> Compiled:
        true = plain(question.true)
        false = plain(question.false)
        vectors = self._cache.vectors
        sides = Sides(
            question=vectors([plain(instructions_of(name, question)) or name]),
            true=vectors([true] if true else []),
            false=vectors([false] if false else []),
            phrases=vectors(split_phrases(true)),
        )
        recipe = boolean_recipe(sides, self._trained.population, self._constants.even)
        if question.examples:
            texts = [example.text for example in question.examples]
            recipe = recipe.taught(
                self._examples(texts), [bool(example.label) for example in question.examples]
            )
        few = question.examples and not recipe.calibrated
        warnings = (f"{name}: too few examples on one side; the answer only ranks",) if few else ()
        return CompiledBoolean(recipe, calibrated=recipe.calibrated, warnings=warnings)

    def _choice(self, question: Choice[Any]) -> Compiled:
        options = tuple(question.options)
        descriptions = [plain(text) for text in question.options.values()]
        whole = [described(name, text) for name, text in zip(options, descriptions, strict=True)]
        learned = None
        if question.examples:
            rows = self._examples([example.text for example in question.examples])
            labels = [options.index(example.label) for example in question.examples]
            learned = teach_choice(rows, labels, self._trained.population.mean)
        criteria = self._criteria(whole, descriptions)
        return CompiledChoice(
            options, ChoiceRecipe(criteria, _PHRASE_SHARE, self._constants.temperature, learned)
        )

    def _score(self, name: str, question: Score) -> Compiled:
        top = len(question.levels) - 1
        whole = [plain(text) or f"{index} of {top}" for index, text in enumerate(question.levels)]
        constants = self._constants
        recipe = ChoiceRecipe(
            self._criteria(whole, whole), constants.level_phrases, constants.level_temperature
        )
        unused = (
            (f"{name}: examples of a score are not used by the local model",) if question.examples else ()
        )
        return CompiledScore(recipe, unused)

    def _criteria(self, whole: Sequence[str], descriptions: Sequence[str]) -> Criteria:
        """Each criterion by its whole text and its phrases; one without a description by its name twice."""
        phrases = [split_phrases(text) or (full,) for text, full in zip(descriptions, whole, strict=True)]
        starts = np.cumsum([0, *(len(group) for group in phrases[:-1])]).tolist()
        rows = self._cache.vectors([*whole, *(phrase for group in phrases for phrase in group)])
        return Criteria(rows[: len(whole)], rows[len(whole) :], starts)

    def _examples(self, texts: Sequence[str]) -> Floats:
        return self._cache.vectors([cut(text, self._max_chars)[0] for text in texts])


def _load(encoder: Family | None) -> tuple[Encoder, str | None]:
    match encoder:
        case "e5":
            return E5Encoder(), None
        case "sparrow":
            return SparrowEncoder(), None
        case None:
            return best_encoder()
