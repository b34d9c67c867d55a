"""A policy run again over stored answers: what would become of old decisions today. Pure; asks no model.

A policy mostly looks at answers alone, so decisions are read without their contents first. One that looks at
the request context or at the rest of the result says so by raising `WantsMore`, and gets whole decisions.
"""

from __future__ import annotations

import asyncio
import inspect
import uuid
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC
from typing import Any, NoReturn, TypeAlias, cast

from classifier.answers import Answer
from classifier.decision import Branch, Decision, Outcome, Phase
from classifier.errors import ClassifierError, PolicyError
from classifier.playbook import Playbook, Review
from classifier.policy import PolicyContext
from classifier.processor import ClassifierProcessor
from classifier.questions import Question, Questions, typed_answers
from classifier.result import ClassifierResult, ResponseInfo
from classifier.values import JSON

EXAMPLES = 5
"""How many decisions are named for each change."""

CONTEXT_GONE = "CONTEXT_GONE"
"""The kind of error of a policy that looks at a request context that was erased or not kept."""

Change: TypeAlias = tuple[str, str]
"""What became of decisions, and what would."""


class WantsMore(Exception):
    """The policy looks at more than the answers; run it over whole decisions."""


class ContextGone(ClassifierError):
    """The policy looks at a request context that is not there any more."""

    code = CONTEXT_GONE


@dataclass(frozen=True, slots=True)
class StoredAnswers:
    """A decision as far as most policies look at it.

    Attributes:
        decision_id: Which one, as text.
        became: What policy made of it then, as `became` says it.
        phase: Where the processor stood.
        message_id: The message it was about.
        answers: By question id; None where the call failed.
    """

    decision_id: str
    became: str
    phase: Phase
    message_id: str | None
    answers: Mapping[str, Answer] | None


@dataclass(slots=True)
class BacktestReport:
    """What would change.

    Attributes:
        decisions: How many were looked at.
        changes: How many would change, by what they became and would become.
        unchanged: How many would stay what they are.
        failed: How many have no answers, so that no policy was asked.
        errors: How often the policy raised, by the kind of error.
        examples: Some decisions of each change, newest first, and of each error under ("", its kind).
    """

    decisions: int = 0
    changes: Counter[Change] = field(default_factory=Counter[Change])
    unchanged: int = 0
    failed: int = 0
    errors: Counter[str] = field(default_factory=Counter[str])
    examples: dict[Change, list[uuid.UUID]] = field(default_factory=dict[Change, list[uuid.UUID]])

    def count(self, decision_id: str, before: str, after: str) -> None:
        """Counts a decision that would become `after`."""
        if before == after:
            self.unchanged += 1
            return
        self.changes[before, after] += 1
        self._remember((before, after), decision_id)

    def fail(self, decision_id: str, error: Exception) -> None:
        """Counts a decision on which the policy raised."""
        kind = error.code if isinstance(error, ClassifierError) else type(error).__name__
        self.errors[kind] += 1
        self._remember(("", kind), decision_id)

    def add(self, other: BacktestReport) -> None:
        """Counts what `other` counted."""
        self.decisions += other.decisions
        self.changes += other.changes
        self.unchanged += other.unchanged
        self.failed += other.failed
        self.errors += other.errors
        for change, ids in other.examples.items():
            for decision_id in ids:
                self._remember(change, str(decision_id))

    def _remember(self, change: Change, decision_id: str) -> None:
        known = self.examples.get(change)
        if known is None:
            known = self.examples[change] = []
        if len(known) < EXAMPLES:
            known.append(uuid.UUID(decision_id))


class Backtest:
    """Runs the policy of a processor or a playbook over stored answers.

    Args:
        policy: Today's.
    """

    def __init__(self, policy: ClassifierProcessor[Any] | Playbook[Any]) -> None:
        self._rule = _rule_of(policy)
        self._declared = _declared(policy)

    def run(self, stored: Iterable[StoredAnswers]) -> BacktestReport:
        """What would become of these; blocks, so call it in a thread.

        Raises:
            WantsMore: The policy looks at more than the answers; `run_whole` can tell.
        """
        unread = _Unread()
        unread_result = cast("ClassifierResult[Any]", _UnreadResult(unread))

        def contexts() -> Iterator[tuple[StoredAnswers, Any, PolicyContext[Any]]]:
            for each in stored:
                answers = None if each.answers is None else typed_answers(self._declared, each.answers)
                yield each, answers, PolicyContext(each.phase, unread_result, unread, each.message_id)

        report = self._run(contexts())
        if unread.wanted:
            raise WantsMore
        return report

    def run_whole(self, decisions: Iterable[Decision], gone: Collection[uuid.UUID] = ()) -> BacktestReport:
        """What would become of these; blocks, so call it in a thread.

        Args:
            decisions: Which ones; their texts are not looked at.
            gone: Those whose request context was erased or not kept. A policy that looks at it there is
                counted as an error, since nobody knows what it would say.
        """

        def contexts() -> Iterator[tuple[StoredAnswers, Any, PolicyContext[Any]]]:
            for each in decisions:
                answers = None if each.answers is None else typed_answers(self._declared, each.answers)
                result = _result(each, answers)
                request = _Unread(ContextGone) if each.decision_id in gone else each.request_context
                context = PolicyContext(each.phase, result, request, each.ids.message)
                yield stored_answers(each), answers, context

        return self._run(contexts())

    def _run(self, given: Iterator[tuple[StoredAnswers, Any, PolicyContext[Any]]]) -> BacktestReport:
        report, rule = BacktestReport(), self._rule
        with asyncio.Runner() as runner:
            for stored, answers, context in given:
                report.decisions += 1
                if answers is None:
                    report.failed += 1
                    continue
                try:
                    after = rule(answers, context, runner)
                except WantsMore:
                    raise
                except Exception as error:  # noqa: BLE001 - the policy's own; it is counted
                    report.fail(stored.decision_id, _wanted_in_vain(context) or error)
                else:
                    missed = _wanted_in_vain(context)
                    if missed is None:
                        report.count(stored.decision_id, stored.became, after)
                    else:  # it caught what reading raised
                        report.fail(stored.decision_id, missed)
        return report


def _wanted_in_vain(context: PolicyContext[Any]) -> ContextGone | None:
    request = context.request_context
    return ContextGone("") if isinstance(request, _Unread) and request.wanted else None


def stored_answers(decision: Decision) -> StoredAnswers:
    """The part of a decision that most policies look at."""
    return StoredAnswers(
        str(decision.decision_id),
        became(decision.outcome, decision.branch),
        decision.phase,
        decision.ids.message,
        decision.answers,
    )


def became(outcome: Outcome, branch: Branch | None) -> str:
    """What policy made of a decision: its outcome, or what a playbook did with it."""
    return outcome if branch is None else branch_text(branch.action, branch.route)


def branch_text(action: str, route: str | None) -> str:
    """A branch in words; where a review would have gone to is a suggestion, and not told apart."""
    return f"route {route}" if action == "route" else action


_Rule: TypeAlias = Callable[[Any, PolicyContext[Any], asyncio.Runner], str]


def _rule_of(policy: ClassifierProcessor[Any] | Playbook[Any]) -> _Rule:
    if isinstance(policy, Playbook):
        return _playbook_rule(policy)
    return _processor_rule(policy)


def _processor_rule(processor: ClassifierProcessor[Any]) -> _Rule:
    on_result, named = processor.on_result, f"on_result of processor {processor.id!r}"

    def rule(answers: Any, context: PolicyContext[Any], runner: asyncio.Runner) -> str:
        raised: Exception | None = None
        try:
            _awaited(on_result(answers, context), runner)
        except WantsMore:
            raise
        except Exception as error:  # noqa: BLE001 - an abort leaves so; anything else is raised below
            raised = error
        ruling = context.ruling(named)
        if raised is not None and ruling.tripwire is None:
            raise raised
        return ruling.outcome

    return rule


def _playbook_rule(playbook: Playbook[Any]) -> _Rule:
    def rule(answers: Any, context: PolicyContext[Any], runner: asyncio.Runner) -> str:
        del context
        chosen = _awaited(playbook.route(answers), runner)
        if not isinstance(chosen, str | Review):
            raise PolicyError(f"the route function of playbook {playbook.id!r} returned no route")
        branch = playbook.branch_for(chosen, answers)
        return branch_text(branch.action, branch.route)

    return rule


def _awaited(returned: Any, runner: asyncio.Runner) -> Any:
    if returned is None or isinstance(returned, str):  # as nearly always, and in a hurry
        return returned
    return runner.run(_wait(returned)) if inspect.isawaitable(returned) else returned


async def _wait(returned: Awaitable[Any]) -> Any:
    return await returned


def _declared(
    policy: ClassifierProcessor[Any] | Playbook[Any],
) -> type[Questions] | Mapping[str, Question]:
    if isinstance(policy, ClassifierProcessor) and policy.declared is not None:
        return policy.declared
    classifier = policy.classifier
    return {} if isinstance(classifier, str) else classifier.declared or {}


def _result(decision: Decision, answers: Any) -> ClassifierResult[Any]:
    info = ResponseInfo(
        provider=decision.provider or "",
        requested_model=decision.requested_model or "",
        model=decision.resolved_model or decision.requested_model or "",
        timestamp=decision.decided_at.astimezone(UTC),
        request_id=decision.provider_request_id,
    )
    return ClassifierResult(
        answers,
        info,
        usage=decision.usage,
        warnings=decision.warnings,
        truncation=decision.truncation,
        provider_metadata=decision.metadata,
    )


class _Unread(Mapping[str, JSON]):
    """A request context that was not read; says when somebody wants it."""

    def __init__(self, error: type[WantsMore | ContextGone] = WantsMore) -> None:
        self.wanted = False
        self._error = error

    def want(self) -> NoReturn:
        self.wanted = True
        raise self._error("the request context was not read")

    def __getitem__(self, key: str) -> JSON:
        self.want()

    def __iter__(self) -> Iterator[str]:
        self.want()

    def __len__(self) -> int:  # noqa: PLE0303 - it has none to give
        self.want()


class _UnreadResult:
    """A result that was not read."""

    def __init__(self, unread: _Unread) -> None:
        self._unread = unread

    def __getattr__(self, name: str) -> NoReturn:
        self._unread.want()
