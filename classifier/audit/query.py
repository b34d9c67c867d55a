"""Which decisions are asked for: one value that judges a decision in memory and is turned into SQL. Pure.

`classifier.audit.sql` writes the same conditions as SQL; a property test holds the two together.
"""

from __future__ import annotations

import base64
import binascii
import json
import math
import operator
import re
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from datetime import UTC, datetime
from typing import Literal, TypeAlias, cast

from classifier.answers import Answer, BooleanAnswer, ChoiceAnswer, Refusal, ScoreAnswer
from classifier.audit.escape import escape
from classifier.decision import Decision, Mode, Outcome, Phase
from classifier.errors import ConfigurationError
from classifier.values import JSON, digest

Operator: TypeAlias = Literal["=", "!=", ">=", ">", "<=", "<"]
AskedMode: TypeAlias = Literal["live", "enforce", "monitor", "shadow", "any"]

_COMPARE: dict[Operator, Callable[[float, float], bool]] = {
    "=": operator.eq,
    "!=": operator.ne,
    ">=": operator.ge,
    ">": operator.gt,
    "<=": operator.le,
    "<": operator.lt,
}
_CONDITION = re.compile(
    r"\s*(?P<question>[^\s=!<>]+)\s*(?P<operator>>=|<=|!=|=|>|<)\s*(?P<value>.+?)\s*", re.DOTALL
)


def number_of(answer: Answer) -> float | None:
    """The number of an answer: P(true), the score, or the probability of the chosen option; None if none."""
    match answer:
        case BooleanAnswer():
            found: float | None = answer.probability
        case ScoreAnswer():
            found = answer.score
        case ChoiceAnswer():
            found = (answer.probabilities or {}).get(answer.choice)
        case Refusal():
            return None
    return found if found is not None and math.isfinite(found) else None


def reason_text(decision: Decision) -> str | None:
    """What free text search looks through: reasons and the failure's code, case folded; None if none."""
    parts: list[str] = []
    if decision.tripwire is not None:
        parts.append(decision.tripwire.reason)
    if decision.branch is not None:
        parts.extend(decision.branch.reasons)
    if decision.failure is not None:
        parts.append(decision.failure.code)
    return "\n".join(parts).casefold() if parts else None


@dataclass(frozen=True, slots=True)
class AnswerCondition:
    """A condition on the answer to one question; a refusal meets none.

    Attributes:
        question: The question's id.
        operator: "=" and "!=" compare the chosen option, or a number with a boolean or score; the others
            compare a number with P(true), the score, or the probability of the chosen option.
        value: An option, or a number.
    """

    question: str
    operator: Operator
    value: str | float

    def __post_init__(self) -> None:
        if isinstance(self.value, str) and self.operator not in {"=", "!="}:
            raise ConfigurationError(f"{self.question} {self.operator}: only numbers can be compared so")
        if not isinstance(self.value, str) and not math.isfinite(self.value):
            raise ConfigurationError(f"{self.question} {self.operator}: the number is not finite")

    @classmethod
    def parse(cls, text: str) -> AnswerCondition:
        """Reads `topic = billing` or `unsafe >= 0.8`; an option in double quotes is never a number.

        Raises:
            ConfigurationError: It is something else; the message says what is expected.
        """
        found = _CONDITION.fullmatch(text)
        if found is None:
            raise ConfigurationError(f"not a condition: {text!r}; write 'topic = billing' or 'unsafe >= 0.8'")
        return cls(found["question"], cast("Operator", found["operator"]), _value(found["value"]))

    def holds(self, answer: Answer | None) -> bool:
        """Whether `answer` meets the condition."""
        if answer is None or isinstance(answer, Refusal):
            return False
        if isinstance(self.value, str):
            return isinstance(answer, ChoiceAnswer) and (answer.choice == self.value) == (
                self.operator == "="
            )
        number = number_of(answer)
        return number is not None and _COMPARE[self.operator](number, self.value)


def _value(text: str) -> str | float:
    if len(text) > 1 and text[0] == text[-1] == '"':
        return text[1:-1]
    try:
        number = float(text)
    except ValueError:
        return text
    return number if math.isfinite(number) else text


@dataclass(frozen=True, slots=True, kw_only=True)
class DecisionQuery:
    """Which decisions of one tenant; every field that is set has to hold.

    Attributes:
        tenant: Whose decisions; always.
        since: Decided at or after this time, with a time zone.
        until: Decided before this time, with a time zone.
        mode: "live" is everything but shadows.
        model: The resolved model, or the requested one where the provider does not name the build.
        answers: Conditions on answers.
        refused: Whether any question was refused.
        failed: Whether the call failed.
        truncated: Whether text was cut.
        reason: Text within the reasons or the failure's code; case does not matter.
    """

    tenant: str
    since: datetime | None = None
    until: datetime | None = None
    processor: str | None = None
    classifier: str | None = None
    playbook: str | None = None
    phase: Phase | None = None
    mode: AskedMode = "live"
    outcome: Outcome | None = None
    thread: str | None = None
    resource: str | None = None
    message: str | None = None
    trace: str | None = None
    workflow: str | None = None
    run: str | None = None
    model: str | None = None
    action: Literal["route", "review"] | None = None
    route: str | None = None
    answers: tuple[AnswerCondition, ...] = ()
    refused: bool | None = None
    failed: bool | None = None
    truncated: bool | None = None
    reason: str | None = None

    def __post_init__(self) -> None:
        if not self.tenant:
            raise ConfigurationError("a query names a tenant")
        for name, moment in (("since", self.since), ("until", self.until)):
            if moment is not None and moment.utcoffset() is None:
                raise ConfigurationError(
                    f"{name} has no time zone; write one, 2026-03-01T10:00:00Z for example"
                )

    def matches(self, decision: Decision) -> bool:
        """Whether the decision is asked for."""
        return self._in_time(decision) and self._equal(decision) and self._holds(decision)

    def _in_time(self, decision: Decision) -> bool:
        at = decision.decided_at
        return (self.since is None or at >= self.since) and (self.until is None or at < self.until)

    def _equal(self, decision: Decision) -> bool:
        if decision.tenant != self.tenant or not self._in_mode(decision.mode):
            return False
        ids, at, branch = decision.ids, decision.coordinates, decision.branch
        pairs: Sequence[tuple[object, object]] = (
            (self.processor, decision.processor_id),
            (self.classifier, decision.classifier_id),
            (self.playbook, decision.playbook_id),
            (self.phase, decision.phase),
            (self.outcome, decision.outcome),
            (self.thread, ids.thread),
            (self.resource, ids.resource),
            (self.message, ids.message),
            (self.trace, ids.trace),
            (self.workflow, at.workflow_id),
            (self.run, at.run_id),
            (self.model, model_of(decision)),
            (self.action, branch and branch.action),
            (self.route, branch and branch.route),
            (self.failed, decision.failure is not None),
            (self.truncated, decision.truncation is not None),
        )
        return all(wanted is None or wanted == found for wanted, found in pairs)

    def _in_mode(self, mode: Mode) -> bool:
        return self.mode in {"any", mode} or (self.mode == "live" and mode != "shadow")

    def _holds(self, decision: Decision) -> bool:
        answers = decision.answers or {}
        if self.refused is not None and self.refused != any(
            isinstance(answer, Refusal) for answer in answers.values()
        ):
            return False
        if self.reason is not None and escape(self.reason.casefold()) not in escape(
            reason_text(decision) or ""
        ):
            return False
        return all(condition.holds(answers.get(condition.question)) for condition in self.answers)

    @property
    def fingerprint(self) -> str:
        """The same for equal queries, however their times are written."""
        values: dict[str, JSON] = {}
        for item in fields(self):
            value = getattr(self, item.name)
            if isinstance(value, datetime):
                value = value.astimezone(UTC).isoformat()
            elif item.name == "answers":
                value = [[one.question, one.operator, one.value] for one in self.answers]
            values[item.name] = value
        return digest(values)[:32]


def model_of(decision: Decision) -> str | None:
    """The build that answered, as far as the provider names it."""
    return decision.resolved_model if decision.resolved_model is not None else decision.requested_model


@dataclass(frozen=True, slots=True)
class Position:
    """A place in the newest-first order of decisions: after this one."""

    decided_at: datetime
    decision_id: uuid.UUID

    def cursor(self, fingerprint: str) -> str:
        """This place as an opaque text that only a query of this fingerprint takes."""
        parts = [fingerprint, self.decided_at.astimezone(UTC).isoformat(), str(self.decision_id)]
        return base64.urlsafe_b64encode(json.dumps(parts).encode()).decode().rstrip("=")

    @classmethod
    def parse(cls, cursor: str, fingerprint: str) -> Position:
        """Reads what `cursor` wrote for this fingerprint.

        Raises:
            ConfigurationError: It is damaged, or of another tenant or filter.
        """
        try:
            padded = cursor + "=" * (-len(cursor) % 4)
            of, moment, decision_id = json.loads(base64.b64decode(padded, altchars=b"-_", validate=True))
            position = cls(datetime.fromisoformat(moment).astimezone(UTC), uuid.UUID(decision_id))
        except (ValueError, TypeError, AttributeError, OverflowError, binascii.Error) as error:
            raise ConfigurationError("the cursor is damaged; start again without one") from error
        if of != fingerprint:
            raise ConfigurationError(
                "the cursor belongs to another tenant or filter; start again without one"
            )
        return position
