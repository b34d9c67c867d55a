"""What a decision model said, with where it came from. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Generic, TypeVar

from classifier.answers import Answer, Answers
from classifier.values import JSON

A_co = TypeVar("A_co", bound=Answers, covariant=True)


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens of one request, and what it cost where the provider says so.

    Attributes:
        input_tokens: None where unknown.
        output_tokens: None where unknown.
        cost: In US dollars; None where unknown.
    """

    input_tokens: int | None = None
    output_tokens: int | None = None
    cost: float | None = None

    @property
    def total_tokens(self) -> int | None:
        """Both parts together, a missing one as 0; None where neither is known."""
        if self.input_tokens is None and self.output_tokens is None:
            return None
        return (self.input_tokens or 0) + (self.output_tokens or 0)


@dataclass(frozen=True, slots=True)
class Rounding:
    """How many decimals the provider rounds to; None means not rounded."""

    probability_decimals: int | None = None
    score_decimals: int | None = None


@dataclass(frozen=True, slots=True)
class Truncation:
    """Text was cut before a model saw it.

    Attributes:
        original: Length before, in characters (code points).
        sent: Length after, in characters; None where whoever cut does not say.
        by: Who cut: "processor" (`max_input_length`) or "model" (the provider's or the local model's limit).
    """

    original: int
    sent: int | None
    by: str


@dataclass(frozen=True, slots=True)
class ResponseInfo:
    """Where an answer came from.

    Attributes:
        provider: For example "systemone" or "local".
        requested_model: The name that was asked for, often an alias.
        model: The build that answered, as the provider names it.
        id: The provider's id of the response, where it has one.
        request_id: The provider's name for the request, for its support.
        timestamp: When the answer arrived, in UTC.
    """

    provider: str
    requested_model: str
    model: str
    timestamp: datetime
    id: str | None = None
    request_id: str | None = None


@dataclass(frozen=True, slots=True)
class DecisionResponse:
    """What an adapter read from a decision model, not yet checked against the questions."""

    answers: Mapping[str, Answer]
    response: ResponseInfo
    usage: Usage = Usage()
    rounding: Rounding = Rounding()
    warnings: tuple[str, ...] = ()
    truncation: Truncation | None = None
    provider_metadata: Mapping[str, JSON] = field(default_factory=dict[str, JSON])


@dataclass(frozen=True)  # no slots: with them Python 3.11 cannot call ClassifierResult[…](…)
class ClassifierResult(Generic[A_co]):
    """Checked answers and everything known about how they came to be."""

    answers: A_co
    response: ResponseInfo
    usage: Usage = Usage()
    rounding: Rounding = Rounding()
    warnings: tuple[str, ...] = ()
    truncation: Truncation | None = None
    provider_metadata: Mapping[str, JSON] = field(default_factory=dict[str, JSON])
