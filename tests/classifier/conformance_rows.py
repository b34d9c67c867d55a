"""The rows P08 to P37 of the contract; `conformance` says what a row is made of."""

from __future__ import annotations

from typing import Any

from classifier.answers import Refusal
from classifier.decision import Decision, Ids, Tripwire
from classifier.messages import DataPart, Message, TextPart
from classifier.policy import PolicyContext
from tests.classifier.conformance import (
    FAILED,
    MESSAGES,
    PROVIDER_TEXT,
    STREAM,
    UNSAFE,
    Case,
    Observed,
    SafetyQuestions,
    Setup,
    abort_unsafe,
    also,
    broken,
    expect,
    filter_then_abort,
    filter_unsafe,
    given,
    swallow_abort,
)


def watching(seen: list[Any]) -> Any:
    async def policy(answers: SafetyQuestions, context: PolicyContext[SafetyQuestions]) -> None:
        seen.append((context.phase, answers.unsafe, context.result.response.model))

    return policy


def refusing(answers: SafetyQuestions, context: PolicyContext[SafetyQuestions]) -> None:
    match answers.unsafe:
        case Refusal():
            context.abort("refused")
        case _:
            return


def telling_badly(decision: Decision) -> None:
    raise RuntimeError(f"no place for {decision.state}")


def saw_policy(observed: Observed, setup: Setup) -> None:
    phases = {entry[0] for entry in setup.seen if entry[0] in {"input", "output", "stream"}}
    assert phases == {observed.decisions[0].phase}
    assert "scripted-1" in {entry[2] for entry in setup.seen if len(entry) == 3}


def told_before_out(observed: Observed, setup: Setup) -> None:
    told = [entry[1] for entry in setup.seen if entry[0] == "decision"]
    assert told == [decision.state for decision in observed.decisions]
    for index, entry in enumerate(setup.seen):
        if entry[0] == "out":
            assert ("decision", entry[1]) in setup.seen[:index]


def nobody_told(observed: Observed, setup: Setup) -> None:
    assert not observed.decisions
    assert not [entry for entry in setup.seen if entry[0] == "decision"]


def no_provider_text(observed: Observed, setup: Setup) -> None:
    assert PROVIDER_TEXT not in str(observed.tripwire)
    assert PROVIDER_TEXT not in observed.logged


def logged_code(observed: Observed, setup: Setup) -> None:
    assert "classifier failed" in observed.logged
    assert "MODEL_UNAVAILABLE" in observed.logged


def logged_without_text(observed: Observed, setup: Setup) -> None:
    assert "on_decision raised RuntimeError" in observed.logged
    assert "hello" not in observed.logged


def no_policy_answers(observed: Observed, setup: Setup) -> None:
    assert not [entry for entry in setup.seen if len(entry) == 3]


def fields_of_an_answer(observed: Observed, setup: Setup) -> None:
    (decision,) = observed.decisions
    assert decision.processor_id == "classifier"
    assert decision.classifier_id == "safety"
    assert decision.state == "bad"
    assert decision.truncation is not None
    assert (decision.truncation.original, decision.truncation.sent) == (3 + 4, 3)
    assert decision.answers is not None
    assert decision.failure is None
    assert decision.tripwire == observed.tripwire
    assert decision.duration_ms >= 0
    assert decision.request_context == {"tenant_id": "acme"}
    assert decision.tenant == "acme"
    assert decision.usage.input_tokens is not None
    assert (decision.provider, decision.requested_model) == ("scripted", "scripted")
    assert decision.resolved_model == "scripted-1"
    assert (decision.attempts, decision.mode, decision.policy_version) == (1, "enforce", "v7")


def fields_of_a_failure(observed: Observed, setup: Setup) -> None:
    (decision,) = observed.decisions
    assert decision.answers is None
    assert decision.failure is not None
    assert decision.failure.code == "MODEL_UNAVAILABLE"
    assert decision.tripwire == observed.tripwire
    assert (decision.provider, decision.requested_model) == ("scripted", "scripted")


def ids_are(ids: Ids) -> Any:
    def check(observed: Observed, setup: Setup) -> None:
        (decision,) = observed.decisions
        assert decision.ids == ids

    return check


def options_sent(observed: Observed, setup: Setup) -> None:
    assert [dict(request.provider_options) for request in setup.model.requests] == [{"effort": "low"}]


IN_PARTS = Message((TextPart(" hello"), DataPart({"type": "image"}), TextPart("you ")), id="m0")
PICTURE = Message((DataPart({"type": "image"}),), id="m0")
THREAD = Message("hello", id="m0", thread="of-message", resource="of-message")
KEYS = {"thread_id": "of-context", "resource_id": "of-context"}
TRACED = Ids(thread="of-memory", trace="t", span="s")

MESSAGE_ROWS = [
    Case(
        "P08",
        "text parts are joined by a space",
        given(messages=[IN_PARTS]),
        expect("allowed", "hello you", states=["hello you"]),
        MESSAGES,
    ),
    Case(
        "P08",
        "text content is trimmed",
        given("  hello "),
        expect("allowed", "hello", states=["hello"]),
        MESSAGES,
    ),
    Case(
        "P08",
        "a message without text passes without a call",
        given(messages=[PICTURE]),
        also(expect("allowed", "", states=[]), nobody_told),
        MESSAGES,
    ),
    Case(
        "P09",
        "last_message_only judges the last and the others pass",
        given("bad", "hello", last_message_only=True),
        expect("allowed", "bad", "hello", states=["hello"]),
        MESSAGES,
    ),
    Case(
        "P10",
        "messages are judged in order and the first abort ends it",
        given("hello", "bad", "later"),
        expect("aborted", states=["hello", "bad"], outcomes=["allowed", "aborted"], tripwire=UNSAFE),
        MESSAGES,
    ),
    Case(
        "P10",
        "a chunk behind an abort has no decision",
        given("hello", "bad", "later"),
        expect("aborted", "hello", outcomes=["allowed", "aborted"], tripwire=UNSAFE),
        STREAM,
    ),
    Case(
        "P16",
        "the first characters are kept",
        given("abcdefgh", max_input_length=5),
        expect("allowed", "abcdefgh", states=["abcde"]),
        MESSAGES,
    ),
    Case(
        "P30",
        "fields of an answer",
        given("bad text"[:7], max_input_length=3, policy_version="v7", context={"tenant_id": "acme"}),
        also(expect("aborted", tripwire=UNSAFE), fields_of_an_answer),
        MESSAGES,
    ),
    Case(
        "P31", "input and output carry the message id", given("hello"), ids_are(Ids(message="m0")), MESSAGES
    ),
    Case(
        "P31",
        "a traced run carries trace and span",
        given("hello", ids=TRACED),
        ids_are(Ids(thread="of-memory", message="m0", trace="t", span="s")),
        MESSAGES,
    ),
    Case(
        "P32",
        "memory comes before message and context",
        given(messages=[THREAD], ids=TRACED, context=KEYS),
        ids_are(Ids("of-memory", "of-message", "m0", "t", "s")),
        MESSAGES,
    ),
    Case(
        "P32",
        "message comes before context",
        given(messages=[THREAD], context=KEYS),
        ids_are(Ids("of-message", "of-message", "m0")),
        MESSAGES,
    ),
    Case(
        "P32",
        "context keys come last",
        given("hello", context=KEYS),
        ids_are(Ids("of-context", "of-context", "m0")),
        MESSAGES,
    ),
]

COMMON_ROWS = [
    Case("P11", "a silent policy changes nothing", given("hello", "you"), expect("allowed", "hello", "you")),
    Case(
        "P12",
        "an async policy gets answers phase and result",
        given("hello", make_policy=watching),
        also(expect("allowed", "hello"), saw_policy),
    ),
    Case(
        "P13",
        "the reason is the one the caller gave",
        given("bad"),
        also(expect("aborted", tripwire=UNSAFE, outcomes=["aborted"]), no_provider_text),
    ),
    Case(
        "P14",
        "filter drops only what it is about",
        given("hello", "bad", "you", policy=filter_unsafe),
        expect("allowed", "hello", "you", outcomes=["allowed", "filtered", "allowed"]),
    ),
    Case("P14", "everything may be dropped", given("bad", policy=filter_unsafe), expect("allowed")),
    Case(
        "P15",
        "filter then abort is aborted",
        given("bad", policy=filter_then_abort),
        expect("aborted", tripwire=UNSAFE, outcomes=["aborted"]),
    ),
    Case(
        "P15",
        "a caught abort is still an abort",
        given("bad", policy=swallow_abort),
        expect("aborted", tripwire=UNSAFE, outcomes=["aborted"]),
    ),
    Case(
        "P16",
        "a limit of zero sends an empty text",
        given("hello", max_input_length=0),
        expect("allowed", "hello", states=[""]),
    ),
    Case(
        "P17",
        "a failure aborts with one constant reason",
        given("down", make_policy=watching),
        also(expect("aborted", tripwire=FAILED), no_provider_text, no_policy_answers),
    ),
    Case(
        "P18",
        "warn logs the code and lets it through",
        given("down", make_policy=watching, error_strategy="warn"),
        also(expect("allowed", "down", outcomes=["allowed"]), logged_code, no_policy_answers),
    ),
    Case(
        "P19",
        "an abort stays an abort under warn",
        given("bad", error_strategy="warn"),
        expect("aborted", tripwire=UNSAFE),
    ),
    Case(
        "P25",
        "provider options are forwarded",
        given("hello", provider_options={"effort": "low"}),
        options_sent,
    ),
    Case(
        "P26",
        "metadata is on the caller's tripwire",
        given("bad"),
        expect("aborted", tripwire=Tripwire("unsafe", {"policy": "p1"})),
    ),
    Case(
        "P27",
        "metadata of a strict failure names who failed",
        given("down"),
        expect("aborted", tripwire=FAILED),
    ),
    Case("P28", "every call is told before content moves", given("hello", "you"), told_before_out),
    Case("P28", "a failed call is told too", given("hello", "down", error_strategy="warn"), told_before_out),
    Case(
        "P29",
        "a failure under warn is allowed with an error",
        given("down", error_strategy="warn"),
        also(expect("allowed", "down", outcomes=["allowed"]), fields_of_a_failure),
    ),
    Case(
        "P29",
        "a strict failure is aborted",
        given("down"),
        also(expect("aborted", outcomes=["aborted"], tripwire=FAILED), fields_of_a_failure),
    ),
    Case(
        "P33",
        "what on_decision raises changes nothing",
        given("hello", on_decision=telling_badly),
        also(expect("allowed", "hello", outcomes=["allowed"]), logged_without_text),
    ),
    Case(
        "P34",
        "a broken policy fails and nothing is told",
        given("hello", policy=broken),
        also(expect("POLICY_ERROR"), nobody_told),
    ),
    Case(
        "P34",
        "a broken policy fails under warn too",
        given("hello", policy=broken, error_strategy="warn"),
        also(expect("POLICY_ERROR"), nobody_told),
    ),
    Case("P36", "nothing to read is no decision", given("  ", parts=["  "]), nobody_told),
    Case(
        "P37",
        "a refusal reaches the policy",
        given("secret", policy=refusing),
        expect("aborted", tripwire=Tripwire("refused")),
    ),
    Case(
        "P37",
        "a policy says what a refusal counts as",
        given("secret", policy=abort_unsafe),
        expect("aborted", tripwire=UNSAFE),
    ),
]

STREAM_ROWS = [
    Case("P14", "a dropped chunk is not emitted", given("a", policy=filter_unsafe, parts=["a", "bad", "c"]),
         expect("allowed", "a", "c"), STREAM),
    Case("P16", "a stream keeps the newest characters",
         given("a", parts=["abc", "def"], chunk_window=2, max_input_length=4),
         expect("allowed", "abc", "def", states=["abc", "cdef"]), STREAM),
    Case("P20", "what is not text passes untouched", given("a", parts=[1, "a", ("tool", 2), "b", None]),
         expect("allowed", 1, "a", ("tool", 2), "b", None, states=["a", "b"]), STREAM),
    Case("P21", "a window is the last chunks without separator",
         given("a", parts=["al", "pha", "be", "ta"], chunk_window=3),
         expect("allowed", "al", "pha", "be", "ta", states=["al", "alpha", "alphabe", "phabeta"]), STREAM),
    Case("P21", "zero and one are the same", given("a", parts=["al", "pha"], chunk_window=1),
         expect("allowed", "al", "pha", states=["al", "pha"]), STREAM),
    Case("P22", "what is not text takes no place in a window",
         given("a", parts=["alpha", 1, 2, 3, " ", "beta"], chunk_window=3),
         expect("allowed", "alpha", 1, 2, 3, " ", "beta", states=["alpha", "alpha ", "alpha beta"]), STREAM),
    Case("P23", "a blank window is emitted without a call", given("a", parts=["  ", "\n"], chunk_window=4),
         also(expect("allowed", "  ", "\n", states=[]), nobody_told), STREAM),
    Case("P24", "a strict failure aborts mid-stream", given("a", parts=["a", "down", "c"]),
         expect("aborted", "a", tripwire=FAILED, outcomes=["allowed", "aborted"]), STREAM),
    Case("P24", "warn emits what could not be judged",
         given("a", parts=["a", "down", "c"], error_strategy="warn"),
         expect("allowed", "a", "down", "c", outcomes=["allowed", "allowed", "allowed"]), STREAM),
    Case("P31", "a stream carries no message id", given("hello", context=KEYS),
         ids_are(Ids("of-context", "of-context")), STREAM),
]  # fmt: skip

ROWS = [*MESSAGE_ROWS, *COMMON_ROWS, *STREAM_ROWS]
