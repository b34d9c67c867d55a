"""Processors in a workflow: what an abort does, what is asked how often, and what every failure comes to."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any, cast

import pytest
from temporalio.client import Client, WorkflowFailureError, WorkflowHandle
from temporalio.common import RetryPolicy
from temporalio.exceptions import ApplicationError, ChildWorkflowError

from classifier.app import App
from classifier.audit.memory import MemoryStore
from classifier.decision import Decision, Tripwire
from classifier.models.systemone import SystemOne
from classifier.policy import PolicyContext
from classifier.temporal.workflow import tripwire_of
from tests.classifier.temporal.chats import (
    PROVIDER_TEXT,
    SECRET,
    both,
    given,
    guarded,
    guarding,
    judged,
    over_http,
    processor,
    scripted,
    tone,
)
from tests.classifier.temporal.letters import activities, failed, start
from tests.classifier.temporal.project.worker import worker
from tests.classifier.temporal.project.workflows import (
    GuardChild,
    Guarded,
    GuardMessages,
    GuardOneByOne,
    Letter,
    Passed,
)
from tests.servers import Answer, Call, Hang, Server


async def passed(
    client: Client, queue: str, project: App, store: MemoryStore, asked: Guarded, **options: Any
) -> Passed:
    async with worker(client, project, store, queue, **options):
        result: Passed = await (await guarding(client, queue, asked)).result()
        return result


async def failure_of(handle: WorkflowHandle[Any, Any]) -> ApplicationError:
    with pytest.raises(WorkflowFailureError) as ended:
        await handle.result()
    cause: BaseException | None = ended.value.cause
    while isinstance(cause, ChildWorkflowError):
        cause = cause.cause
    assert isinstance(cause, ApplicationError)
    return cause


def by_processor(store: MemoryStore) -> dict[str, Decision]:
    return {str(each.processor_id): each for each in store.decisions.values()}


def only(store: MemoryStore) -> Decision:
    (decision,) = store.decisions.values()
    return decision


async def test_what_passes_comes_with_typed_answers_and_the_ids_of_its_records(
    client: Client, queue: str
) -> None:
    store = MemoryStore()
    async with Server(judged) as server:
        came = await passed(client, queue, over_http(server), store, given("hello", "a dull day", "bye"))
        assert len(server.calls) == 3
    assert (came.texts, came.outcome) == (["hello", "bye"], "filtered")
    assert came.spam == [0.1, 0.1, 0.1]
    assert came.decision_ids == [str(each.decision_id) for each in store.decisions.values()]
    assert [each.outcome for each in store.decisions.values()] == ["allowed", "filtered", "allowed"]
    assert [each.ids.message for each in store.decisions.values()] == ["m-0", "m-1", "m-2"]


async def test_an_abort_fails_the_run_with_its_tripwire_and_nothing_is_read_after_it(
    client: Client, queue: str
) -> None:
    store = MemoryStore()
    async with worker(client, guarded(scripted()), store, queue):
        handle = await guarding(client, queue, given("hello", SECRET, "bye", acts=True))
        with pytest.raises(WorkflowFailureError) as ended:
            await handle.result()
    cause = ended.value.cause
    assert isinstance(cause, ApplicationError)
    assert (cause.type, cause.non_retryable) == ("TRIPWIRE", True)
    assert tripwire_of(ended.value) == Tripwire("spam", {"policy": "p1"})
    assert [each.outcome for each in store.decisions.values()] == ["allowed", "aborted"]
    assert await activities(handle) == ["classifier.decide"]


async def test_a_child_and_a_run_that_may_be_retried_are_aborted_once(client: Client, queue: str) -> None:
    """POL-O02: nobody takes an abort for a fault."""
    store = MemoryStore()
    model = scripted()
    retried = RetryPolicy(maximum_attempts=5, initial_interval=timedelta(milliseconds=10))
    async with worker(client, guarded(model), store, queue):
        parent = await start(client, queue, GuardChild.run, given(SECRET, acts=True))
        assert (await failure_of(parent)).type == "TRIPWIRE"
        direct = await client.start_workflow(
            GuardMessages.run,
            given(SECRET, acts=True),
            id=f"{queue}-direct",
            task_queue=queue,
            retry_policy=retried,
        )
        with pytest.raises(WorkflowFailureError) as ended:
            await direct.result()
        assert tripwire_of(ended.value) is not None
    assert len(model.requests) == len(store.decisions) == 2
    for name in (f"{parent.id}-child", direct.id):
        handle = client.get_workflow_handle(name)
        assert await activities(handle) == ["classifier.decide"]
        started = [
            event.activity_task_started_event_attributes.attempt
            for event in (await handle.fetch_history()).events
            if event.HasField("activity_task_started_event_attributes")
        ]
        assert started == [1]
        assert len([run async for run in client.list_workflows(f"WorkflowId = '{name}'")]) <= 1


async def test_a_tripwire_is_read_through_a_parent(client: Client, queue: str) -> None:
    async with worker(client, guarded(scripted()), MemoryStore(), queue):
        parent = await start(client, queue, GuardChild.run, given(SECRET))
        with pytest.raises(WorkflowFailureError) as ended:
            await parent.result()
    assert tripwire_of(ended.value) == Tripwire("spam", {"policy": "p1"})


def failures_in(value: Any, inside: bool = False) -> str:
    """All that stands in failures of a history."""
    match value:
        case dict():
            named = cast("dict[str, Any]", value).items()
            return " ".join(failures_in(item, inside or "ailure" in name) for name, item in named)
        case list():
            return " ".join(failures_in(item, inside) for item in cast("Any", value))
        case _:
            return f"{value} " if inside else ""


@pytest.mark.parametrize("strategy", ["strict", "warn"])
async def test_no_failure_of_a_history_holds_the_input_or_what_a_provider_said(
    client: Client, queue: str, strategy: str
) -> None:
    """POL-O08, for aborts, model faults that are retried, faults that are final, and policy that raises."""

    def reply(call: Call) -> Answer:
        text = call.json["state"]
        if "denied" in text or ("shaky" in text and len(server.calls) < 2):
            return Answer(
                {"error": {"code": "x", "message": f"{PROVIDER_TEXT}: {text}"}}, 401 if "d" in text else 503
            )
        return judged(call)

    def policy(answers: Letter, context: PolicyContext[Letter]) -> None:
        raise ValueError(f"{SECRET} {context.result.answers}")

    async with Server(reply) as server:
        model = SystemOne("m", base_url=server.url)
        project = App(
            processors=[
                processor(model, error_strategy=strategy),
                processor(model, id="raises", on_result=policy),
            ]
        )
        histories: list[str] = []
        async with worker(client, project, MemoryStore(), queue):
            for texts, names in (
                ((SECRET,), ["letters"]),
                ((f"shaky {SECRET}",), ["letters"]),
                ((f"denied {SECRET}",), ["letters"]),
                (("jane said hello",), ["raises"]),
                ((SECRET,), ["no such processor"]),
            ):
                handle = await guarding(client, queue, given(*texts, processors=names))
                if not (strategy == "warn" and "denied" in texts[0]):
                    await failure_of(handle)
                histories.append(failures_in((await handle.fetch_history()).to_json_dict()))
    told = " ".join(histories)
    assert "TRIPWIRE" in told
    assert "POLICY_ERROR" in told
    for marked in ("jane", PROVIDER_TEXT, "noul", "0.95"):
        assert marked not in told


@pytest.mark.parametrize("local", [False, True])
async def test_without_a_cache_of_workflows_each_call_is_exactly_one_activity(
    client: Client, queue: str, local: bool
) -> None:
    store = MemoryStore()
    model = scripted()
    async with worker(client, both(model), store, queue, max_cached_workflows=0):
        asked = given("one", "two", "three", processors=("letters", "tone"), local=local)
        handle = await start(client, queue, GuardOneByOne.run, asked)
        assert await handle.result() == ["one", "two", "three"]
    assert len(model.requests) == 3
    assert len(store.decisions) == 6
    if not local:
        assert await activities(handle) == ["classifier.decide"] * 3


async def test_neighbours_on_one_model_share_a_request_and_keep_their_own_questions(
    client: Client, queue: str
) -> None:
    store = MemoryStore()
    async with Server(judged) as server:
        asked = given("hello", "bye", processors=("letters", "tone"))
        came = await passed(client, queue, both(SystemOne("m", base_url=server.url)), store, asked)
        assert [set(call.json["questions"]) for call in server.calls] == [{"spam", "kind", "rude"}] * 2
    assert came.texts == ["hello", "bye"]
    asked_by = {(each.processor_id, *sorted(each.answers or ())) for each in store.decisions.values()}
    assert asked_by == {("letters", "kind", "spam"), ("tone", "rude")}
    assert len(store.decisions) == 4


async def test_a_processor_behind_an_abort_or_a_filter_decides_nothing(client: Client, queue: str) -> None:
    store = MemoryStore()
    asked = given("a dull day", "bad", processors=("letters", "tone"))
    async with worker(client, both(scripted()), store, queue):
        await failure_of(await guarding(client, queue, asked))
    assert [each.processor_id for each in store.decisions.values()] == ["letters", "letters"]


@pytest.mark.parametrize("local", [False, True])
async def test_only_the_call_that_failed_is_asked_again_and_its_decision_spans_the_attempts(
    client: Client, queue: str, local: bool
) -> None:
    store = MemoryStore()
    failures = [failed(503), failed(503)]

    def reply(call: Call) -> Answer:
        return failures.pop() if call.json["state"] == "two" and failures else judged(call)

    async with Server(reply) as server:
        asked = given("one", "two", "three", local=local)
        await passed(client, queue, over_http(server), store, asked)
        assert [call.json["state"] for call in server.calls] == ["one", "two", "two", "two", "three"]
    found = {str(each.state): each for each in store.decisions.values()}
    assert [found[text].attempts for text in ("one", "two", "three")] == [1, 3, 1]
    assert found["two"].duration_ms > 1400  # half a second and a second were waited
    assert found["one"].duration_ms < 1400 > found["three"].duration_ms


@pytest.mark.parametrize("local", [False, True])
@pytest.mark.parametrize(("strategy", "outcome"), [("strict", "aborted"), ("warn", "allowed")])
async def test_a_spent_budget_is_decided_by_the_error_strategy(
    client: Client, queue: str, strategy: str, outcome: str, local: bool
) -> None:
    store = MemoryStore()
    async with Server([failed(503)] * 3) as server:
        project = over_http(server, error_strategy=strategy)
        async with worker(client, project, store, queue):
            handle = await guarding(client, queue, given("hello", local=local))
            if strategy == "strict":
                with pytest.raises(WorkflowFailureError) as ended:
                    await handle.result()
                tripwire = tripwire_of(ended.value)
                assert tripwire is not None
                assert tripwire.metadata == {
                    "processor_id": "letters",
                    "classifier_id": "letters",
                    "code": "CLASSIFIER_FAILED",
                }
            else:
                assert (await handle.result()).texts == ["hello"]
        assert len(server.calls) == 3
    decision = only(store)
    assert decision.failure is not None
    assert (decision.outcome, decision.failure.code, decision.attempts) == (outcome, "MODEL_UNAVAILABLE", 3)


async def test_a_shared_request_that_fails_counts_for_all_who_share_it(client: Client, queue: str) -> None:
    store = MemoryStore()
    async with Server([failed(503)] * 3) as server:
        project = both(SystemOne("m", base_url=server.url), error_strategy="warn")
        asked = given("hello", processors=("letters", "tone"))
        assert (await passed(client, queue, project, store, asked)).texts == ["hello"]
        assert len(server.calls) == 3
    assert {name: each.attempts for name, each in by_processor(store).items()} == {"letters": 3, "tone": 3}
    assert all(each.failure and each.duration_ms > 1400 for each in store.decisions.values())


async def test_a_shared_request_that_fails_once_is_two_attempts_of_both(client: Client, queue: str) -> None:
    store = MemoryStore()
    failures = [failed(503)]

    async with Server(lambda call: failures.pop() if failures else judged(call)) as server:
        project = both(SystemOne("m", base_url=server.url))
        await passed(client, queue, project, store, given("hello", processors=("letters", "tone")))
        assert len(server.calls) == 2
    assert {each.attempts for each in store.decisions.values()} == {2}


@pytest.mark.parametrize("local", [False, True])
async def test_policy_that_raises_fails_the_run_once_and_nothing_is_told_or_recorded(
    client: Client, queue: str, local: bool
) -> None:
    told: list[Decision] = []

    def policy(answers: Letter, context: PolicyContext[Letter]) -> None:
        raise KeyError("what its author did not think of")

    store = MemoryStore()
    model = scripted()
    project = guarded(model, on_result=policy, on_decision=told.append, error_strategy="warn")
    async with worker(client, project, store, queue):
        cause = await failure_of(await guarding(client, queue, given("hello", local=local)))
    assert (cause.type, cause.non_retryable) == ("POLICY_ERROR", True)
    assert len(model.requests) == 1
    assert not told
    assert not store.decisions


async def test_a_processor_nobody_registered_is_named_with_those_that_are(client: Client, queue: str) -> None:
    model = scripted()
    async with worker(client, both(model), MemoryStore(), queue):
        cause = await failure_of(await guarding(client, queue, given("hello", processors=["leters"])))
    assert (cause.type, cause.non_retryable) == ("CONFIGURATION", True)
    for named in ("'leters'", "letters", "tone"):
        assert named in cause.message
    assert not model.requests


async def test_a_processor_named_twice_is_refused(client: Client, queue: str) -> None:
    asked = given("hello", processors=["letters", "letters"])
    async with worker(client, both(scripted()), MemoryStore(), queue):
        assert (await failure_of(await guarding(client, queue, asked))).type == "CONFIGURATION"


@pytest.mark.parametrize("local", [False, True])
@pytest.mark.parametrize(("strategy", "outcome"), [("strict", "aborted"), ("warn", "allowed")])
async def test_a_lost_activity_is_decided_by_the_error_strategy_and_what_it_recorded_stays(
    client: Client, queue: str, strategy: str, outcome: str, local: bool
) -> None:
    """Its attempts ran out of time while the second message was judged."""
    store = MemoryStore()

    def reply(call: Call) -> Answer | Hang:
        return Hang() if call.json["state"] == "two" else judged(call)

    async with Server(reply) as server:
        project = over_http(server, error_strategy=strategy)
        async with worker(client, project, store, queue):
            asked = given("one", "two", local=local, attempt_seconds=1, overall_seconds=1.5)
            handle = await guarding(client, queue, asked)
            if strategy == "strict":
                assert (await failure_of(handle)).type == "TRIPWIRE"
            else:
                assert (await handle.result()).texts == ["one", "two"]
    one, two = store.decisions.values()
    assert (one.outcome, one.failure) == ("allowed", None)
    assert two.failure is not None
    assert (two.outcome, two.failure.code) == (outcome, "TIMEOUT")
    assert (two.attempts, two.duration_ms) == (0, 0.0)  # nobody counted


async def test_a_lost_activity_still_acts_on_an_abort_it_recorded(client: Client, queue: str) -> None:
    """The attempt that recorded it never came back."""
    store = MemoryStore()
    told: list[str] = []
    over = asyncio.Event()

    async def stuck(decision: Decision) -> None:
        told.append(decision.outcome)
        if len(told) == 1:
            await over.wait()

    project = guarded(scripted(), on_decision=stuck, error_strategy="warn")
    asked = given(SECRET, "bye", attempt_seconds=1, overall_seconds=1.2)
    async with worker(client, project, store, queue):
        assert (await failure_of(await guarding(client, queue, asked))).type == "TRIPWIRE"
        over.set()
    assert only(store).outcome == "aborted"


async def test_decisions_that_were_found_are_told_again(client: Client, queue: str) -> None:
    told: list[str] = []
    failures = [failed(503)]

    def reply(call: Call) -> Answer:
        return failures.pop() if call.json["state"] == "two" and failures else judged(call)

    def tell(decision: Decision) -> None:
        told.append(str(decision.state))

    async with Server(reply) as server:
        project = over_http(server, on_decision=tell)
        await passed(client, queue, project, MemoryStore(), given("one", "two"))
    assert told == ["one", "one", "two"]


async def test_ids_come_from_the_run_then_the_message_then_the_context(client: Client, queue: str) -> None:
    store = MemoryStore()
    context = {"tenant_id": "acme", "thread_id": "t-9", "resource_id": "r-9", "more": [1]}
    await passed(client, queue, guarded(scripted()), store, given("hello", context=context))
    decision = only(store)
    assert (decision.tenant, decision.ids.thread, decision.ids.resource) == ("acme", "t-9", "r-9")
    assert decision.request_context == context
    assert decision.coordinates.workflow_id
    assert decision.coordinates.activity_id == "classifier.decide-1"


async def test_a_monitor_records_what_it_would_have_done_and_changes_nothing(
    client: Client, queue: str
) -> None:
    store = MemoryStore()
    project = App(processors=[processor(scripted(), mode="monitor"), tone(scripted())])
    asked = given(SECRET, "a dull day", processors=("letters", "tone"))
    came = await passed(client, queue, project, store, asked)
    assert (came.texts, came.outcome) == ([SECRET, "a dull day"], "allowed")
    assert [each.outcome for each in store.decisions.values()] == [
        "aborted",
        "filtered",
        "allowed",
        "allowed",
    ]
