"""OpenTelemetry spans: one per classifier call, and one per judgement of a processor around it. Pure.

A classifier tells a `Tracer` only what a span may hold: ids, names, question types, tokens. State,
instructions, criteria and answers are never handed over, so no tracer can let them out. The span has to be
opened here and not around the model, because a model knows neither the classifier nor whether its answer was
believed.

    app.resolve(os.environ)                                       spans, as soon as a tracer provider is set
    Classifier("tickets", model, Ticket, tracer=installed())      the same without an app

Must not import opentelemetry while it is loaded: the core works without it, in a workflow's sandbox too.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections import Counter
from collections.abc import Callable, Generator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import TYPE_CHECKING, Protocol

from classifier.errors import ClassifierError, ModelError
from classifier.result import ResponseInfo, Usage

if TYPE_CHECKING:
    from opentelemetry.trace import Span
    from opentelemetry.trace import Tracer as OpenTelemetryTracer

Attempt = Callable[[], "int | None"]
"""Which attempt this is, from 1; None where nobody counts."""

_NAME = "classifier"
_SYSTEMS = {"typesafe": "typesafe", "openai": "openai"}
_PLAIN = re.compile(r"[A-Za-z0-9_.:/@~+-]{1,200}", re.ASCII)


class Evaluation(Protocol):
    """One call as a span sees it."""

    def asking(self, provider: str, model: str, question_types: Sequence[str]) -> None:
        """The request is about to be made."""
        ...

    def answered(self, info: ResponseInfo, usage: Usage) -> None:
        """The model answered; the answers are not checked yet."""
        ...


class Judging(Protocol):
    """One judgement of a processor as a span sees it: from the asking to what policy made of it."""

    @property
    def ids(self) -> tuple[str, str] | None:
        """Trace and span id in hex; None where nothing is traced."""
        ...

    def asking(self) -> AbstractContextManager[None]:
        """Makes it the parent of spans that are opened inside."""
        ...

    def end(self, outcome: str | None) -> None:
        """It is over; without an outcome where nothing was decided."""
        ...


class Tracer(Protocol):
    """Opens a span for each call of a classifier, and for each judgement of a processor."""

    def evaluating(self, classifier: str) -> AbstractContextManager[Evaluation]:
        """The span of one call, from its start to its result or error."""
        ...

    def judging(self, processor: str, phase: str, decision_id: str) -> Judging:
        """The span of one judgement, which begins here."""
        ...


class _Silent:
    """No span."""

    def asking(self, provider: str, model: str, question_types: Sequence[str]) -> None:
        """Drops it."""

    def answered(self, info: ResponseInfo, usage: Usage) -> None:
        """Drops it."""


class _Unseen:
    """No span."""

    ids = None

    def asking(self) -> AbstractContextManager[None]:
        return nullcontext()

    def end(self, outcome: str | None) -> None:
        """Drops it."""


class NoSpans:
    """The tracer of a classifier that has none."""

    _nothing = nullcontext[Evaluation](_Silent())
    _unseen = _Unseen()

    def evaluating(self, classifier: str) -> AbstractContextManager[Evaluation]:
        """No span."""
        del classifier
        return self._nothing

    def judging(self, processor: str, phase: str, decision_id: str) -> Judging:
        """No span."""
        del processor, phase, decision_id
        return self._unseen


NO_SPANS = NoSpans()


def installed(*, attempt: Attempt = lambda: None) -> Tracer:
    """Spans of the global tracer provider, or none where OpenTelemetry is not installed.

    Args:
        attempt: For the attribute `classifier.attempt`; retries happen outside of a classifier, so only who
            runs it knows.
    """
    try:
        from opentelemetry import trace  # noqa: PLC0415 - an extra
    except ModuleNotFoundError:
        return NO_SPANS
    return Spans(trace.get_tracer("temporal-classifier"), attempt=attempt)


def current_span() -> tuple[str, str] | None:
    """Trace and span id of the span that is open here, in hex; None where nothing is traced."""
    try:
        from opentelemetry import trace  # noqa: PLC0415 - an extra
    except ModuleNotFoundError:
        return None
    return _ids_of(trace.get_current_span())


def _ids_of(span: Span) -> tuple[str, str] | None:
    context = span.get_span_context()
    return (f"{context.trace_id:032x}", f"{context.span_id:016x}") if context.is_valid else None


class Spans:
    """Spans of an OpenTelemetry tracer, with `classifier.*` and OpenInference's `decision.*` attributes.

    Args:
        tracer: Opens the spans, as children of the current one.
        attempt: As for `installed`.
    """

    def __init__(self, tracer: OpenTelemetryTracer, *, attempt: Attempt = lambda: None) -> None:
        self._tracer = tracer
        self._attempt = attempt

    @contextmanager
    def evaluating(self, classifier: str) -> Generator[Evaluation]:
        """Opens a span named for the classifier; an error leaves its type, never its message."""
        started = time.perf_counter()
        with self._tracer.start_as_current_span(
            f"{_NAME} {classifier}", record_exception=False, set_status_on_exception=False
        ) as span:
            span.set_attributes({"openinference.span.kind": "DECISION", "classifier.id": classifier})
            attempt = self._attempt()
            if attempt is not None:
                span.set_attribute("classifier.attempt", attempt)
            try:
                yield _Written(span)
            except asyncio.CancelledError:
                span.set_attribute("classifier.cancelled", True)
                raise
            except Exception as error:
                _fail(span, error)
                raise
            finally:
                span.set_attribute("classifier.duration_ms", (time.perf_counter() - started) * 1000)

    def judging(self, processor: str, phase: str, decision_id: str) -> Judging:
        """Opens a span named for the processor, as a child of the current one."""
        span = self._tracer.start_span(f"{_NAME} processor {processor}")
        span.set_attributes(
            {
                "openinference.span.kind": "GUARDRAIL",
                "classifier.processor": processor,
                "classifier.phase": phase,
                "classifier.decision_id": decision_id,
            }
        )
        return _Judgement(span)


class _Judgement:
    """The span of a judgement."""

    def __init__(self, span: Span) -> None:
        self._span = span

    @property
    def ids(self) -> tuple[str, str] | None:
        return _ids_of(self._span)

    @contextmanager
    def asking(self) -> Generator[None]:
        from opentelemetry.trace import use_span  # noqa: PLC0415 - an extra; there is a span, so it is there

        with use_span(self._span, record_exception=False, set_status_on_exception=False):
            yield

    def end(self, outcome: str | None) -> None:
        if outcome is not None:
            self._span.set_attribute("classifier.outcome", outcome)
        self._span.end()


class _Written:
    """Writes what it is told on a span."""

    def __init__(self, span: Span) -> None:
        self._span = span

    def asking(self, provider: str, model: str, question_types: Sequence[str]) -> None:
        counts = Counter(question_types)
        self._span.set_attributes(
            {
                "classifier.questions": len(question_types),
                "classifier.question_types": sorted(counts),
                **{f"classifier.questions.{kind}": count for kind, count in counts.items()},
                "decision.system": _SYSTEMS.get(provider, "custom"),
                "decision.provider": provider,
                "decision.model_name": model,
                "decision.request.model_name": model,
            }
        )

    def answered(self, info: ResponseInfo, usage: Usage) -> None:
        given = {
            "decision.response.model_name": _plain(info.model),
            "classifier.response.provider": info.provider,
            "classifier.response.id": _plain(info.id),
            "classifier.request_id": _plain(info.request_id),
            "decision.token_count.input": usage.input_tokens,
            "decision.token_count.output": usage.output_tokens,
            "decision.token_count.total": usage.total_tokens,
            "classifier.cost_usd": usage.cost,
        }
        self._span.set_attributes({name: value for name, value in given.items() if value is not None})


def _plain(text: str | None) -> str | None:
    """A service's own words only where they look like a name: it might send the state back as one."""
    return text if text is not None and _PLAIN.fullmatch(text) else None


def _fail(span: Span, error: Exception) -> None:
    from opentelemetry.trace import StatusCode  # noqa: PLC0415 - an extra; there is a span, so it is there

    kind = error.code if isinstance(error, ClassifierError) else type(error).__qualname__
    span.set_attribute("error.type", kind)
    span.set_status(StatusCode.ERROR)
    if isinstance(error, ModelError):
        known = {"http.response.status_code": error.status, "classifier.retryable": error.retryable}
        request_id = {"classifier.request_id": _plain(error.request_id)}
        span.set_attributes({k: v for k, v in {**known, **request_id}.items() if v is not None})
