"""Every fault of jevcompat's reference server: where it ends, so that none ends as a wrong answer.

The same requests go to the faultless server and to one with a fault. What the faulty one says must end as the
same evidence, as a typed error, or, for three faults that a single response cannot show, as a legal answer.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Generator
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

import pytest
from jevcompat.mock import FAULTS, MockConfig, make_server

from classifier.answers import Answer, BooleanAnswer, ChoiceAnswer, ScoreAnswer
from classifier.classifier import Classifier
from classifier.errors import AuthenticationFailed, InvalidAnswer, ModelError, RequestRejected
from classifier.models.systemone import SystemOne
from classifier.questions import Boolean, Choice, Question, Score
from classifier.result import ClassifierResult
from classifier.values import State

QUESTIONS: dict[str, Question] = {
    "is it urgent?": Boolean(true="Something burns"),
    "größe": Choice({"Café": None, "Bar": {"serves": ["drinks"]}, "Kiosk": "Sells papers"}),
    "wide": Choice({f"Option {number}": None for number in range(66)}, ["Which", "one?"]),
    "mood": Score([f"level {level}" for level in range(6)], "How is the mood?"),
}
STATES: list[State] = ["The café is on fire.", ["an", "array"], {"an": {"object": [1, None]}}, "x", "y", "z"]

End: TypeAlias = "Literal['same', 'legal'] | type[ModelError]"


@dataclass(frozen=True, slots=True)
class Case:
    """How a fault ends, and what brings it out where the ordinary requests do not."""

    end: End
    server_key: str | None = None
    our_key: str | None = None
    model: str = "jev-latest"
    questions: dict[str, Question] = field(default_factory=lambda: QUESTIONS)


TOO_MANY_OPTIONS: dict[str, Question] = {"q": Choice({str(option): None for option in range(256)})}
CASES: dict[str, Case] = {
    "wrong-route": Case(RequestRejected),
    "xssi-200": Case(InvalidAnswer),
    "plain-content-type": Case("same"),
    "text-errors": Case(AuthenticationFailed, server_key="right", our_key="wrong"),
    "models-404": Case("same"),
    "auth-rejects-header": Case(AuthenticationFailed, our_key="any"),
    "auth-x-api-key": Case(AuthenticationFailed, server_key="right", our_key="right"),
    "auth-plain": Case(AuthenticationFailed, server_key="right"),
    "auth-invalid-403-text": Case(AuthenticationFailed, server_key="right", our_key="wrong"),
    "reject-array-state": Case(RequestRejected),
    "reject-jev-latest": Case(RequestRejected),
    "first-question-only": Case(InvalidAnswer),
    "strict-ids": Case(RequestRejected),
    "nfd-keys": Case(InvalidAnswer),
    "forbid-extra": Case(RequestRejected),
    "string-only-text": Case(RequestRejected),
    "noul-two-sided": Case(RequestRejected),
    "noul-needs-instructions": Case("same"),
    "no-null-description": Case(RequestRejected),
    "cap-64": Case(RequestRejected),
    "cap-5-levels": Case(RequestRejected),
    "accept-map-score": Case("same"),
    "no-usage": Case("same"),
    "float-usage": Case("same"),
    "extra-answer": Case(InvalidAnswer),
    "boolean-type": Case(InvalidAnswer),
    "nan": Case(InvalidAnswer),
    "unprefixed-extra": Case("same"),
    "noul-range": Case(InvalidAnswer),
    "choice-no-confidence": Case("same"),
    "choice-key-case": Case(InvalidAnswer),
    "choice-sum": Case(InvalidAnswer),
    "choice-second": Case(InvalidAnswer),
    "score-no-legend": Case("same"),
    "legend-1-based": Case(InvalidAnswer),
    "score-keys-1-based": Case(InvalidAnswer),
    "score-sum": Case(InvalidAnswer),
    "score-argmax": Case(InvalidAnswer),
    "confidence-over": Case(InvalidAnswer),
    "confidence-margin": Case("same"),
    "500-on-unknown-type": Case("same"),
    "accept-boolean": Case("same"),
    "validation-400": Case(RequestRejected, questions=TOO_MANY_OPTIONS),
    "error-flat": Case(RequestRejected, model="nobody-serves-this"),
    "id-leaks": Case("legal"),
    "batch-leaks": Case("legal"),
    "order-leaks": Case("legal"),
}


@contextlib.contextmanager
def reference_server(*faults: str, key: str | None = None) -> Generator[str]:
    server = make_server(MockConfig(key=key, faults=frozenset(faults)))
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


async def ask(url: str, case: Case, state: State) -> ClassifierResult[Any]:
    model = SystemOne(case.model, base_url=url, api_key=case.our_key)
    try:
        classifier = Classifier("test", model, case.questions)
        return await classifier.evaluate(state, provider_options={"x_tag": "kept by nobody"})
    finally:
        await model.aclose()


def evidence(answer: Answer) -> object:
    """What decisions are made of; confidence is defined by each server for itself."""
    match answer:
        case BooleanAnswer():
            return answer.probability
        case ChoiceAnswer():
            return answer.choice, answer.probabilities
        case ScoreAnswer():
            return answer.score, answer.probabilities
        case _:
            return answer


def test_the_table_holds_every_fault_there_is() -> None:
    assert CASES.keys() == FAULTS.keys()
    assert len(CASES) == 47


@pytest.mark.parametrize("state", STATES, ids=range(len(STATES)))
async def test_the_faultless_server_is_understood(state: State) -> None:
    with reference_server(key="right") as url:
        result = await ask(url, Case("same", our_key="right"), state)
    assert result.answers.keys() == QUESTIONS.keys()
    assert result.response.model == "jevcompat-mock-0.1"
    assert result.response.request_id == "req_mock"
    assert result.usage.total_tokens
    assert result.warnings == ()


@pytest.mark.parametrize("fault", CASES)
async def test_no_fault_becomes_a_wrong_answer(fault: str) -> None:
    case = CASES[fault]
    with (
        reference_server(key=case.server_key) as clean,
        reference_server(fault, key=case.server_key) as faulty,
    ):
        for state in STATES:
            if fault == "reject-array-state" and not isinstance(state, list):
                continue
            if not isinstance(case.end, str):
                with pytest.raises(ModelError) as caught:
                    await ask(faulty, case, state)
                assert type(caught.value) is case.end
                continue
            expected, got = await ask(clean, case, state), await ask(faulty, case, state)
            same = {name: evidence(answer) for name, answer in expected.answers.items()} == {
                name: evidence(answer) for name, answer in got.answers.items()
            }
            assert same is (case.end == "same")
