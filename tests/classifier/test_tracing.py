"""One span per call: named for the classifier, with what C14 lists, and never what was asked or answered."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Mapping
from typing import Any

import pytest
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import StatusCode

from classifier.answers import Answer, BooleanAnswer, ChoiceAnswer, Refusal
from classifier.app import App
from classifier.classifier import Classifier
from classifier.errors import ConfigurationError, InvalidAnswer, ModelUnavailable, PolicyError
from classifier.models.scripted import ScriptedModel
from classifier.models.systemone import SystemOne
from classifier.processor import ClassifierProcessor
from classifier.questions import Boolean, Choice, Example, Question
from classifier.testing import try_messages
from classifier.tracing import NO_SPANS, Spans
from tests.classifier.conformance import SafetyQuestions, abort_unsafe, broken
from tests.servers import Answer as HttpAnswer
from tests.servers import Server
from tests.tree import ROOT

MARK = "MARKED-7f3a"
QUESTIONS: dict[str, Question] = {
    "unsafe": Boolean(f"Is it unsafe? {MARK}", true=MARK, false=MARK, examples=[Example(MARK, label=True)]),
    "topic": Choice({MARK: MARK, "other": None}, MARK),
    "urgent": Boolean(MARK),
}
ANSWERS: dict[str, Answer] = {
    "unsafe": BooleanAnswer(0.1),
    "topic": ChoiceAnswer(MARK, {MARK: 0.9, "other": 0.1}),
    "urgent": Refusal(),
}


class Exported:
    """Finished spans of a provider of their own, so that tests share nothing."""

    def __init__(self) -> None:
        self._exporter = InMemorySpanExporter()
        provider = TracerProvider(shutdown_on_exit=False)
        provider.add_span_processor(SimpleSpanProcessor(self._exporter))
        self.raw = provider.get_tracer("test")
        self.tracer = Spans(self.raw, attempt=lambda: 3)

    @property
    def spans(self) -> tuple[ReadableSpan, ...]:
        return self._exporter.get_finished_spans()

    @property
    def attributes(self) -> Mapping[str, Any]:
        (span,) = self.spans
        return span.attributes or {}


def tickets(model: ScriptedModel | SystemOne, exported: Exported) -> Classifier[Any]:
    return Classifier("tickets", model, QUESTIONS, tracer=exported.tracer)


async def test_a_call_is_one_span_named_for_the_classifier() -> None:
    exported = Exported()
    await tickets(ScriptedModel([ANSWERS, ANSWERS]), exported).evaluate("some text")
    (span,) = exported.spans
    assert span.name == "classifier tickets"
    assert span.status.status_code is StatusCode.UNSET
    attributes = dict(exported.attributes)
    assert attributes.pop("classifier.duration_ms") > 0
    assert attributes == {
        "openinference.span.kind": "DECISION",
        "classifier.id": "tickets",
        "classifier.attempt": 3,
        "classifier.questions": 3,
        "classifier.question_types": ("boolean", "choice"),
        "classifier.questions.boolean": 2,
        "classifier.questions.choice": 1,
        "decision.system": "custom",
        "decision.provider": "scripted",
        "decision.model_name": "scripted",
        "decision.request.model_name": "scripted",
        "decision.response.model_name": "scripted-1",
        "classifier.response.provider": "scripted",
        "decision.token_count.input": 9,
        "decision.token_count.output": 3,
        "decision.token_count.total": 12,
    }


async def test_the_span_is_a_child_of_the_callers() -> None:
    exported = Exported()
    with exported.raw.start_as_current_span("activity") as parent:
        await tickets(ScriptedModel([ANSWERS]), exported).evaluate("text")
    child = exported.spans[0]
    assert child.parent is not None
    assert child.parent.span_id == parent.get_span_context().span_id


@pytest.mark.parametrize(
    ("error", "kind"),
    [(ModelUnavailable(f"no {MARK}", status=503), "MODEL_UNAVAILABLE"), (RuntimeError(MARK), "RuntimeError")],
)
async def test_an_error_leaves_its_type_and_not_its_message(error: Exception, kind: str) -> None:
    exported = Exported()
    with pytest.raises(type(error)):
        await tickets(ScriptedModel([error]), exported).evaluate("text")
    (span,) = exported.spans
    assert span.status.status_code is StatusCode.ERROR
    assert span.status.description is None
    assert exported.attributes["error.type"] == kind
    assert exported.attributes.get("http.response.status_code") == getattr(error, "status", None)
    assert span.events == ()


async def test_an_answer_that_is_not_believed_still_says_who_gave_it_and_what_it_cost() -> None:
    exported = Exported()
    with pytest.raises(InvalidAnswer):
        await tickets(ScriptedModel([{"unsafe": BooleanAnswer(0.5)}]), exported).evaluate("text")
    assert exported.attributes["error.type"] == "INVALID_ANSWER"
    assert exported.attributes["decision.response.model_name"] == "scripted-1"
    assert exported.attributes["decision.token_count.input"] == 4


async def test_a_call_that_cannot_be_made_is_a_span_too() -> None:
    exported = Exported()
    with pytest.raises(ConfigurationError):
        await Classifier("c", "by name", QUESTIONS, tracer=exported.tracer).evaluate("text")
    assert exported.attributes["error.type"] == "CONFIGURATION"


async def test_a_call_that_is_stopped_says_so_and_is_no_error() -> None:
    exported = Exported()
    model = ScriptedModel([ANSWERS], latency=60)
    task = asyncio.create_task(tickets(model, exported).evaluate("text"))
    while not model.requests:
        await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert exported.attributes["classifier.cancelled"] is True
    assert exported.spans[0].status.status_code is StatusCode.UNSET


async def test_marked_text_never_appears_in_a_span() -> None:
    exported = Exported()
    echoed = {
        "model": f"{MARK} as prose",
        "id": f"{MARK} too",
        "answers": {"ok": {"type": "noul", "noul": 1}},
    }
    replies = [
        HttpAnswer(echoed),
        HttpAnswer(
            {"error": {"code": "c", "message": MARK}}, status=500, headers={"x-request-id": f"{MARK} x"}
        ),
        HttpAnswer({**echoed, "answers": {MARK: {"type": "noul", "noul": 1}}}),
    ]
    async with Server(replies) as server:
        model = SystemOne("m", base_url=server.url, api_key=MARK)
        classifier = Classifier("c", model, {"ok": Boolean(MARK)})
        classifier = classifier.bound(model, exported.tracer)
        await classifier.evaluate({"text": MARK}, provider_options={"trace": MARK})
        for _ in range(2):
            with pytest.raises((ModelUnavailable, InvalidAnswer)):
                await classifier.evaluate(MARK)
        await model.aclose()
    await tickets(ScriptedModel([ANSWERS]), exported).evaluate(MARK)
    assert len(exported.spans) == 4
    assert [span.name for span in exported.spans if MARK in span.to_json()] == []


async def test_an_app_gives_its_tracer_to_classifiers_without_one() -> None:
    own, apps = Exported(), Exported()
    app = App(
        models={"m": ScriptedModel([ANSWERS, ANSWERS])},
        classifiers=[Classifier("a", "m", QUESTIONS), Classifier("b", "m", QUESTIONS, tracer=own.tracer)],
    )
    resolved = app.resolve({}, tracer=apps.tracer)
    for name in ("a", "b"):
        await resolved.classifiers[name].evaluate("text")
    assert [span.name for span in apps.spans] == ["classifier a"]
    assert [span.name for span in own.spans] == ["classifier b"]


async def test_spans_do_not_change_what_a_call_returns() -> None:
    exported = Exported()
    plain = await Classifier("c", ScriptedModel([ANSWERS]), QUESTIONS, tracer=NO_SPANS).evaluate("text")
    traced = await tickets(ScriptedModel([ANSWERS]), exported).evaluate("text")
    assert dict(plain.answers) == dict(traced.answers)


WITHOUT = """
import sys
sys.modules["opentelemetry"] = None
import asyncio
from classifier.answers import BooleanAnswer
from classifier.app import App
from classifier.classifier import Classifier
from classifier.models.scripted import ScriptedModel
from classifier.processor import ClassifierProcessor
from classifier.questions import Boolean
from classifier.tracing import NO_SPANS, installed
assert installed() is NO_SPANS
model = ScriptedModel([{"q": BooleanAnswer(1.0)}])
resolved = App(classifiers=[Classifier("c", model, {"q": Boolean()})]).resolve({})
print(asyncio.run(resolved.classifiers["c"].evaluate("text")).answers.boolean("q"))
"""


def test_everything_works_where_opentelemetry_is_not_installed() -> None:
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert "probability=1.0" in done.stdout, done.stderr


def test_the_core_is_loaded_without_opentelemetry() -> None:
    code = "import sys, classifier.classifier, classifier.app; print('opentelemetry' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


async def test_a_judgement_is_a_span_around_its_call_and_its_ids_are_on_the_record() -> None:
    exported = Exported()
    model = ScriptedModel([{"unsafe": BooleanAnswer(0.9)}])
    safety = Classifier("safety", model, SafetyQuestions, tracer=exported.tracer)
    guard = ClassifierProcessor(classifier=safety, on_result=abort_unsafe, id="guard")
    with exported.raw.start_as_current_span("activity") as caller:
        tried = await try_messages([guard], [MARK])
    call, judgement, _ = exported.spans
    here = judgement.context
    assert here is not None
    assert (judgement.name, call.name) == ("classifier processor guard", "classifier safety")
    assert call.parent is not None
    assert call.parent.span_id == here.span_id
    assert judgement.parent is not None
    assert judgement.parent.span_id == caller.get_span_context().span_id
    (decision,) = tried.decisions
    assert dict(judgement.attributes or {}) == {
        "openinference.span.kind": "GUARDRAIL",
        "classifier.processor": "guard",
        "classifier.phase": "input",
        "classifier.decision_id": str(decision.decision_id),
        "classifier.outcome": "aborted",
    }
    ids = decision.ids
    assert ids.trace == f"{here.trace_id:032x}"
    assert ids.span == f"{here.span_id:016x}"
    assert MARK not in judgement.to_json()


async def test_a_judgement_whose_policy_raises_ends_its_span_without_an_outcome() -> None:
    exported = Exported()
    model = ScriptedModel([{"unsafe": BooleanAnswer(0.9)}])
    safety = Classifier("safety", model, SafetyQuestions, tracer=exported.tracer)
    guard = ClassifierProcessor(classifier=safety, on_result=broken, id="guard")
    with pytest.raises(PolicyError):
        await try_messages([guard], ["text"])
    assert "classifier.outcome" not in (exported.spans[-1].attributes or {})
    assert exported.spans[-1].name == "classifier processor guard"
