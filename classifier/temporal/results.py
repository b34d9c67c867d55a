"""Decisions as an activity gives them to a workflow."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict

from classifier.answers import answers_to_json
from classifier.decision import Decision, position_of
from classifier.decision_json import branch_to_json, decision_to_json
from classifier.temporal.messages import Decided, DecideRequest, DecideResult
from classifier.temporal.recorder import Recorder
from classifier.temporal.travel import packed


def decided(decision: Decision, *, recorded: bool = True) -> Decided:
    """What a workflow acts on."""
    failure, tripwire, processor = decision.failure, decision.tripwire, decision.processor_id
    return Decided(
        decision_id=str(decision.decision_id),
        outcome=decision.outcome,
        answers=None if decision.answers is None else answers_to_json(decision.answers),
        branch=None if decision.branch is None else branch_to_json(decision.branch),
        failure=None if failure is None else {"code": failure.code, "message": failure.message},
        recorded=recorded,
        processor=processor,
        position=decision.ordinal if processor is None else position_of(decision.ordinal),
        message=decision.ids.message,
        tripwire=None if tripwire is None else asdict(tripwire),
        mode=decision.mode,
    )


def result_of(
    decisions: Sequence[Decision], request: DecideRequest, recorder: Recorder, routes: list[str]
) -> DecideResult:
    """Everything an activity decided, and what is still to be recorded."""
    return DecideResult(
        decisions=[decided(each, recorded=each.decision_id not in recorder.pending) for each in decisions],
        routes=routes,
        pending=[packed(decision_to_json(each), request) for each in recorder.pending.values()],
        unsure=recorder.unsure and bool(recorder.pending),
    )
