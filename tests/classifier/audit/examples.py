"""Decisions for tests: one to begin with, and strategies for any."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

from hypothesis import strategies as st

from classifier.answers import Answer, BooleanAnswer, ChoiceAnswer, Refusal, ScoreAnswer
from classifier.decision import Branch, Coordinates, Decision, DecisionFailure, Ids, Tripwire
from classifier.result import Truncation, Usage

NOW = datetime.now(UTC).replace(microsecond=123456)
KEY = b"a key for tests, thirty-two bytes"


def decision(name: str = "w", *, tenant: str = "acme", ordinal: int = 0, **changes: Any) -> Decision:
    """A plain classification of workflow `name`."""
    at = Coordinates(tenant, "default", name, "run", "1")
    plain = Decision(
        decision_id=at.decision_id(ordinal),
        decided_at=NOW,
        coordinates=at,
        ordinal=ordinal,
        classifier_id="tickets",
        phase="step",
        outcome="allowed",
        state="my card has not arrived",
        answers={
            "topic": ChoiceAnswer("billing", {"billing": 0.7, "other": 0.3}),
            "unsafe": BooleanAnswer(0.1),
        },
        question_set="q1",
        duration_ms=12.5,
        attempts=1,
    )
    return replace(plain, **changes)


def _billing(probability: float) -> Answer:
    return ChoiceAnswer("billing", {"billing": probability, "other": 1 - probability})


any_text = st.text(st.characters(), max_size=12) | st.sampled_from(
    ["a\0b", "a\\u0000b", "\ud800", "\ud83d\ude00", "␛", "␛0000", "مرحبا", ""]
)
finite = st.floats(allow_nan=False, allow_infinity=False)
json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | finite
    | st.sampled_from([float("inf")])
    | any_text,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(any_text, inner, max_size=3),
    max_leaves=8,
)
json_objects = st.dictionaries(any_text, json_values, max_size=3)
probabilities = st.floats(0, 1)
answers: st.SearchStrategy[Answer] = st.one_of(
    st.builds(BooleanAnswer, probabilities, st.none() | st.booleans(), st.none() | probabilities),
    st.builds(ScoreAnswer, st.floats(0, 4), st.none() | st.just((0.25, 0.75)), st.none() | probabilities),
    probabilities.map(_billing),
    st.builds(ChoiceAnswer[str], st.sampled_from(["billing", "other", "a\0b"])),
    st.builds(Refusal, st.sampled_from(["answer", "blocked", "policy", "omitted"])),
)
optional_text = st.none() | any_text
counts = st.none() | st.integers(0, 2**40)
few = st.sampled_from([None, "t-1", "t-2", "a\0b"])
models = st.sampled_from([None, "jev", "jev-2026"])
moments = st.timedeltas(timedelta(days=-20), timedelta(0)).map(lambda ago: NOW + ago)


@st.composite
def decisions(draw: st.DrawFn, tenant: str = "acme") -> Decision:
    """Any decision of a month that has partitions."""
    at = Coordinates(
        tenant, draw(any_text), draw(st.sampled_from(["w1", "w2"])), draw(any_text), draw(any_text)
    )
    return Decision(
        decision_id=draw(st.uuids()),
        decided_at=draw(moments),
        coordinates=at,
        ordinal=draw(st.integers(0, 2**40)),
        classifier_id=draw(st.sampled_from(["tickets", "safety"])),
        phase=draw(st.sampled_from(["input", "output", "stream", "step"])),
        outcome=draw(st.sampled_from(["allowed", "filtered", "aborted"])),
        state=draw(any_text | st.lists(json_values, max_size=3) | json_objects),
        answers=draw(st.none() | st.dictionaries(st.sampled_from(["topic", "unsafe", "x\0"]), answers)),
        question_set=draw(any_text),
        duration_ms=draw(st.floats(0)),
        attempts=draw(st.integers(0, 100)),
        processor_id=draw(st.sampled_from([None, "guard", "p\0"])),
        playbook_id=draw(few),
        failure=draw(st.none() | st.builds(DecisionFailure, st.sampled_from(["MODEL_ERROR", "x"]), any_text)),
        tripwire=draw(st.none() | st.builds(Tripwire, any_text, json_values)),
        branch=draw(
            st.none() | st.builds(Branch, st.sampled_from(["route", "review"]), few, st.tuples(any_text))
        ),
        gates=draw(st.dictionaries(any_text, probabilities, max_size=2)),
        ids=draw(st.builds(Ids, few, few, few, few, optional_text)),
        request_context=draw(json_objects),
        policy_version=draw(optional_text),
        provider=draw(optional_text),
        requested_model=draw(models),
        resolved_model=draw(models),
        provider_request_id=draw(optional_text),
        usage=draw(st.builds(Usage, counts, counts, st.none() | st.floats(0, 10))),
        warnings=draw(st.tuples(any_text) | st.just(())),
        truncation=draw(st.none() | st.builds(Truncation, st.integers(0, 99), counts, any_text)),
        normalised=draw(st.just(()) | st.just(("nfkc",))),
        original=draw(optional_text),
        mode=draw(st.sampled_from(["enforce", "monitor", "shadow"])),
        metadata=draw(json_objects),
    )
