"""A step whose answers are there already: another policy looks at them, and no model is asked. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from classifier.answers import Answer
from classifier.classifier import Classifier
from classifier.decision import Decision
from classifier.errors import InvalidAnswer, RequestRejected
from classifier.questions import typed_answers
from classifier.result import ClassifierResult, ResponseInfo
from classifier.step import Step
from classifier.values import State


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgedAnew(Step):
    """A step over the answers of another one to the same states.

    Attributes:
        answers: By ordinal; None where the other has none.
    """

    answers: Sequence[Mapping[str, Answer] | None]

    async def evaluate(self, ordinal: int, data: State) -> tuple[State, ClassifierResult[Any]]:
        """Takes the answers that are there.

        Raises:
            RequestRejected: There are none.
            InvalidAnswer: They answer other questions; the classifier was changed meanwhile.
            PolicyError: The playbook's state function raised.
        """
        answers = self.answers[ordinal]
        if answers is None:
            raise RequestRejected("there are no answers to judge anew")
        if answers.keys() != (self.classifier.questions or {}).keys():
            raise InvalidAnswer("the answers to judge anew are to other questions")
        typed = typed_answers(self.classifier.declared or {}, answers)
        provider, model = _model_of(self.classifier)
        info = ResponseInfo(provider or "", model or "", model or "", self.decided_at)
        return self.state_of(data), ClassifierResult(typed, info)

    async def answered(
        self, ordinal: int, state: State, result: ClassifierResult[Any], *, duration_ms: float, attempts: int
    ) -> Decision:
        """The decision on them: nobody was asked, so there are no attempts, no tokens and no build.

        Raises:
            PolicyError: The route function raised.
        """
        del attempts
        provider, model = _model_of(self.classifier)
        return self._decision(
            ordinal,
            state,
            answers=result.answers,
            branch=await self._branch(result.answers),
            duration_ms=duration_ms,
            attempts=0,
            provider=provider,
            requested_model=model,
        )


def _model_of(classifier: Classifier[Any]) -> tuple[str | None, str | None]:
    model = classifier.model
    return (None, None) if isinstance(model, str) else (model.provider, model.name)
