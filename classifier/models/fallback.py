"""Several decision models, asked in order until one answers. Pure; the models do the I/O."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import reduce

from classifier.errors import AuthenticationFailed, ConfigurationError, ModelError, QuotaExhausted
from classifier.models.protocol import DecisionModel, DecisionRequest
from classifier.questions import QuestionType
from classifier.result import DecisionResponse
from classifier.values import JSON


class Fallback:
    """Asks the first model, and the next one where that one cannot serve now.

    The next one is asked after an error that is retryable (no connection, overload, too many requests, an
    answer that could not be read), after a spent quota and after a refused key. It is never asked after a
    refusal, which is an answer; after an answer that contradicts itself, since another model must not paper
    over that; nor after a request that was not accepted or is too large, since it would hide a limit.

    The response is the answering model's own: its name, its usage. What failed before it is in `warnings` and
    as `[{"provider", "model", "code"}, …]` under "fallback" in `provider_metadata`.

    Where none answers, the first retryable error is raised, since that model may recover, else the last one.

    Args:
        models: At least two, in order. Only question types that all of them answer are supported.

    Raises:
        ConfigurationError: Fewer than two models.
    """

    def __init__(self, models: Sequence[DecisionModel]) -> None:
        if len(models) < 2:  # noqa: PLR2004 - one to fail and one to fall back on
            raise ConfigurationError("a fallback needs at least two models")
        self._models = tuple(models)

    @property
    def provider(self) -> str:
        """Always "fallback"; a response names the provider that answered."""
        return "fallback"

    @property
    def name(self) -> str:
        """All models in order."""
        return ", ".join(f"{model.provider} {model.name}" for model in self._models)

    @property
    def question_types(self) -> frozenset[QuestionType]:
        """What all of them can answer."""
        return reduce(frozenset[QuestionType].intersection, (model.question_types for model in self._models))

    def __repr__(self) -> str:
        return f"Fallback({list(self._models)!r})"

    def configure(self, environ: Mapping[str, str]) -> Sequence[str]:
        """Configures every model; gives back the problems of all."""
        return [problem for model in self._models for problem in model.configure(environ)]

    async def decide(self, request: DecisionRequest) -> DecisionResponse:
        """Asks each model at most once; see the class for which errors lead to the next."""
        errors: list[ModelError] = []
        for model in self._models:
            try:
                response = await model.decide(request)
            except ModelError as error:
                errors.append(error)
                if not _leads_on(error):
                    break
            else:
                return self._recorded(response, errors)
        raise next((error for error in errors if error.retryable), errors[-1])

    async def aclose(self) -> None:
        """Closes every model."""
        for model in self._models:
            await model.aclose()

    def _recorded(self, response: DecisionResponse, errors: Sequence[ModelError]) -> DecisionResponse:
        if not errors:
            return response
        failed = list(zip(self._models, errors, strict=False))
        entries: JSON = [
            {"provider": model.provider, "model": model.name, "code": error.code} for model, error in failed
        ]
        said = tuple(f"{model.provider} {model.name!r} failed with {error.code}" for model, error in failed)
        return replace(
            response,
            warnings=(*said, *response.warnings),
            provider_metadata={**response.provider_metadata, "fallback": entries},
        )


def _leads_on(error: ModelError) -> bool:
    return error.retryable or isinstance(error, QuotaExhausted | AuthenticationFailed)
