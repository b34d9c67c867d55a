"""What a model is given of a thread, and what a thread carries on: plain functions over turns. Pure.

Nothing that was blocked or filtered is in a `Turn`, so it cannot come back from here.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import fields, replace
from typing import Any

from activities.chat_messages import Event, Outline
from workflows.agent_messages import Done, Step, Turn

_USUAL = Turn("", "finished", "finished")
_FIELDS = tuple(each.name for each in fields(Turn) if each.name not in {"id", "outcome", "event", "steps"})
_CALL = tuple(each.name for each in fields(Done))

WHOLE_BYTES = 700_000
"""Of turns that are carried whole; Temporal's payloads end at 2 MiB, and the newest events go along."""
KNOWN_BYTES = 400_000
"""Of older turns, of which only what became of them is carried: over a thousand."""
_PER_TURN, _PER_PART = 400, 150


def conversation(
    turns: Sequence[Turn], current: Sequence[Step], text: str, outline: Outline, feedback: Sequence[str]
) -> list[dict[str, Any]]:
    """The messages of a model call: as many whole turns as memory holds, then this one.

    Args:
        turns: What is over.
        current: The steps of this turn.
        text: The message that is answered.
        outline: The agent.
        feedback: What the model is told about replies that were withheld.
    """
    own = [_said("user", text), *_steps(current), *(_said("user", each) for each in feedback)]
    room = outline.memory - _length(own)
    earlier: list[list[dict[str, Any]]] = []
    for turn in reversed(turns):
        messages = remembered(turn)
        room -= _length(messages)
        if room < 0:
            break
        earlier.append(messages)
    return [*(message for messages in reversed(earlier) for message in messages), *own]


def remembered(turn: Turn) -> list[dict[str, Any]]:
    """What later model calls see of a turn."""
    if not turn.text or turn.forgotten:
        return []
    return [_said("user", turn.text), *_steps(turn.steps)]


def carried(turns: Sequence[Turn]) -> list[Turn]:
    """Turns that fit a payload: the newest whole, then what became of older ones, then none."""
    whole, known = WHOLE_BYTES, KNOWN_BYTES
    kept: list[Turn] = []
    for turn in reversed(turns):
        whole -= _size(turn) if whole >= 0 else 0
        if whole < 0:
            known -= _PER_TURN // 4 + _bytes(turn.id)
        if known < 0:
            break
        kept.append(turn if whole >= 0 else forgetting(turn))
    return kept[::-1]


def turn_to_json(turn: Turn) -> str:
    """A turn as a run hands it to the next, without what is as usual; `turn_from_json` reads it back.

    As text, since Temporal takes a run for dead whose thousands of turns a converter copies one by one.
    """
    body = {name: getattr(turn, name) for name in _FIELDS if getattr(turn, name) != getattr(_USUAL, name)}
    steps = [
        [step.text, [[getattr(call, name) for name in _CALL] for call in step.calls]] for step in turn.steps
    ]
    given = {"id": turn.id, "outcome": turn.outcome, "event": turn.event, "steps": steps, **body}
    return json.dumps(given, separators=(",", ":"))


def turn_from_json(text: str) -> Turn:
    """Reads what `turn_to_json` wrote."""
    body = json.loads(text)
    steps = [Step(said, [Done(*call) for call in calls]) for said, calls in body["steps"]]
    given: dict[str, Any] = {**body, "steps": steps}
    return Turn(**given)


def turn_body(turn: Turn) -> dict[str, Any]:
    """A turn as callers read it; a `Turn`, without the time that converting thousands of them takes."""
    steps = [{"text": step.text, "calls": [vars(call) for call in step.calls]} for step in turn.steps]
    return {**vars(turn), "steps": steps}


def forgetting(turn: Turn) -> Turn:
    """The turn without its texts."""
    return replace(turn, text="", steps=[], tripwire=None, decision_ids=[], forgotten=True)


def withheld_texts(steps: Sequence[Step]) -> list[Step]:
    """The steps without what the model said; tools that ran stay, since their effects do."""
    return [Step(calls=step.calls) for step in steps if step.calls]


def ended_event(turn: Turn) -> Event:
    """The terminal event of a turn."""
    event: Event = {"type": "ended", "turn": turn.id, "outcome": turn.outcome, "event": turn.event}
    reason = None if turn.tripwire is None else turn.tripwire.get("reason")
    known = {"reason": reason, "code": turn.code, "processor": turn.processor, "phase": turn.phase}
    return event | {name: value for name, value in known.items() if value is not None}


def _steps(steps: Sequence[Step]) -> list[dict[str, Any]]:
    messages: list[dict[str, Any]] = []
    for step in steps:
        if not step.calls:
            messages += [_said("assistant", step.text)] if step.text else []
            continue
        calls = [
            {"id": call.model_id, "type": "function", "function": {"name": call.name, "arguments": call.text}}
            for call in step.calls
        ]
        messages.append({"role": "assistant", "content": step.text or None, "tool_calls": calls})
        messages += [
            {"role": "tool", "tool_call_id": call.model_id, "content": call.result} for call in step.calls
        ]
    return messages


def _said(role: str, text: str) -> dict[str, Any]:
    return {"role": role, "content": text}


def _length(messages: Sequence[dict[str, Any]]) -> int:
    return sum(
        len(str(message.get("content") or "")) + len(str(message.get("tool_calls", "")))
        for message in messages
    )


def _size(turn: Turn) -> int:
    """At most so many bytes in a payload; everything but what was said is taken for as long as it can be."""
    calls = [call for step in turn.steps for call in step.calls]
    said = [turn.id, turn.text, turn.tripwire, turn.decision_ids, *(step.text for step in turn.steps)]
    said += [getattr(call, name) for call in calls for name in _CALL]
    return _PER_TURN + _PER_PART * (len(calls) + len(turn.steps)) + sum(map(_bytes, said))


def _bytes(value: Any) -> int:
    """As JSON within a text of JSON, which is what a payload makes of `turn_to_json`."""
    once = json.dumps(value)
    return len(once) + once.count("\\") + once.count('"')
