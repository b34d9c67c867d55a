"""A classifier: an id, a decision model, and usually its questions. Pure; the model does the I/O."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from typing import Any, Generic, TypeAlias, TypeVar, cast, overload

from classifier.answers import Answers
from classifier.errors import ConfigurationError, QuestionError
from classifier.models.protocol import DecisionModel, DecisionRequest
from classifier.questions import (
    Question,
    Questions,
    check_questions,
    question_set_hash,
    questions_of,
    typed_answers,
)
from classifier.result import ClassifierResult, DecisionResponse
from classifier.tracing import NO_SPANS, Tracer
from classifier.validation import check_answers
from classifier.values import JSON, State, json_copy

A = TypeVar("A", bound=Answers)
Q = TypeVar("Q", bound=Questions)

TransformResult: TypeAlias = Callable[[DecisionResponse], DecisionResponse]
Declared: TypeAlias = "type[Questions] | Mapping[str, Question]"


class Classifier(Generic[A]):
    """Asks one decision model typed questions about a state.

    Args:
        id: Unique in an app; recorded with every decision.
        model: A decision model, or the key of one registered in the app.
        questions: A `Questions` class, or a dictionary; left out where each call brings its own.
        provider_options: Handed to the adapter with every call.
        transform_result: Changes a response before it is checked; for providers with habits of their own.
        tracer: Opens a span for every call; an app gives its own to classifiers without one.

    Raises:
        ConfigurationError: The id is blank.
        QuestionError: A question is malformed.
    """

    @overload
    def __init__(
        self: Classifier[Q],
        id: str,
        model: DecisionModel | str,
        questions: type[Q],
        *,
        provider_options: Mapping[str, JSON] | None = None,
        transform_result: TransformResult | None = None,
        tracer: Tracer = NO_SPANS,
    ) -> None: ...
    @overload
    def __init__(
        self: Classifier[Answers],
        id: str,
        model: DecisionModel | str,
        questions: Mapping[str, Question] | None = None,
        *,
        provider_options: Mapping[str, JSON] | None = None,
        transform_result: TransformResult | None = None,
        tracer: Tracer = NO_SPANS,
    ) -> None: ...
    def __init__(
        self,
        id: str,  # noqa: A002 - the word of the domain
        model: DecisionModel | str,
        questions: Any = None,
        *,
        provider_options: Mapping[str, JSON] | None = None,
        transform_result: TransformResult | None = None,
        tracer: Tracer = NO_SPANS,
    ) -> None:
        if not isinstance(cast("Any", id), str) or not id.strip():
            raise ConfigurationError("a classifier's id must be text that is not blank")
        self.id = id
        self.model = model
        self.declared = cast("Declared | None", questions)
        self.provider_options = _options(provider_options, f"provider_options of classifier {id!r}")
        self.tracer = tracer
        self._transform = transform_result
        self.questions = None if questions is None else _checked(self.declared, id)
        self.question_set = question_set_hash(self.questions or {})  # of every record, so made once

    def __repr__(self) -> str:
        return f"Classifier({self.id!r})"

    def bound(self, model: DecisionModel, tracer: Tracer = NO_SPANS) -> Classifier[A]:
        """The same classifier with its model resolved, and with `tracer` where it has none of its own."""
        used = tracer if self.tracer is NO_SPANS else self.tracer
        if self.model is model and self.tracer is used:
            return self
        bound = copy.copy(self)
        bound.model, bound.tracer = model, used
        return bound

    def asking(self, questions: Mapping[str, Question]) -> Classifier[Answers]:
        """The same classifier with other questions, which its answers are then not typed by.

        Raises:
            QuestionError: A question is malformed.
        """
        other = cast("Classifier[Answers]", copy.copy(self))
        other.declared = dict(questions)
        other.questions = _checked(other.declared, self.id)
        other.question_set = question_set_hash(other.questions)
        return other

    @overload
    async def evaluate(
        self, state: State, *, provider_options: Mapping[str, JSON] | None = None
    ) -> ClassifierResult[A]: ...
    @overload
    async def evaluate(
        self, state: State, questions: type[Q], *, provider_options: Mapping[str, JSON] | None = None
    ) -> ClassifierResult[Q]: ...
    @overload
    async def evaluate(
        self,
        state: State,
        questions: Mapping[str, Question],
        *,
        provider_options: Mapping[str, JSON] | None = None,
    ) -> ClassifierResult[Answers]: ...
    async def evaluate(
        self,
        state: State,
        questions: Any = None,
        *,
        provider_options: Mapping[str, JSON] | None = None,
    ) -> ClassifierResult[Any]:
        """Asks the model once.

        Args:
            state: Text, or a JSON array or object.
            questions: Only for a classifier that was built without its own.
            provider_options: Added to the classifier's own, per key.

        Raises:
            ConfigurationError: Questions given twice or not at all, a state that is not JSON, a question
                type the model cannot answer, or a model that is not resolved.
            ModelError: No usable answer; says whether trying again can help. Never retried here.
        """
        with self.tracer.evaluating(self.id) as span:
            declared = self._declared(cast("Declared | None", questions))
            asked = self.questions or _checked(declared, self.id)
            options = {**self.provider_options, **_options(provider_options, "provider_options")}
            model = self._model(asked)
            request = DecisionRequest(_state(state), asked, options)
            span.asking(model.provider, model.name, [question.kind for question in asked.values()])
            response = await model.decide(request)
            span.answered(response.response, response.usage)
            if self._transform is not None:
                response = self._transform(response)
            check_answers(asked, response.answers, response.rounding)
            return _result(declared, response)

    def _declared(self, questions: Declared | None) -> Declared:
        if questions is not None and self.declared is not None:
            raise ConfigurationError(
                f"classifier {self.id!r} has questions of its own; a call cannot bring others"
            )
        declared = self.declared if questions is None else questions
        if declared is None:
            raise ConfigurationError(f"classifier {self.id!r} has no questions, and the call brought none")
        return declared

    def _model(self, questions: Mapping[str, Question]) -> DecisionModel:
        if isinstance(self.model, str):
            raise ConfigurationError(
                f"classifier {self.id!r} names the model {self.model!r}; only an App can look it up"
            )
        unsupported = unsupported_questions(self.model, questions)
        if unsupported:
            raise ConfigurationError(f"classifier {self.id!r}: {unsupported}")
        return self.model


def unsupported_questions(model: DecisionModel, questions: Mapping[str, Question]) -> str | None:
    """One sentence naming the questions that `model` cannot answer, or None."""
    names = [name for name, question in questions.items() if question.kind not in model.question_types]
    if not names:
        return None
    supported = ", ".join(sorted(model.question_types))
    return f"{model.provider} {model.name!r} answers {supported} questions, not {', '.join(names)}"


def _checked(declared: Declared | None, classifier: str) -> Mapping[str, Question]:
    questions = questions_of(declared or {})
    try:
        check_questions(questions)
    except QuestionError as error:
        raise QuestionError(error.question, f"{error.fault} (classifier {classifier!r})") from error
    return questions


def _options(options: Mapping[str, JSON] | None, where: str) -> dict[str, JSON]:
    try:
        return cast("dict[str, JSON]", json_copy(options or {}, where))
    except ValueError as error:
        raise ConfigurationError(str(error)) from error


def _state(state: State) -> State:
    if isinstance(state, str):
        return state
    try:
        copied = json_copy(state, "state")
    except ValueError as error:
        raise ConfigurationError(str(error)) from error
    if not isinstance(copied, list | dict):
        raise ConfigurationError("state must be text, or a JSON array or object")
    return cast("State", copied)


def _result(declared: Declared, response: DecisionResponse) -> ClassifierResult[Any]:
    return ClassifierResult(
        answers=typed_answers(declared, response.answers),
        response=response.response,
        usage=response.usage,
        rounding=response.rounding,
        warnings=response.warnings,
        truncation=response.truncation,
        provider_metadata=response.provider_metadata,
    )
