"""A decision model that answers from a script: for tests of policies, processors and workflows. Pure."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import TypeAlias

from classifier.answers import Answer
from classifier.errors import ConfigurationError
from classifier.models.protocol import ALL_TYPES, DecisionRequest
from classifier.questions import QuestionType
from classifier.result import DecisionResponse, ResponseInfo, Rounding, Usage

Reply: TypeAlias = "Mapping[str, Answer] | Exception"
Script: TypeAlias = "Iterable[Reply] | Callable[[DecisionRequest], Reply]"


class ScriptedModel:
    """Replies one after another from a list, or by a function of the request.

    A list that is used up fails loudly. Every request is kept in `requests`.

    Args:
        script: Replies in order, or a function. A reply is answers by question id, or an exception to raise.
        latency: Seconds each reply takes.
        name: The model's name on the record.
        rounding: What the answers are rounded to.
    """

    def __init__(
        self,
        script: Script,
        *,
        latency: float = 0.0,
        name: str = "scripted",
        rounding: Rounding = Rounding(),
        question_types: frozenset[QuestionType] = ALL_TYPES,
    ) -> None:
        self._next = script if callable(script) else _one_after_another(script)
        self._latency = latency
        self._name = name
        self._rounding = rounding
        self._question_types = question_types
        self.requests: list[DecisionRequest] = []

    @property
    def provider(self) -> str:
        """Always "scripted"."""
        return "scripted"

    @property
    def name(self) -> str:
        """The model's name on the record."""
        return self._name

    @property
    def question_types(self) -> frozenset[QuestionType]:
        """What it says it can answer."""
        return self._question_types

    def configure(self, environ: Mapping[str, str]) -> Sequence[str]:
        """Needs nothing."""
        del environ
        return ()

    async def decide(self, request: DecisionRequest) -> DecisionResponse:
        """The next reply of the script."""
        self.requests.append(request)
        if self._latency:
            await asyncio.sleep(self._latency)
        reply = self._next(request)
        if isinstance(reply, Exception):
            raise reply
        info = ResponseInfo("scripted", self._name, f"{self._name}-1", datetime.now(UTC))
        usage = Usage(input_tokens=len(str(request.state)), output_tokens=len(reply))
        return DecisionResponse(reply, info, usage=usage, rounding=self._rounding)

    async def aclose(self) -> None:
        """Holds nothing."""


def _one_after_another(replies: Iterable[Reply]) -> Callable[[DecisionRequest], Reply]:
    remaining = iter(replies)

    def following(request: DecisionRequest) -> Reply:
        del request
        reply = next(remaining, None)
        if reply is None:
            raise ConfigurationError("the script of a ScriptedModel is used up; give it more replies")
        return reply

    return following
