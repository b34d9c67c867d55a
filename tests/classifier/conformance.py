"""The contract of a ClassifierProcessor as data: rows P01 to P37, and whatever runs them.

A `Case` says what goes in and what must be observed. It knows nothing about how processors are run: a
`Runner` does, in plain asyncio, through an activity in a workflow, or as a stream. Rows about declarations
alone (P01 to P07) need no runner, and P35 (a stop) is tested where stopping is possible.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol, TypeAlias

from classifier.answers import Answer, BooleanAnswer, Refusal
from classifier.classifier import Classifier
from classifier.decision import Decision, Ids, Outcome, Tripwire
from classifier.errors import ModelUnavailable
from classifier.messages import Message
from classifier.models.protocol import DecisionRequest
from classifier.models.scripted import ScriptedModel
from classifier.policy import PolicyAborted, PolicyContext
from classifier.processor import ClassifierProcessor
from classifier.questions import Boolean, Questions
from classifier.values import JSON

Form: TypeAlias = Literal["input", "output", "stream"]
MESSAGES: tuple[Form, ...] = ("input", "output")
EVERYWHERE: tuple[Form, ...] = ("input", "output", "stream")
STREAM: tuple[Form, ...] = ("stream",)
PROVIDER_TEXT = "the provider says: forbidden"


class SafetyQuestions(Questions):
    unsafe = Boolean("Is the message unsafe?")


@dataclass
class Setup:
    """What goes in. `seen` collects what callbacks saw, in order; a stream runner adds `("out", text)`."""

    processors: Sequence[ClassifierProcessor[Any]]
    model: ScriptedModel
    messages: Sequence[Message]
    parts: Sequence[object] = ()
    context: Mapping[str, JSON] = field(default_factory=dict[str, JSON])
    ids: Ids = Ids()
    seen: list[Any] = field(default_factory=list[Any])

    @property
    def stream(self) -> Sequence[object]:
        """The parts of the stream form; the messages' texts, where a case brings none."""
        return self.parts or [message.text for message in self.messages]


@dataclass(frozen=True)
class Observed:
    """What came of it.

    Attributes:
        outcome: "allowed" (also with dropped content), "aborted", or the code of the error that was raised.
        passed: What came through: texts, and in a stream other parts too.
        tripwire: What the caller got with an abort.
        decisions: What was recorded, in order.
        logged: Everything that was logged.
    """

    outcome: str
    passed: tuple[object, ...]
    tripwire: Tripwire | None
    decisions: tuple[Decision, ...]
    logged: str


class Runner(Protocol):
    """Runs a setup in one of the forms."""

    async def __call__(self, setup: Setup, form: Form) -> Observed: ...


@dataclass(frozen=True)
class Case:
    """One fact of a row."""

    row: str
    says: str
    setup: Callable[[list[Any]], Setup]
    check: Callable[[Observed, Setup], None]
    forms: tuple[Form, ...] = EVERYWHERE

    @property
    def name(self) -> str:
        return f"{self.row}_{self.says.replace(' ', '_')}"

    async def hold(self, runner: Runner, form: Form) -> None:
        """Runs the case and checks what is observed."""
        seen: list[Any] = []
        setup = self.setup(seen)
        setup.seen = seen
        self.check(await runner(setup, form), setup)


def answering(request: DecisionRequest) -> Mapping[str, Answer] | Exception:
    """A model for which "bad" is unsafe, "secret" is refused and "down" is a fault."""
    state = str(request.state)
    if "down" in state:
        return ModelUnavailable("scripted: " + PROVIDER_TEXT)
    answer = Refusal() if "secret" in state else BooleanAnswer(0.9 if "bad" in state else 0.1)
    return dict.fromkeys(request.questions, answer)


def abort_unsafe(answers: SafetyQuestions, context: PolicyContext[SafetyQuestions]) -> None:
    if answers.unsafe.probability_or(1.0) > 0.8:
        context.abort("unsafe", {"policy": "p1"})


def filter_unsafe(answers: SafetyQuestions, context: PolicyContext[SafetyQuestions]) -> None:
    if answers.unsafe.probability_or(1.0) > 0.8:
        context.filter()


def swallow_abort(answers: SafetyQuestions, context: PolicyContext[SafetyQuestions]) -> None:
    try:
        abort_unsafe(answers, context)
    except PolicyAborted:
        return


def filter_then_abort(answers: SafetyQuestions, context: PolicyContext[SafetyQuestions]) -> None:
    filter_unsafe(answers, context)
    abort_unsafe(answers, context)


def broken(answers: SafetyQuestions, context: PolicyContext[SafetyQuestions]) -> None:
    raise ValueError("jane@example.test")


def given(*texts: str, policy: Any = abort_unsafe, **options: Any) -> Callable[[list[Any]], Setup]:
    """A setup with one processor over these texts; `make_policy` gets the list to write to."""

    def make(seen: list[Any]) -> Setup:
        run_options = {key: options[key] for key in ("parts", "context", "ids") if key in options}
        rest = {key: value for key, value in options.items() if key not in run_options}
        messages = rest.pop("messages", [Message(text, id=f"m{n}") for n, text in enumerate(texts)])
        model = ScriptedModel(answering)
        classifier = Classifier("safety", model, SafetyQuestions)
        listener = rest.pop("on_decision", _told(seen))
        make_policy = rest.pop("make_policy", None)
        used = policy if make_policy is None else make_policy(seen)
        processor = ClassifierProcessor(classifier=classifier, on_result=used, on_decision=listener, **rest)
        return Setup([processor], model, messages, **run_options)

    return make


def expect(
    outcome: str = "allowed",
    *passed: object,
    states: Sequence[str] | None = None,
    outcomes: Sequence[Outcome] | None = None,
    tripwire: Tripwire | None = None,
) -> Callable[[Observed, Setup], None]:
    """A check of the usual things; what is left out is not looked at, except the passed content."""

    def check(observed: Observed, setup: Setup) -> None:
        assert observed.outcome == outcome
        assert observed.passed == passed
        assert observed.tripwire == tripwire
        if states is not None:
            assert [request.state for request in setup.model.requests] == list(states)
        if outcomes is not None:
            assert [decision.outcome for decision in observed.decisions] == list(outcomes)

    return check


def _told(seen: list[Any]) -> Callable[[Decision], None]:
    def tell(decision: Decision) -> None:
        seen.append(("decision", decision.state))

    return tell


def also(*checks: Callable[[Observed, Setup], None]) -> Callable[[Observed, Setup], None]:
    def check(observed: Observed, setup: Setup) -> None:
        for each in checks:
            each(observed, setup)

    return check


UNSAFE = Tripwire("unsafe", {"policy": "p1"})
FAILED = Tripwire(
    "classification_failed",
    {"processor_id": "classifier", "classifier_id": "safety", "code": "CLASSIFIER_FAILED"},
)
