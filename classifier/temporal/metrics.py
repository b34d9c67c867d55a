"""Counts decisions for Prometheus or an OpenTelemetry collector, through the SDK's own meter.

    count_decisions(decisions, activity.metric_meter())

| metric | counts |
|---|---|
| `classifier_decisions` | decisions, by `outcome` |
| `classifier_failures` | decisions without a usable answer, by `code` |
| `classifier_failures_allowed` | those of them that a processor let through |
| `classifier_calls` | how often a classifier was asked, retries included |
| `classifier_decision_duration` | time from the first attempt to the answer |

All have the labels `classifier`, `processor`, `playbook` (empty where there is none), `phase` and `mode`:
names that the app gives, never a tenant, a person or content, so there are as many series as there are names.
Processors that share a request count a call each.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

from temporalio.common import MetricMeter

from classifier.decision import Decision

DURATION = "classifier_decision_duration"
DURATION_BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0)
"""In seconds: from the local model's answers to those that waited for a service to come back."""


def count_decisions(decisions: Sequence[Decision], meter: MetricMeter) -> None:
    """Counts decisions, to be called once by whoever made them; what was found in the store is not counted.

    Args:
        decisions: What was decided just now.
        meter: `activity.metric_meter()` in an activity.
    """
    instruments = _Instruments(meter)
    for decision in decisions:
        instruments.count(decision)


class _Instruments:
    """What is counted with, for one activity."""

    def __init__(self, meter: MetricMeter) -> None:
        self._decisions = meter.create_counter("classifier_decisions", "Decisions by outcome")
        self._failures = meter.create_counter("classifier_failures", "Decisions without a usable answer")
        self._allowed = meter.create_counter("classifier_failures_allowed", "Failures that were let through")
        self._calls = meter.create_counter("classifier_calls", "Times a classifier was asked")
        self._duration = meter.create_histogram_timedelta(
            DURATION, "From the first attempt to the answer", "duration"
        )

    def count(self, decision: Decision) -> None:
        labels = _labels(decision)
        self._decisions.add(1, {**labels, "outcome": decision.outcome})
        self._calls.add(decision.attempts, labels)
        if decision.attempts:  # of one whose activity was lost, nobody measured it
            self._duration.record(timedelta(milliseconds=decision.duration_ms), labels)
        if decision.failure is None:
            return
        coded = {**labels, "code": decision.failure.code}
        self._failures.add(1, coded)
        if decision.processor_id is not None and decision.outcome == "allowed":
            self._allowed.add(1, coded)


def _labels(decision: Decision) -> dict[str, str]:
    return {
        "classifier": decision.classifier_id,
        "processor": decision.processor_id or "",
        "playbook": decision.playbook_id or "",
        "phase": decision.phase,
        "mode": decision.mode,
    }
