"""One classification step: a state in, a decision out. Pure; the model and the policy do their own I/O."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from classifier.answers import Answers
from classifier.classifier import Classifier
from classifier.context import RESOURCE_ID_KEY, THREAD_ID_KEY, TRACE_ID_KEY, text_of
from classifier.decision import Branch, Coordinates, Decision, DecisionFailure, Ids, Mode
from classifier.errors import ConfigurationError, RequestRejected
from classifier.playbook import Playbook
from classifier.result import ClassifierResult
from classifier.values import JSON, State, is_blank


@dataclass(frozen=True, slots=True)
class Step:
    """What to ask, and where its decisions belong.

    Attributes:
        classifier: Resolved, with questions of its own.
        playbook: Whose gates and route function decide on a branch; None for a plain classification.
        coordinates: Where this happens.
        decided_at: The same for every attempt.
        context: The caller's request context.
        ids: Explicit ids; thread, resource and trace fall back to the request context.
        mode: "shadow" where nothing follows from it.
    """

    classifier: Classifier[Any]
    playbook: Playbook[Any] | None
    coordinates: Coordinates
    decided_at: datetime
    context: Mapping[str, JSON]
    ids: Ids
    mode: Mode = "enforce"

    async def evaluate(self, ordinal: int, data: State) -> tuple[State, ClassifierResult[Any]]:
        """Asks the model once; gives back what was asked about, which a playbook takes from an event's data.

        Args:
            ordinal: The number of the decision.
            data: A state, or an event's data for a playbook.

        Raises:
            RequestRejected: There is no text to ask about.
            ModelError: No usable answer.
            PolicyError: The playbook's state function raised.
        """
        del ordinal  # every state is asked about alike; what is judged anew tells them apart
        state = self.state_of(data)
        if is_blank(state):
            raise RequestRejected("there is no text to ask about")
        return state, await self.classifier.evaluate(state)

    def state_of(self, data: State) -> State:
        """What is asked about."""
        return data if self.playbook is None else self.playbook.state_of(data)

    async def answered(
        self, ordinal: int, state: State, result: ClassifierResult[Any], *, duration_ms: float, attempts: int
    ) -> Decision:
        """The decision on an answer: gates and route function have spoken.

        Raises:
            PolicyError: The route function raised.
        """
        response = result.response
        return self._decision(
            ordinal,
            state,
            answers=result.answers,
            branch=await self._branch(result.answers),
            duration_ms=duration_ms,
            attempts=attempts,
            provider=response.provider,
            requested_model=response.requested_model,
            resolved_model=response.model,
            provider_request_id=response.request_id or response.id,
            usage=result.usage,
            warnings=result.warnings,
            truncation=result.truncation,
            metadata=result.provider_metadata,
        )

    def failed(
        self, ordinal: int, state: State, failure: DecisionFailure, *, duration_ms: float, attempts: int
    ) -> Decision:
        """The decision on a failed call: nothing is known, so a playbook hands it to a person."""
        model = self.classifier.model
        branch = None if self.playbook is None else Branch("review", None, (f"error:{failure.code}",))
        return self._decision(
            ordinal,
            state,
            answers=None,
            branch=branch,
            failure=failure,
            duration_ms=duration_ms,
            attempts=attempts,
            provider=None if isinstance(model, str) else model.provider,
            requested_model=None if isinstance(model, str) else model.name,
        )

    async def _branch(self, answers: Answers) -> Branch | None:
        return None if self.playbook is None else await self.playbook.branch(answers)

    def _decision(self, ordinal: int, state: State, **known: Any) -> Decision:
        if self.classifier.questions is None:
            raise ConfigurationError(f"classifier {self.classifier.id!r} has no questions of its own")
        playbook = self.playbook
        return Decision(
            decision_id=self.coordinates.decision_id(ordinal),
            decided_at=self.decided_at,
            coordinates=self.coordinates,
            ordinal=ordinal,
            classifier_id=self.classifier.id,
            playbook_id=None if playbook is None else playbook.id,
            policy_version=None if playbook is None else playbook.policy_version,
            gates={} if playbook is None else dict(playbook.gates),
            phase="step",
            outcome="allowed",
            state=state,
            question_set=self.classifier.question_set,
            ids=self._ids(),
            request_context=self.context,
            mode=self.mode,
            **known,
        )

    def _ids(self) -> Ids:
        return Ids(
            thread=self.ids.thread or text_of(self.context, THREAD_ID_KEY),
            resource=self.ids.resource or text_of(self.context, RESOURCE_ID_KEY),
            message=self.ids.message,
            trace=self.ids.trace or text_of(self.context, TRACE_ID_KEY),
            span=self.ids.span,
        )
