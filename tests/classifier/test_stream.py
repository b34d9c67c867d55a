"""The stream guard: what is judged, what is released, and in which order."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Mapping
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from classifier.answers import Answer, BooleanAnswer
from classifier.audit.memory import MemoryStore
from classifier.decision import Decision
from classifier.messages import TextDelta
from classifier.models.protocol import DecisionRequest
from classifier.models.scripted import ScriptedModel
from classifier.normalise import normalise
from classifier.processor import Coalesce
from classifier.stream import End, guard
from classifier.testing import memory_ports, try_messages, try_stream
from classifier.verdict import Run, Tripped
from tests.classifier.conformance import abort_unsafe, filter_unsafe
from tests.classifier.streaming import (
    TERM,
    TEXT,
    deltas,
    finding,
    guarding,
    silent,
    splits,
    states,
    texts_of,
)

# what is judged, and when it leaves


@pytest.mark.parametrize("policy", [abort_unsafe, filter_unsafe])
@pytest.mark.parametrize("ways", [1, 2, 3])
async def test_str_o01_a_split_term_is_never_delivered(ways: int, policy: Any) -> None:
    for parts in splits(TEXT, ways):
        tried = await try_stream([guarding(policy=policy, hold_back=len(TERM) - 1)], parts)
        assert TERM not in tried.text
        assert tried.end.outcome == ("aborted" if policy is abort_unsafe else "finished")


async def test_str_o02_the_first_half_waits_for_the_verdict_and_goes_with_the_second() -> None:
    def address(request: DecisionRequest) -> Mapping[str, Answer]:
        found = re.search(r"\S+@\S+\.\S+", str(request.state))
        return {"unsafe": BooleanAnswer(0.9 if found else 0.1)}

    processor = guarding(ScriptedModel(address), policy=filter_unsafe, hold_back=24)
    tried = await try_stream(
        [processor], ["mail jane.", "doe@exa", "mple.test now", " or write to us by post"]
    )
    assert tried.text == " or write to us by post"
    assert [decision.outcome for decision in tried.decisions] == ["allowed", "allowed", "filtered", "allowed"]


async def test_str_o02_text_lags_by_the_declared_characters_and_no_more() -> None:
    judged: list[Decision] = []
    run = Run.here()
    processor = guarding(hold_back=3, on_decision=judged.append, max_in_flight=1)
    stream = guard(deltas("abcdefgh"), [processor], run=run, ports=memory_ports(MemoryStore(), run))
    released = 0
    async for part in stream:
        if isinstance(part, TextDelta):
            released += 1
            assert len(judged) >= min(released + 3, 8)
    assert stream.text == "abcdefgh"


async def test_str_o03_the_judged_text_is_the_exact_concatenation() -> None:
    model = finding()
    await try_stream([guarding(model, chunk_window=9)], ["ass", "isting", " you"])
    assert states(model)[-1] == "assisting you"


async def test_str_o04_calls_are_bounded_by_pieces_not_by_chunks() -> None:
    model = finding()
    tokens = ["word "] * 400
    tried = await try_stream([guarding(model, coalesce=Coalesce(500, 5.0))], tokens)
    assert tried.text == "word " * 400
    assert len(model.requests) == 4


async def test_str_o04_what_has_gathered_is_judged_when_it_is_old_enough() -> None:
    model, go_on = finding(), asyncio.Event()

    async def source() -> AsyncIterator[TextDelta]:
        yield TextDelta("one ")
        yield TextDelta("two")
        await go_on.wait()
        yield TextDelta(" three")

    run = Run.here()
    processor = guarding(model, coalesce=Coalesce(1000, 0.02))
    stream = guard(source(), [processor], run=run, ports=memory_ports(MemoryStore(), run))
    assert await anext(stream) == TextDelta("one ")
    assert await anext(stream) == TextDelta("two")
    go_on.set()
    assert await anext(stream) == TextDelta(" three")
    assert states(model) == ["one two", " three"]
    await stream.aclose()


async def test_str_o05_streaming_and_not_streaming_come_to_the_same_verdict_with_as_many_rows() -> None:
    processor = guarding(coalesce=Coalesce(1000, 5.0))
    whole = await try_messages([processor], ["this is HUNTER2"], phase="output")
    streamed = await try_stream([processor], ["this is ", "HUN", "TER2"])
    assert whole.verdict.outcome == streamed.end.outcome == "aborted"
    assert whole.verdict.tripwire == streamed.end.tripwire
    assert len(whole.decisions) == len(streamed.decisions) == 1
    assert streamed.text == ""


async def test_str_o06_interleaved_streams_are_judged_as_if_alone() -> None:
    processor = guarding(finding("secret"), chunk_window=5, hold_back=5)
    runs = await asyncio.gather(
        *(try_stream([processor], parts) for _ in range(100) for parts in (["se", "cret"], ["hello ", "bob"]))
    )
    assert {tried.end.outcome for tried in runs[::2]} == {"aborted"}
    assert {tried.text for tried in runs[::2]} == {""}
    assert {(tried.end.outcome, tried.text) for tried in runs[1::2]} == {("finished", "hello bob")}


async def test_str_o07_a_blocked_stream_ends_with_one_terminal_event_and_closes_its_source() -> None:
    closed: list[str] = []
    run = Run.here()
    source = deltas(["a", "b", TERM, "d", "e"], closed)
    stream = guard(source, [guarding()], run=run, ports=memory_ports(MemoryStore(), run))
    parts = await asyncio.wait_for(texts_of(stream), 2)
    assert parts[:-1] == ["a", "b"]
    assert isinstance(parts[-1], End)
    assert parts[-1].outcome == "aborted"
    assert closed == ["closed"]
    assert [part async for part in stream] == []


async def test_str_o08_a_term_around_a_tool_call_is_seen_as_one() -> None:
    tried = await try_stream([guarding(hold_back=6)], ["HUN", {"tool": "search"}, "TER2"])
    assert tried.end.outcome == "aborted"
    assert tried.parts == ()


async def test_parts_that_are_not_text_keep_their_place_behind_held_text() -> None:
    tried = await try_stream([guarding(hold_back=3)], [0, "ab", 1, "cd", 2, "ef", 3])
    assert [part.text if isinstance(part, TextDelta) else part for part in tried.parts] == [
        0, "ab", 1, "cd", 2, "ef", 3,
    ]  # fmt: skip


async def test_an_empty_stream_finishes() -> None:
    tried = await try_stream([guarding()], [])
    assert (tried.parts, tried.end.outcome, tried.decisions) == ((), "finished", ())


async def test_without_processors_everything_passes_and_there_is_still_one_end() -> None:
    tried = await try_stream([], ["a", 1, "b"])
    assert tried.text == "ab"
    assert tried.end == End("finished")


async def test_the_last_gathered_text_is_judged() -> None:
    tried = await try_stream([guarding(coalesce=Coalesce(1000, 60.0))], ["fine ", TERM])
    assert tried.end.outcome == "aborted"


async def test_with_hold_back_two_halves_cannot_meet_around_a_dropped_chunk() -> None:
    def rude_or_secret(request: DecisionRequest) -> Mapping[str, Answer]:
        found = "RUDE" in str(request.state) or TERM in str(request.state)
        return {"unsafe": BooleanAnswer(0.9 if found else 0.1)}

    processor = guarding(ScriptedModel(rude_or_secret), policy=filter_unsafe, hold_back=6)
    parts = ["x HUNT", ".........", "RUDE....", "ER2", " and so on", " it goes"]
    tried = await try_stream([processor], parts)
    assert TERM not in tried.text
    assert "RUDE" not in tried.text
    assert tried.text.endswith(" it goes")


async def test_invisible_padding_does_not_stretch_a_term_out_of_the_held_text() -> None:
    padded = "\u200b\u200b\u200b".join(TERM)
    processor = guarding(hold_back=6, normalise=True)
    tried = await try_stream([processor], ["so ", *padded, " end"])
    assert tried.end.outcome == "aborted"
    assert "2" not in tried.text
    assert TERM not in normalise(tried.text).text
    assert tried.text == "so "


@settings(max_examples=150, deadline=None)
@given(data=st.data(), policy=st.sampled_from([abort_unsafe, filter_unsafe]))
async def test_no_split_of_any_text_delivers_a_blocked_term(data: st.DataObject, policy: Any) -> None:
    term = data.draw(st.text("ab", min_size=1, max_size=4), "term")
    chunks = data.draw(st.lists(st.text("abc ", min_size=1, max_size=5), max_size=12), "chunks")
    extra = data.draw(st.integers(0, 3), "extra")
    window = data.draw(st.integers(0, 3), "window")
    in_flight = data.draw(st.integers(1, 4), "in flight")
    gather = data.draw(st.one_of(st.none(), st.integers(1, 8)), "gather")
    copies = data.draw(st.integers(1, 2), "copies")
    options: dict[str, Any] = {
        "policy": policy,
        "hold_back": len(term) - 1 + extra,
        "chunk_window": window,
        "max_in_flight": in_flight,
        "coalesce": None if gather is None else Coalesce(gather, 60.0),
    }
    model = finding(term)
    chain = [guarding(model, id=f"p{copy}", **options) for copy in range(copies)]
    tried = await try_stream(chain, chunks)
    assert term not in tried.text
    if term not in "".join(chunks):
        assert tried.text == "".join(chunks)
        assert tried.end.outcome == "finished"


@settings(max_examples=75, deadline=None)
@given(
    parts=st.lists(st.one_of(st.text("xyz \n", max_size=4), st.integers()), max_size=15),
    hold_back=st.integers(0, 12),
    gather=st.one_of(st.none(), st.integers(1, 9)),
    copies=st.integers(1, 3),
)
async def test_order_is_preserved_and_nothing_is_lost(
    parts: list[object], hold_back: int, gather: int | None, copies: int
) -> None:
    coalesce = None if gather is None else Coalesce(gather, 60.0)
    chain = [
        guarding(ScriptedModel(finding()._next), id=f"p{n}", hold_back=hold_back, coalesce=coalesce)
        for n in range(copies)
    ]
    tried = await try_stream(chain, parts)
    assert [part.text if isinstance(part, TextDelta) else part for part in tried.parts] == parts
    assert tried.end.outcome == "finished"


@settings(max_examples=30, deadline=None)
@given(
    streams=st.lists(st.lists(st.text("ab ", max_size=3), max_size=8), min_size=2, max_size=6),
    policy=st.sampled_from([abort_unsafe, filter_unsafe]),
)
async def test_streams_that_run_together_come_to_what_they_come_to_alone(
    streams: list[list[str]], policy: Any
) -> None:
    processor = guarding(finding("ab"), policy=policy, hold_back=1, chunk_window=2, max_in_flight=2)
    alone = [await try_stream([processor], parts) for parts in streams]
    together = await asyncio.gather(*(try_stream([processor], parts) for parts in streams))
    assert [(each.text, each.end.outcome) for each in alone] == [
        (each.text, each.end.outcome) for each in together
    ]


# chains


async def test_a_filtered_chunk_never_reaches_the_next_processor_or_its_windows() -> None:
    second = finding("never")
    chain = [
        guarding(finding("beta"), id="a", policy=filter_unsafe, chunk_window=1),
        guarding(second, id="b", chunk_window=3),
    ]
    tried = await try_stream(chain, ["alpha ", "beta ", "gamma"])
    assert tried.text == "alpha gamma"
    assert states(second) == ["alpha ", "alpha gamma"]


async def test_an_own_dropped_chunk_stays_in_the_window_of_who_received_it() -> None:
    model = finding("beta")
    tried = await try_stream([guarding(model, policy=filter_unsafe, chunk_window=2)], ["a", "beta", "c", "d"])
    assert states(model)[:4] == ["a", "abeta", "betac", "cd"]
    assert tried.text == "ad"


async def test_processors_with_the_same_windows_share_requests_and_keep_decisions_apart() -> None:
    model = finding()
    chain = [guarding(model, id=name, hold_back=6) for name in ("a", "b")]
    tried = await try_stream(chain, ["one ", "two ", "three"])
    assert len(model.requests) == 3
    assert [decision.processor_id for decision in tried.decisions] == ["a", "b"] * 3


async def test_in_a_shared_stage_a_processor_behind_a_filter_has_other_windows_and_no_decision() -> None:
    model = finding("beta")
    chain = [
        guarding(model, id="a", policy=filter_unsafe, chunk_window=2),
        guarding(model, id="b", policy=silent, chunk_window=2),
    ]
    tried = await try_stream(chain, ["alpha ", "beta ", "gamma ", "delta"])
    seen = {name: [d.state for d in tried.decisions if d.processor_id == name] for name in ("a", "b")}
    assert seen["a"] == ["alpha ", "alpha beta ", "beta gamma ", "gamma delta"]
    assert seen["b"] == ["alpha ", "alpha delta"]
    assert tried.text == "alpha delta"


async def test_an_abort_of_the_first_ends_the_chain_and_every_result_is_on_the_end() -> None:
    chain = [guarding(id="a"), guarding(finding("never"), id="b")]
    tried = await try_stream(chain, ["fine", TERM])
    assert tried.end.outcome == "aborted"
    seen = {(each.processor_id, each.position, each.outcome) for each in tried.end.judgements}
    assert seen == {("a", 0, "allowed"), ("b", 0, "allowed"), ("a", 1, "aborted")}
    assert isinstance(tried.end.error, Tripped)
    assert tried.end.error.judgements == tried.end.judgements


async def test_monitor_lets_a_stream_through_and_records() -> None:
    tried = await try_stream([guarding(mode="monitor")], ["a", TERM])
    assert tried.end.outcome == "finished"
    assert tried.text == "a" + TERM
    assert [decision.outcome for decision in tried.decisions] == ["allowed", "aborted"]
