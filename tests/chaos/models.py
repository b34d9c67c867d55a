"""What the product talks to: a decision model, a language model and a webhook, which keep what they did.

All three misbehave by the seed of the run; see `tests.chaos.plan`.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from typing import Any

from tests.agents.llm import Broken, Reply, Status
from tests.apps.under_fire import SHELVES
from tests.chaos.facts import Post
from tests.chaos.plan import pick, share_of, whim_of
from tests.servers import Answer, Call, Hang, Raw, half_of
from tests.servers import Reply as HttpReply

BLOCKED = "HUNTER2"
"""What the guards of the agent stop."""
SLOW = 1.5
UNSURE = 0.06
"""The share of answers that are not sure enough, so that a person is asked."""


@dataclass
class DecisionModel:
    """Answers System One requests; a text that is asked about again gets another answer.

    Attributes:
        seed: Of the run; None answers at once, always.
        given: The shelves that each text was given; None is a refusal.
        whims: How often it did what.
    """

    seed: int | None
    latency: float = 0.02
    given: dict[str, list[str | None]] = field(default_factory=lambda: defaultdict(list))
    whims: Counter[str] = field(default_factory=Counter[str])
    _asked: Counter[str] = field(default_factory=Counter[str])

    async def __call__(self, call: Call) -> HttpReply:
        """Some reply to a request."""
        text, questions = str(call.json["state"]), call.json["questions"]
        asked = self._asked[text]
        self._asked[text] += 1
        whim = "answer" if self.seed is None else whim_of(self.seed, text, asked)
        self.whims[whim] += 1
        await asyncio.sleep(SLOW if whim == "delay" else self.latency)
        match whim:
            case "busy":
                return Answer({"error": {"code": "rate_limited"}}, status=429, headers={"retry-after": "1"})
            case "failure":
                return Answer({"error": {"message": text}}, status=500)
            case "garbage":
                return Answer(b"<html>an intermediary is unwell</html>")
            case "half":
                return half_of(self._answered("answer", text, asked, questions, noted=False))
            case "nothing":
                return Hang() if asked % 2 else Raw()
            case _:
                return self._answered(whim, text, asked, questions)

    def _answered(
        self, whim: str, text: str, asked: int, questions: dict[str, Any], *, noted: bool = True
    ) -> Answer:
        if "shelf" not in questions:
            return _on_safety(text, refused=whim == "refusal")
        shelf = SHELVES[(sum(text.encode()) + asked) % len(SHELVES)]
        if noted:
            self.given[text].append(None if whim == "refusal" else shelf)
        if whim == "refusal":
            return _reply(shelf={"type": "refusal"})
        is_unsure = self.seed is not None and share_of(self.seed, f"unsure {text}") < UNSURE
        sure = 0.5 if is_unsure else 0.94
        rest = dict.fromkeys(SHELVES, round((1 - sure) / 3, 4)) | {shelf: sure}
        return _reply(shelf={"type": "choice", "choice": shelf, "confidence": 0.9, "probabilities": rest})


def _on_safety(text: str, *, refused: bool) -> Answer:
    if refused:
        return _reply(unsafe={"type": "refusal"})
    return _reply(unsafe={"type": "noul", "noul": 0.99 if BLOCKED in text else 0.01, "confidence": 0.9})


def _reply(**answers: dict[str, Any]) -> Answer:
    return Answer({"model": "chaos-1", "answers": answers})


@dataclass
class Receiver:
    """The webhook: takes every delivery, and says so most of the time.

    Attributes:
        seed: Of the run; None always says so.
        posts: What came, in order.
    """

    seed: int | None
    posts: list[Post] = field(default_factory=list[Post])

    async def __call__(self, call: Call) -> HttpReply:
        """Takes it, and answers, or fails, or hangs up before the sender knows."""
        body = call.json
        key = call.headers.get("idempotency-key", "")
        content = hashlib.sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()
        self.posts.append(Post(key, content, body["event"]["id"], body["route"], body["decision_id"]))
        share = 1.0 if self.seed is None else share_of(self.seed, f"{key} {len(self.posts)}")
        if share < 0.02:
            return Answer({}, status=500)
        return Raw() if share < 0.04 else Answer({})


@dataclass(frozen=True)
class Writer:
    """Writes the replies of the agent: what it says depends on the message, how it fails on the seed.

    Attributes:
        seed: Of the run.
        marker: Stands in every reply, so that it can be looked for in logs.
    """

    seed: int
    marker: str
    _asked: Counter[str] = field(default_factory=Counter[str])

    def __call__(self, request: dict[str, Any]) -> Reply:
        """A reply in pieces; one in six holds what must not be said."""
        message = str(request["messages"][-1]["content"])
        asked = self._asked[message]
        self._asked[message] += 1
        whim = whim_of(self.seed, f"reply to {message}", asked)
        if whim in {"busy", "failure"}:
            return [Status(429, {"retry-after": "1"}) if whim == "busy" else Status(500)]
        pieces = [f"{self.marker} ", f"answer {asked} ", f"to {len(message)}, ", "kindly."]
        if share_of(self.seed, f"blocked {message}") < 1 / 6:
            pieces.insert(2, f"{BLOCKED} ")
        if whim in {"half", "nothing"}:
            return [*pieces[:2], Broken()]
        return pieces


def person_chooses(seed: int, workflow: str) -> str | None:
    """What a person says of an event that waits; None leaves it waiting."""
    if share_of(seed, f"left alone {workflow}") < 1 / 2:
        return None
    return pick(seed, f"chosen {workflow}", SHELVES)
