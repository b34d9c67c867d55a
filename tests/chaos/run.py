"""One run, from servers to findings.

async with arena() as servers:
    outcome = await run(servers, Settings(seed=7, events=60, turns=4, seconds=20))
    outcome.findings
"""

from __future__ import annotations

import contextlib
from collections import Counter
from dataclasses import dataclass, replace

from classifier.audit.postgres import PostgresStore
from tests.agents.llm import KEY
from tests.chaos.arena import Arena
from tests.chaos.bout import HASH_KEY, HOOK_SECRET, Bout, Settings, prepared
from tests.chaos.checker import DELIVERED, Finding, check, is_sound, turns_of
from tests.chaos.collecting import (
    endings_of,
    happened_in,
    kept_in,
    log_of,
    remembered,
    rows_of,
    runs_of,
    screens_of,
    seen_in,
)
from tests.chaos.doors import TOKEN
from tests.chaos.facts import Facts
from tests.chaos.models import BLOCKED


@dataclass(frozen=True)
class Outcome:
    """What a run came to.

    Attributes:
        facts: Everything that is known.
        findings: How each invariant fared.
        figures: What is worth telling besides, by name.
    """

    facts: Facts
    findings: tuple[Finding, ...]
    figures: dict[str, object]

    @property
    def sound(self) -> bool:
        """Whether nothing is broken."""
        return is_sound(self.findings)

    @property
    def broken(self) -> set[str]:
        """The names of the invariants that do not hold."""
        return {found.name for found in self.findings if found.breaches}


async def run(servers: Arena, settings: Settings) -> Outcome:
    """A run on these servers, under a tenant and a queue of its own."""
    async with contextlib.AsyncExitStack() as exits:
        bout = await prepared(exits, servers, settings)
        seconds = await bout.go()
        facts = await _collected(bout)
    forbidden = _forbidden(bout)
    written = {name: process.log for name, process in bout.processes.items()} | servers.logs
    logs = tuple(log_of(name, path, forbidden) for name, path in written.items())
    whole = replace(facts, logs=logs)
    return Outcome(whole, check(whole), _figures(bout, whole, seconds))


async def _collected(bout: Bout) -> Facts:
    store = PostgresStore(bout.servers.database_url, hash_key=HASH_KEY.encode())
    threads = bout.talk.threads(bout.settings.turns)
    try:
        known = await remembered(store, bout.queue, bout.sender.sent)
    finally:
        await store.aclose()
    runs = await runs_of(bout.client, bout.queue)
    kept = await kept_in(threads)
    seen = await seen_in(bout.client, kept)
    return Facts(
        sent=tuple(bout.sender.sent),
        runs=runs,
        rows=await rows_of(bout.history, bout.queue),
        happened=await happened_in(bout.history, bout.queue, [run.workflow for run in runs]),
        remembered=known,
        posts=tuple(bout.hook.posts),
        choices=tuple(bout.people.choices.values()),
        given={text: tuple(answers) for text, answers in bout.model.given.items()},
        said=tuple(bout.talk.said),
        kept=kept,
        endings=endings_of(seen),
        shown=screens_of(seen),
        prompts=tuple(str(request["messages"]) for request in bout.llm.requests),
        blocked=BLOCKED,
        commands=dict(bout.commands),
    )


def _forbidden(bout: Bout) -> dict[str, str]:
    return {
        "a text": bout.marker,
        "a blocked text": BLOCKED,
        "a token": TOKEN,
        "the hash key": HASH_KEY,
        "the webhook's token": HOOK_SECRET,
        "the language model's key": KEY,
        **bout.servers.secrets,
    }


def _figures(bout: Bout, facts: Facts, seconds: float) -> dict[str, object]:
    states = Counter(run.state or run.status for run in facts.runs)
    return {
        "seconds": round(seconds, 1),
        "events": len(facts.sent),
        "delivered": states[DELIVERED],
        "waiting for a person": states["review"],
        "decided by a person": sum(choice.taken for choice in facts.choices),
        "choices unanswered": dict(bout.people.unanswered),
        "decisions": len(facts.rows),
        "failed decisions": sum(row.failed for row in facts.rows),
        "turns": dict(turns_of(facts)),
        "messages asked again": bout.asked_again,
        "requests to the model": sum(bout.model.whims.values()),
        "whims of the model": dict(bout.model.whims),
        "deliveries": len(facts.posts),
        "of them repeats": len(facts.posts) - len({post.key for post in facts.posts}),
        "requests sent again": bout.sender.resent,
        "workflow tasks done again": sum(run.lost for run in facts.runs),
        "starts": {name: process.starts for name, process in bout.processes.items()},
        "ended by themselves": {
            name: process.alone
            for name, process in bout.processes.items()
            if process.alone and name != "triage"
        },
    }
